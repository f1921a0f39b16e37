"""The group coordinators, imported and made when a group first needs them.

    this broker leads a partition of `__consumer_offsets`   at once: its groups are read back
    a request for a group comes, or a scrape                then; it finds no groups
    neither                                                 when the node has served its first clients

A node's start does not wait for what a cluster without groups does not use: a tenth of what it imports.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from distributedlog.model.internal_topics import OFFSETS_TOPIC
from distributedlog.ports.executor import Done
from distributedlog.replication.contract import PartitionSignals
from distributedlog.replication.partition import Partition

if TYPE_CHECKING:
    from distributedlog.broker.coordination.coordinators import Coordinator, GroupCoordinators
    from distributedlog.broker.observability.metrics import Family
    from distributedlog.groups.requests import Reply, Request
    from distributedlog.statemachine import TransactionEnd


class LateCoordinators:
    """Makes the coordinators when they are first needed.  On the data loop."""

    def __init__(self, make: "Callable[[], GroupCoordinators]", signals: PartitionSignals) -> None:
        self._make = make
        self._made: GroupCoordinators | None = None
        signals.state_changed.append(self._state_changed)

    def load(self) -> "GroupCoordinators":
        if self._made is None:
            self._made = self._make()
        return self._made

    def _state_changed(self, partition: Partition) -> None:
        """The coordinators listen from when they are made, and get this very change as well: a
        listener that is added while others are called comes after them."""
        if self._made is None and partition.topic == OFFSETS_TOPIC and partition.is_leader:
            self.load()

    # --- requests ------------------------------------------------------------------------------

    def submit(self, group_id: str, request: "Request", deadline_ms: int, done: "Done[Reply]") -> None:
        self.load().submit(group_id, request, deadline_ms, done)

    def end_transaction(
        self, partition: Partition, end: "TransactionEnd", deadline_ms: int, done: "Done[Reply]"
    ) -> None:
        self.load().end_transaction(partition, end, deadline_ms, done)

    def all_active(self) -> "Iterator[Coordinator]":
        return self.load().all_active()

    @property
    def is_loading(self) -> bool:
        return self.load().is_loading

    def unreadable_counts(self) -> Mapping[int, int]:
        return {} if self._made is None else self._made.unreadable_counts()

    def families(self) -> "Iterator[Family]":
        return self.load().metrics.families()

    # --- events --------------------------------------------------------------------------------

    def topics_removed(self, topics: Iterable[str]) -> None:
        if self._made is not None:
            self._made.topics_removed(topics)

    def close(self) -> None:
        if self._made is not None:
            self._made.close()
