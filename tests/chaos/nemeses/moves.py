"""Partitions are moved meanwhile, of the topic that is checked and of internal ones: reassignments (KIP-455).

With as many brokers as replicas there is nowhere to go, so a replica is taken away, and comes back when the
fault is healed, or sooner.  Some moves are cancelled.  What cannot be asked just now is left; what was asked
and not answered may be done later.
"""

from collections.abc import Callable, Mapping

from distributedlog.model.ids import TopicPartition
from distributedlog.model.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tests.chaos.nemeses.stage import Nemesis, Stage

MOVES_MAX = 4
REPLICAS_MIN = 2
CANCEL_SHARE = 0.2


class MovePartitions:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._moved: list[TopicPartition] = []

    def begin(self) -> str:
        chance, moves = self._stage.chance, self._stage.cluster.moves
        there = moves.find_present((self._stage.topic, OFFSETS_TOPIC, TRANSACTIONS_TOPIC))
        self._moved = chance.sample(there, min(len(there), chance.randint(1, MOVES_MAX)))
        told = []
        for name in self._moved:
            target = self._draw_target(moves.wanted_count(name))
            done = "moved to" if moves.move(name, target) else "perhaps moved to"
            told.append(f"{name} {done} {','.join(map(str, target))}")
        if self._moved and chance.random() < CANCEL_SHARE:
            moves.cancel(self._moved[0])
            told.append(f"{self._moved[0]} cancelled")
        return "; ".join(told) or "nobody says what there is"

    def _draw_target(self, count: int) -> tuple[int, ...]:
        """Draws as many replicas as there are to be; if every broker has one, REPLICAS_MIN or more."""
        ids, chance = self._stage.cluster.ids, self._stage.chance
        if count == len(ids):
            count = chance.randint(min(REPLICAS_MIN, count), count)
        return tuple(chance.sample(ids, count))

    def heal(self) -> None:
        """Each is to have all of its replicas again; where nobody answers, it gets them when the run ends."""
        ids, moves = self._stage.cluster.ids, self._stage.cluster.moves
        for name in self._moved:
            moves.move(name, tuple(self._stage.chance.sample(ids, moves.wanted_count(name))))


MAKERS: Mapping[str, Callable[[Stage], Nemesis]] = {"move-partitions": MovePartitions}
