"""The end of a run: everything is healed, everyone gets on, a fresh client reads it all, the checker judges.

To what the checker finds in the history come what only a run can show:

    client stuck     a client neither sends nor reads any more, although everything is healed
    group stuck      a group does not come to the end of a partition
    client ended     a client ended by itself: a fatal error, or an offset out of range
    broker ended     a broker ended by itself although no fault was made that ends one
"""

import time
from collections.abc import Sequence
from dataclasses import replace

from tests.chaos.cluster import Cluster
from tests.chaos.load import ChaosLoad
from tests.reliability.checker import ALWAYS, GROUPS, IDEMPOTENT, WHOLE, Finding, check
from tests.reliability.history import History, Place
from tests.reliability.load import final_read
from tests.system.group_load import committed

PATIENCE_SECONDS = 90.0


def settle(
    load: ChaosLoad, cluster: Cluster, topic: str, partitions: int, groups: Sequence[str]
) -> tuple[History, list[Finding]]:
    """Ends the load after all is healed; the whole history, and what was found on the way."""
    found = [Finding("client stuck", f"{name} gets no further") for name in load.all_get_on(PATIENCE_SECONDS)]
    for name in load.names("producing"):
        load.tell_to_stop(name)
    load.take_until_stopped("producing", PATIENCE_SECONDS)
    final = final_read(cluster.bootstrap, topic, partitions)
    ends = {place: records[-1].offset + 1 if records else 0 for place, records in final.items()}
    for group in groups:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (reached := committed(cluster.bootstrap, group, topic, partitions)) != ends:
            if time.monotonic() > deadline:
                found.append(Finding("group stuck", f"{group} is at {_short(reached)} of {_short(ends)}"))
                break
            load.take(0.5)
    load.finish()
    return replace(load.gathered.history(), final=final), found


def judge(history: History, load: ChaosLoad, cluster: Cluster, *, ends_brokers: bool) -> list[Finding]:
    """All findings of a run; `ends_brokers`: a fault was made that is to end a broker."""
    found = check(history, {**ALWAYS, **IDEMPOTENT, **WHOLE, **GROUPS})
    found += [
        Finding("client ended", f"{each.name} with {each.exit_code}: {each.said}") for each in load.failed
    ]
    if not ends_brokers:
        found += [Finding("broker ended", f"{node} with {code}") for node, code in cluster.ended]
    return found


def _short(positions: dict[Place, int]) -> str:
    return ", ".join(f"{place}: {offset}" for place, offset in positions.items())
