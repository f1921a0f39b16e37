"""What a nemesis works on, and what it has to offer."""

from dataclasses import dataclass
from random import Random
from typing import Protocol

from tests.chaos.cluster import TRANSACTIONS_PARTITIONS, Cluster


@dataclass(frozen=True, slots=True)
class Stage:
    cluster: Cluster
    chance: Random
    topic: str
    partitions: int
    group: str

    def any_broker(self) -> int:
        return self.chance.choice(self.cluster.ids)

    def leader(self) -> int:
        """The leader of a partition that is drawn; any broker where nobody knows."""
        partition = self.chance.randrange(self.partitions)
        return self.cluster.leader(self.topic, partition) or self.any_broker()

    def controller(self) -> int:
        return self.cluster.controller() or self.any_broker()

    def coordinator(self) -> int:
        return self.cluster.coordinator(self.group) or self.any_broker()

    def transaction_coordinator(self) -> int:
        """The coordinator of transactional ids of a partition that is drawn."""
        partition = self.chance.randrange(TRANSACTIONS_PARTITIONS)
        return self.cluster.transaction_coordinator(partition) or self.any_broker()


class Nemesis(Protocol):
    def begin(self) -> str:
        """Begins the fault; says what was done to whom."""
        ...

    def heal(self) -> None: ...
