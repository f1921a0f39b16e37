"""Records of open transactions, held until a marker says what becomes of them.

    records of a transaction    held, by producer, in the order of the log
    its COMMIT marker           they are handed out, to be replayed as one entry
    its ABORT marker            they are dropped
    any other record            is replayed at once, and supersedes what is held with the same key

A marker ends what its producer has open, in its own epoch or an earlier one: a coordinator that fences a
producer ends its transaction with a higher epoch.  A marker of an earlier epoch than what is held is a late
one of a transaction before, and a marker of a producer that holds nothing had nothing to end: both do
nothing.

Of two records with the same key the one that stands later in the log counts, whenever their transactions end:
that is the one that compaction keeps, so whoever reads the compacted log must come to the same.

Nothing here is kept anywhere else: whoever loads the log reads the records again, because the log keeps
everything from the first open transaction on.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

RecordT = TypeVar("RecordT")


class Producer(NamedTuple):
    producer_id: int
    producer_epoch: int


class TransactionEnd(NamedTuple):
    """What a marker says."""

    producer: Producer
    is_commit: bool
    coordinator_epoch: int = 0
    """The epoch of the transaction coordinator that decided it."""


class _Held(NamedTuple, Generic[RecordT]):
    record: RecordT
    number: int
    """Which of all that were replayed it is: later ones have higher numbers."""


class _Open(Generic[RecordT]):
    """The transaction of one producer."""

    __slots__ = ("by_key", "producer_epoch")

    def __init__(self, producer_epoch: int) -> None:
        self.producer_epoch = producer_epoch
        self.by_key: dict[Hashable, _Held[RecordT]] = {}


class PendingTransactions(Generic[RecordT]):
    """The open transactions of one log.  `key_of` is what compaction goes by."""

    __slots__ = ("_held", "_key_of", "_number", "_open")

    def __init__(self, key_of: Callable[[RecordT], Hashable]) -> None:
        self._key_of = key_of
        self._open: dict[int, _Open[RecordT]] = {}
        self._held: dict[Hashable, int] = {}
        """How many transactions hold a record with this key."""
        self._number = 0

    def __len__(self) -> int:
        return len(self._open)

    def holds(self, key: Hashable) -> bool:
        """Returns whether an open transaction has a record with this key."""
        return key in self._held

    def records(self) -> Iterator[RecordT]:
        """Yields everything that is held."""
        return (held.record for each in self._open.values() for held in each.by_key.values())

    # --- replaying -----------------------------------------------------------------------------

    def hold(self, records: Iterable[RecordT], producer: Producer) -> None:
        transaction = self._open.get(producer.producer_id)
        if transaction is None:
            transaction = self._open[producer.producer_id] = _Open(producer.producer_epoch)
        transaction.producer_epoch = max(transaction.producer_epoch, producer.producer_epoch)
        for record in records:
            self._number += 1
            key = self._key_of(record)
            if transaction.by_key.pop(key, None) is None:  # the later one also stands behind
                self._held[key] = self._held.get(key, 0) + 1
            transaction.by_key[key] = _Held(record, self._number)

    def supersede(self, records: Iterable[RecordT]) -> None:
        """Drops what is held with the keys of these records, which stand behind it in the log."""
        if self._open:
            for record in records:
                self._drop(self._key_of(record), self._number)

    def end(self, end: TransactionEnd) -> Sequence[RecordT]:
        """Ends a transaction, and returns the records that are committed by it."""
        producer_id, producer_epoch = end.producer
        transaction = self._open.get(producer_id)
        if transaction is None or transaction.producer_epoch > producer_epoch:
            return ()
        del self._open[producer_id]
        for key in transaction.by_key:
            self._let_go(key)
        if not end.is_commit:
            return ()
        for key, held in transaction.by_key.items():
            self._drop(key, held.number)
        return [held.record for held in transaction.by_key.values()]

    def _drop(self, key: Hashable, number: int) -> None:
        """What is held with this key, up to the record of this number, counts no more."""
        for transaction in self._open.values():
            held = transaction.by_key.get(key)
            if held is not None and held.number <= number:
                del transaction.by_key[key]
                self._let_go(key)

    def _let_go(self, key: Hashable) -> None:
        self._held[key] -= 1
        if not self._held[key]:
            del self._held[key]


NO_PENDING: Final[PendingTransactions[Any]] = PendingTransactions(hash)
"""What a log holds that has no transactions."""
