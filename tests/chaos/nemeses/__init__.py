"""The faults by name.

A nemesis begins its fault and says what it did, and heals what it did itself: another fault may be under way.
`begin` is called once and `heal` once after it, by one thread, for each fault that was drawn.
"""

from collections.abc import Callable, Mapping

from tests.chaos.nemeses import clocks, disks, losing, moves, networks, processes, topics
from tests.chaos.nemeses.stage import Nemesis, Stage

MAKERS: Mapping[str, Callable[[Stage], Nemesis]] = {
    **processes.MAKERS,
    **networks.MAKERS,
    **disks.MAKERS,
    **clocks.MAKERS,
    **topics.MAKERS,
    **moves.MAKERS,
    **losing.MAKERS,
}
ENDING = frozenset(disks.MAKERS)
"""Faults after which a broker may end by itself."""
