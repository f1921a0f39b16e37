"""Named invariants of whole simulated brokers, one per file.

A checker hears what happens in every broker (`on_...`) and raises `InvariantError` the moment its
invariant is broken, or at the end of the run (`finish`).
"""

from typing import TYPE_CHECKING, ClassVar, NamedTuple, NoReturn

from distributedlog.model.ids import Uuid
from distributedlog.replication.partition import Partition
from tests.simulation.checkers import InvariantError

if TYPE_CHECKING:
    from tests.simulation.brokers.cluster import BrokersCluster
    from tests.simulation.brokers.host import BrokerHost


class PartitionKey(NamedTuple):
    topic_id: Uuid
    partition: int


def key_of(partition: Partition) -> PartitionKey:
    return PartitionKey(partition.topic_id, partition.partition_id)


class BrokersChecker:
    """Hears everything and objects to nothing."""

    name: ClassVar[str]

    def __init__(self, cluster: "BrokersCluster") -> None:
        self.cluster = cluster

    def on_role(self, host: "BrokerHost", partition: Partition) -> None:
        """A replica was given a role, another ISR, or other settings."""

    def on_commit(self, host: "BrokerHost", partition: Partition, before: int, after: int) -> None:
        """The high watermark of a replica rose."""

    def on_log_change(self, host: "BrokerHost", partition: Partition) -> None:
        """The log of a replica was truncated, or its start rose."""

    def on_opened(self, host: "BrokerHost") -> None:
        """A process has recovered its logs."""

    def on_crash(self, host: "BrokerHost") -> None:
        """A process is about to end; its disk may be without power already."""

    def on_look(self, host: "BrokerHost", partition: Partition) -> None:
        """Asked of every replica now and then, and at the end."""

    def on_healed(self) -> None:
        """Nothing fails from now on."""

    def finish(self) -> None:
        """The run is over."""

    def fail(self, message: str) -> NoReturn:
        """Ends the run, also where whoever called takes every error for one of its own."""
        self.cluster.failure = InvariantError(self.name, message)
        raise self.cluster.failure
