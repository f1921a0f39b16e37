"""Loads and plans as tables and as JSON."""

import sys
import time
from typing import Final

from distributedlog.cli.cluster.balancing.loads import DIMENSIONS, ClusterLoad, Load, find_bands, total_excess
from distributedlog.cli.cluster.balancing.planner import BalancePlan
from distributedlog.cli.output import TextTable, columns, print_json, print_line, show_size, show_time
from distributedlog.model.ids import TopicPartition

BROKER_COLUMNS = columns("broker>6 disk<24 bytes-in<24 bytes-out<24 leaders<14 furthest>9")
MOVE_COLUMNS = columns("topic<40 partition>9 replicas<16 then<16 bytes>12")
ROWS_MAX: Final = 50
"""The rows of a table of moves; JSON has all of them."""


def show_plan(plan: BalancePlan, tolerance: float, output: str) -> None:
    before, after = plan.before.by_broker(), plan.after.by_broker()
    if output == "json":
        for broker in before:
            loads = {"before": before[broker]._asdict(), "after": after[broker]._asdict()}
            print_json({"type": "broker", "broker": broker, **loads})
        for name, target in plan.targets.items():
            where = {"topic": name.topic, "partition": name.partition}
            change = {"replicas": plan.before.partitions[name].replicas, "target": target}
            print_json({"type": "move", **where, **change, "bytes": _copied(plan, name)})
        print_json({"type": "plan", **_summary(plan, tolerance)})
        return
    _show_brokers(before, after)
    table = TextTable(MOVE_COLUMNS)
    rows = [*plan.moves.items(), *plan.leaderships.items()]
    for name, target in rows[:ROWS_MAX]:
        replicas = (",".join(map(str, each)) for each in (plan.before.partitions[name].replicas, target))
        table.row(name.topic, name.partition, *replicas, _copied(plan, name))
    if len(rows) > ROWS_MAX:
        print_line(f"and {len(rows) - ROWS_MAX} more; -o json has all of them")
    print_line(spell_plan(plan, tolerance))


def _copied(plan: BalancePlan, name: TopicPartition) -> int:
    return round(plan.before.partitions[name].size_bytes * len(plan.added(name)))


def spell_plan(plan: BalancePlan, tolerance: float) -> str:
    text = (
        f"{plan.move_count} replicas of {show_size(round(plan.move_bytes))} move, "
        f"{len(plan.leaderships)} leaderships change hands; furthest from the mean: "
        f"{furthest(plan.before):.0%}, then {furthest(plan.after):.0%}"
    )
    return text if is_within(plan.after, tolerance) else f"{text}, which is as near as can be planned"


def _summary(plan: BalancePlan, tolerance: float) -> dict[str, object]:
    return {
        "moves": plan.move_count,
        "bytes": round(plan.move_bytes),
        "leaderships": len(plan.leaderships),
        "deviation_before": round(furthest(plan.before), 4),
        "deviation_after": round(furthest(plan.after), 4),
        "is_within": is_within(plan.after, tolerance),
    }


def _show_brokers(before: dict[int, Load], after: dict[int, Load]) -> None:
    table = TextTable(BROKER_COLUMNS)
    bands = find_bands(list(after.values()), 0.0)
    for broker, load in before.items():
        cells = [
            _change(name, was, then) for name, was, then in zip(DIMENSIONS, load, after[broker], strict=True)
        ]
        worst = max((abs(band.deviation(after[broker][at])) for at, band in bands.items()), default=0.0)
        table.row(broker, *cells, f"{worst:.0%}")


def _change(dimension: str, before: float, after: float) -> str:
    was, then = _spell(dimension, before), _spell(dimension, after)
    return was if was == then else f"{was} > {then}"


def _spell(dimension: str, amount: float) -> str:
    if dimension == "leaders":
        return str(round(amount))
    return show_size(round(amount)) + ("" if dimension == "disk" else "/s")


def furthest(cluster: ClusterLoad) -> float:
    """Returns how far from the mean a broker is at most, as a part of it, in dimensions that count."""
    loads = list(cluster.by_broker().values())
    bands = find_bands(loads, 0.0)
    return max((abs(band.deviation(load[at])) for load in loads for at, band in bands.items()), default=0.0)


def is_within(cluster: ClusterLoad, tolerance: float) -> bool:
    return total_excess(list(cluster.by_broker().values()), tolerance) == 0.0


def tell_event(output: str, event: str, **fields: object) -> None:
    """Prints what happens while balancing goes on: a line for each, at once."""
    now = show_time(time.time_ns() // 1_000_000)
    if output == "json":
        print_json({"time": now, "event": event, **fields})
    else:
        told = "  ".join(f"{name}={value}" for name, value in fields.items())
        print_line(f"{now}  {event.replace('_', ' '):<11}  {told}".rstrip())
    sys.stdout.flush()
