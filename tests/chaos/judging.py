"""The end of a run: everything is healed, everyone gets on, a fresh client reads it all, the checker judges.

To what the checker finds in the history come what only a run can show:

    client stuck     a client neither sends nor reads any more, although everything is healed
    group stuck      a group does not come to the end of a partition
    client ended     a client ended by itself: a fatal error, or an offset out of range
    error met        a consumer was told what no fault may have it told (`errors`), and went on
    broker ended     a broker ended by itself although no fault was made that ends one
    move stuck       a reassignment does not end
    move went wrong  a partition has replicas that nobody asked for
    hanging LSO      a last stable offset does not come to the end, although nobody has begun for long enough
    not transformed  the output of transformers is not the function of the input, each record once
"""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from confluent_kafka import KafkaException

from tests.chaos.brokers import Brokers
from tests.chaos.errors import judge_errors
from tests.chaos.load import ChaosLoad
from tests.reliability.checker import ALWAYS, GROUPS, IDEMPOTENT, WHOLE, Finding, check
from tests.reliability.history import History, Place
from tests.reliability.load import final_read
from tests.system.group_load import committed

PATIENCE_SECONDS = 90.0


def settle(
    load: ChaosLoad,
    cluster: Brokers,
    topic: str,
    partitions: int,
    groups: Sequence[str],
    *,
    settle_others: Callable[[], Iterable[Finding] | None] = tuple,
) -> tuple[History, list[Finding]]:
    """Ends the load after all is healed; the whole history, and what was found on the way.

    `settle_others` ends what is none of these when all have got on, and tells what it finds.
    """
    found = [Finding("client stuck", f"{name} gets no further") for name in load.all_get_on(PATIENCE_SECONDS)]
    found += settle_others() or ()
    for name in load.names("producing"):
        load.tell_to_stop(name)
    load.take_until_stopped("producing", PATIENCE_SECONDS)
    final = final_read(cluster.bootstrap, topic, partitions)
    ends = {place: records[-1].offset + 1 if records else 0 for place, records in final.items()}
    for group in groups:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (reached := _ask_committed(cluster, group, topic, partitions)) != ends:
            if time.monotonic() > deadline:
                at = "nobody knows where" if reached is None else f"at {_short(reached)}"
                found.append(Finding("group stuck", f"{group} is {at} of {_short(ends)}"))
                break
            load.take(0.5)
    load.finish()
    return replace(load.gathered.history(), final=final), found


def _ask_committed(cluster: Brokers, group: str, topic: str, partitions: int) -> dict[Place, int] | None:
    """Asks for a group's positions; None where nobody can say: coordinators move on a busy machine, too."""
    try:
        return committed(cluster.bootstrap, group, topic, partitions)
    except KafkaException:
        return None


def judge(
    history: History,
    load: ChaosLoad,
    cluster: Brokers,
    *,
    ends_brokers: bool,
    transactional: Collection[str] = (),
) -> list[Finding]:
    """All findings of a run.

    `ends_brokers`: a fault was made that is to end a broker; `transactional`: topics where markers and
    aborted records have offsets that nobody reads.
    """
    whole = dict(WHOLE)
    without_gaps = {"offset gap": whole.pop("offset gap")}
    found = check(history, {**ALWAYS, **IDEMPOTENT, **whole, **GROUPS})
    plain = {place: seen for place, seen in history.final.items() if place.topic not in transactional}
    found += check(replace(history, final=plain), without_gaps)
    found += [
        Finding("client ended", f"{each.name} with {each.exit_code}: {each.said}") for each in load.failed
    ]
    found += judge_errors(load.gathered.met)
    if not ends_brokers:
        found += [Finding("broker ended", f"{node} with {code}") for node, code in cluster.ended]
    return found


def _short(positions: dict[Place, int]) -> str:
    return ", ".join(f"{place}: {offset}" for place, offset in positions.items())
