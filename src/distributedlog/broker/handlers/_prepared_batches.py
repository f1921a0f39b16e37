"""Batches of a produce request that are prepared before any of it is appended, or are known to be refused."""

from distributedlog.broker.handlers._verification import VerifiedPartitions
from distributedlog.model.buffers import MutableBuffer
from distributedlog.model.errors import DlogError
from distributedlog.replication.partition import Partition
from distributedlog.storage.append import AppendRules


class Preparation:
    """One batch that is prepared beside the loop, and the rules that this is done by."""

    __slots__ = ("_batch", "_error", "_rules")

    def __init__(self, batch: MutableBuffer, rules: AppendRules) -> None:
        self._batch = batch
        self._rules = rules
        self._error: DlogError | None = None

    def try_quickly(self, budget: int) -> int | None:
        """Prepares it if the budget suffices; returns what is left of that, or None."""
        try:
            return self._rules.validate_quickly(self._batch, budget)
        except DlogError as error:
            self._error = error
            return 0  # how far it was opened is not known

    def __call__(self) -> None:
        """Prepares it, on any thread."""
        try:
            self._batch = self._rules.prepare(self._batch)
        except DlogError as error:
            self._error = error

    def is_up_to_date(self, partition: Partition) -> bool:
        return partition.log.rules == self._rules

    def get_batch(self, partition: Partition) -> MutableBuffer:
        """Returns the batch to append; raises what is wrong with it if this broker leads the partition."""
        if self._error is not None:
            partition.check_leader()
            raise self._error
        return self._batch


class Refusal(Preparation):
    """A batch of a transaction that was not confirmed: there is nothing to append."""

    __slots__ = ()

    def __init__(self, error: DlogError) -> None:
        self._error = error

    def is_up_to_date(self, partition: Partition) -> bool:
        return True


class Prepared(dict[int, Preparation]):
    """Batches that are prepared, by the identity of their place in the request, and the verifications that
    the request needs until it has appended."""

    __slots__ = ("verified",)

    def __init__(self, verified: VerifiedPartitions | None = None) -> None:
        super().__init__()
        self.verified = verified

    def close(self) -> None:
        """All is appended, or nothing will be."""
        self.clear()
        if self.verified is not None:
            self.verified.release()
