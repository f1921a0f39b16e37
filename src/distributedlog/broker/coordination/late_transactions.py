"""The transaction coordinators, imported and made when somebody first needs them: as `late_coordinators`."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from distributedlog.model.internal_topics import TRANSACTIONS_TOPIC
from distributedlog.ports.executor import Done
from distributedlog.replication.contract import PartitionSignals
from distributedlog.replication.partition import Partition

if TYPE_CHECKING:
    from distributedlog.broker.coordination.transaction_coordinators import (
        TransactionCoordinator,
        TransactionCoordinators,
    )
    from distributedlog.broker.observability.metrics import Family
    from distributedlog.transactions.requests import Reply, Request


class LateTransactions:
    """Makes the coordinators when they are first needed.  On the data loop."""

    def __init__(self, make: "Callable[[], TransactionCoordinators]", signals: PartitionSignals) -> None:
        self._make = make
        self._made: TransactionCoordinators | None = None
        signals.state_changed.append(self._state_changed)

    def load(self) -> "TransactionCoordinators":
        if self._made is None:
            self._made = self._make()
        return self._made

    def _state_changed(self, partition: Partition) -> None:
        """The coordinators listen from when they are made, and get this very change as well: a
        listener that is added while others are called comes after them."""
        if self._made is None and partition.topic == TRANSACTIONS_TOPIC and partition.is_leader:
            self.load()

    def submit(
        self, transactional_id: str, request: "Request", deadline_ms: int, done: "Done[Reply]"
    ) -> None:
        self.load().submit(transactional_id, request, deadline_ms, done)

    def all_active(self) -> "Iterator[TransactionCoordinator]":
        return self.load().all_active()

    @property
    def is_loading(self) -> bool:
        return self._made is not None and self._made.is_loading

    def families(self) -> "Iterator[Family]":
        """Yields nothing where nobody has needed them yet: most clusters have no transactions."""
        return iter(()) if self._made is None else self._made.metrics.families()

    def brokers_changed(self) -> None:
        if self._made is not None:
            self._made.brokers_changed()

    def close(self) -> None:
        if self._made is not None:
            self._made.close()
