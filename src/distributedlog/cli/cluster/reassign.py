"""`dlog cluster reassign`: moves of partitions to other brokers: begun, throttled, watched, cancelled."""

import asyncio
import time
from collections.abc import Collection
from typing import Final, TextIO

import click

from distributedlog.cli.cluster.move_progress import MoveRate, find_left, find_sizes
from distributedlog.cli.cluster.reassignment_plan import Plan, parse_plan, spell_plan
from distributedlog.cli.cluster.throttles import (
    add_plan,
    end_throttles,
    narrow_throttle,
    throttle,
    warning_of_throttle,
)
from distributedlog.cli.exit_codes import EXISTING_FILE_OR_STDIN
from distributedlog.cli.output import TextTable, columns, output_option, print_json, print_line, warn
from distributedlog.cli.progress import live_line
from distributedlog.cli.session import cluster_options, run
from distributedlog.client.admin.admin import Admin, Reassignment
from distributedlog.model.config import INT64_MAX
from distributedlog.model.errors import DlogError, InvalidRequestError, NoReassignmentError
from distributedlog.model.ids import TopicPartition

COLUMNS = columns("topic<40 partition>9 replicas<16 adding<12 removing<12 left-bytes>14")
LOOK_SECONDS: Final = 0.5
MEASURE_SECONDS: Final = 1.0
"""How long a list looks at the moves to tell their rate."""
REPORT_SECONDS: Final = 10.0
"""How often it is told how far moves have come."""
PARTITIONS_PER_REQUEST: Final = 500
PLAN_CHARACTERS_MAX: Final = 64 * 1024 * 1024
EXIT_REFUSED: Final = 1

throttle_option = click.option(
    "--throttle",
    "throttle_rate",
    type=click.IntRange(1, INT64_MAX),
    metavar="BYTES",
    help="Bytes in a second that each broker sends and fetches for moves at most.",
)


@click.command()
@click.option(
    "--plan",
    "plan_file",
    type=EXISTING_FILE_OR_STDIN,
    metavar="FILE",
    help="Moves, in Kafka's JSON; '-' is stdin.",
)
@click.option(
    "--cancel", is_flag=True, help="Cancel the moves of the plan, and their throttles; without a plan, all."
)
@click.option("--preserve-throttles", is_flag=True, help="With --cancel: throttles stay as they are.")
@throttle_option
@click.option("--unthrottle", is_flag=True, help="Remove all throttles of moves that have ended.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until all have arrived.")
@cluster_options
@output_option
def reassign(
    plan_file: TextIO | None,
    cancel: bool,
    preserve_throttles: bool,
    throttle_rate: int | None,
    unthrottle: bool,
    wait: bool,
    bootstrap: str,
    timeout_seconds: float,
    output: str,
) -> int:
    """Move partitions to other brokers.  A move adds the new replicas, waits until they are in sync, and then
    removes the others; it goes on if the command is ended.  Without a plan, the moves under way are listed.

    What would bring everything back is printed first.  With --throttle the moves take no more than so much of
    each broker; it is removed when they have ended.  Without a plan it is that of the moves under way.

    \b
    dlog cluster reassign --plan moves.json --throttle 10000000
    dlog cluster reassign
    dlog cluster reassign --cancel
    """
    if cancel + unthrottle + (throttle_rate is not None) > 1:
        raise click.UsageError("--cancel, --throttle and --unthrottle are not given together")
    if preserve_throttles and not cancel:
        raise click.UsageError("--preserve-throttles belongs to --cancel")
    plan = None if plan_file is None else _read_plan(plan_file)

    async def work(admin: Admin) -> int:
        if unthrottle:
            topics = [each.name for each in await admin.list_topics(with_internal=True)]
            await end_throttles(admin, topics)
            return 0
        if cancel:
            wanted = await admin.list_reassignments() if plan is None else plan
            refused = await alter_all(admin, dict.fromkeys(wanted), "cancelled", may_have_ended=plan is None)
            if not preserve_throttles:
                await end_throttles(admin, {name.topic for name in wanted})
            return EXIT_REFUSED if refused else 0
        if plan is not None:
            before = await find_present_replicas(admin, plan)
            print_line(spell_plan(before))
            return await move_all(admin, before, plan, throttle_rate, wait=wait)
        moving = await admin.list_reassignments()
        if throttle_rate is None or not moving:
            return await _show(admin, moving, output)
        await throttle(admin, moving, throttle_rate)
        print_line(f"{len(moving)} moves are throttled")
        if wait:
            with warning_of_throttle():
                await watch_moves(admin, moving)
                await end_throttles(admin, {name.topic for name in moving})
        return 0

    return run(bootstrap, timeout_seconds, work)


def _read_plan(plan_file: TextIO) -> Plan:
    try:
        text = plan_file.read(PLAN_CHARACTERS_MAX + 1)
    except UnicodeDecodeError as error:
        raise click.UsageError(f"the plan is no text: {error}") from error
    if len(text) > PLAN_CHARACTERS_MAX:
        raise click.UsageError(f"the plan is longer than {PLAN_CHARACTERS_MAX} characters")
    try:
        return parse_plan(text)
    except InvalidRequestError as error:
        raise click.UsageError(str(error)) from error


async def find_present_replicas(admin: Admin, plan: Plan) -> Plan:
    topics = await admin.describe_topics(sorted({name.topic for name in plan}))
    known = {
        TopicPartition(topic.name, each.index): tuple(each.replicas)
        for topic in topics
        for each in topic.partitions
    }
    return {name: known[name] for name in plan if name in known}


async def alter_all(
    admin: Admin,
    targets: dict[TopicPartition, tuple[int, ...] | None],
    done: str,
    *,
    may_have_ended: bool = False,
) -> set[TopicPartition]:
    """Begins or cancels moves; returns those that were refused, of which it has warned.

    `may_have_ended`: what was moving when somebody looked, and is not any more, is not refused.
    """
    outcomes: dict[TopicPartition, DlogError | None] = {}
    items = list(targets.items())
    for at in range(0, len(items), PARTITIONS_PER_REQUEST):
        outcomes |= await admin.alter_reassignments(dict(items[at : at + PARTITIONS_PER_REQUEST]))
    refused = {name: error for name, error in outcomes.items() if error is not None}
    ended = {name for name, error in refused.items() if isinstance(error, NoReassignmentError)}
    if may_have_ended and ended:
        refused = {name: error for name, error in refused.items() if name not in ended}
        warn(f"{len(ended)} moves had ended by themselves")
        outcomes = {name: error for name, error in outcomes.items() if name not in ended}
    for name, error in refused.items():
        warn(f"{name}: {error}")
    print_line(f"{len(outcomes) - len(refused)} moves {done}, {len(refused)} refused")
    return set(refused)


async def move_all(
    admin: Admin, before: Plan, plan: Plan, throttle_rate: int | None = None, *, wait: bool
) -> int:
    """Begins the moves of a plan, throttled if there is a rate; `wait`: returns when those that were not
    refused have ended, and removes the throttle then."""
    if throttle_rate is None:
        refused = await alter_all(admin, dict(plan), "begun")
        if wait:
            await _watch_begun(admin, plan, refused)
        return EXIT_REFUSED if refused else 0
    with warning_of_throttle():
        refused = await _begin_throttled(admin, before, plan, throttle_rate)
        if wait:
            await _watch_begun(admin, plan, refused)
            await end_throttles(admin, {name.topic for name in plan})
    if not wait and len(refused) < len(plan):
        warn("when the moves have ended, remove the throttle with `dlog cluster reassign --unthrottle`")
    return EXIT_REFUSED if refused else 0


async def _begin_throttled(admin: Admin, before: Plan, plan: Plan, rate: int) -> set[TopicPartition]:
    """Throttles a plan and begins it; what is refused is not throttled any more, and returned."""
    moving = await admin.list_reassignments()
    wanted = add_plan(moving, before, plan)
    await throttle(admin, wanted, rate)
    refused = await alter_all(admin, dict(plan), "begun")
    if refused:
        begun = {name: target for name, target in plan.items() if name not in refused}
        await narrow_throttle(admin, wanted, add_plan(moving, before, begun), rate)
    return refused


async def _watch_begun(admin: Admin, plan: Plan, refused: set[TopicPartition]) -> None:
    if begun := plan.keys() - refused:
        await watch_moves(admin, begun)


async def watch_moves(admin: Admin, plan: Collection[TopicPartition]) -> None:
    """Returns when none of these partitions is moved any more; tells how far they have come."""
    rate, told = MoveRate(), time.monotonic()
    text = f"{len(plan)} moves under way"
    with live_line(lambda: text):
        while True:
            moving = {name: move for name, move in (await admin.list_reassignments()).items() if name in plan}
            if not moving:
                break
            rate.note(sum(find_left(moving, await find_sizes(admin, moving)).values()), time.monotonic())
            text = rate.spell(len(moving))
            if time.monotonic() - told >= REPORT_SECONDS:
                told = time.monotonic()
                print_line(text)
            await asyncio.sleep(LOOK_SECONDS)
    print_line(f"{len(plan)} moves have ended")


async def _show(admin: Admin, moves: dict[TopicPartition, Reassignment], output: str) -> int:
    if not moves:
        if output != "json":
            warn("nothing is being moved")
        return 0
    rate = MoveRate()
    rate.note(sum(find_left(moves, await find_sizes(admin, moves)).values()), time.monotonic())
    await asyncio.sleep(MEASURE_SECONDS)
    left = find_left(moves, await find_sizes(admin, moves))
    rate.note(sum(left.values()), time.monotonic())
    table = TextTable(COLUMNS)
    for name, move in sorted(moves.items()):
        if output == "json":
            fields = {"topic": name.topic, "partition": name.partition, **move._asdict()}
            print_json({**fields, "left_bytes": left[name]})
        else:
            replicas = (",".join(map(str, each)) for each in move)
            table.row(name.topic, name.partition, *replicas, left[name])
    if output != "json":
        print_line(rate.spell(len(moves)))
    return 0
