"""One transactional id: its producer, and the transaction that it has open, if any.

    state            what is known                                   clients may
    EMPTY            a producer has the id, and no transaction       begin one, end nothing
    ONGOING          partitions are written to                       add more, commit, abort
    PREPARE_COMMIT   it is decided; markers are being written        wait (CONCURRENT_TRANSACTIONS)
    PREPARE_ABORT    likewise                                        wait
    COMPLETE_COMMIT  every partition has its marker                  begin the next one
    COMPLETE_ABORT   likewise                                        begin the next one

`TRANSITIONS` says what may become of what.  A decision is made once, with the record of a PREPARE state: from
there only the markers lead on, however often a coordinator dies.  An open transaction has one producer id
and epoch, and everything else that comes under its transactional id is refused by them:

| the id is                                                             | the answer                  |
|-----------------------------------------------------------------------|-----------------------------|
| not known, or has another producer id                                 | INVALID_PRODUCER_ID_MAPPING |
| known with another epoch, or with the last one, which nobody is given | PRODUCER_FENCED             |

**Epochs.**  InitProducerId raises the epoch.  A transaction that the coordinator aborts itself (its time is
over, or another producer takes the id) raises it as well, and the markers carry the raised one, so partitions
refuse the producer too.  At version 2 (KIP-890) every end raises it: the client that ended the transaction is
told the new epoch, and no message of an earlier transaction can be taken for one of a later.  `version` is
that of the client that ended it, 0 where the coordinator did, so only that client's retry is answered.

**Epochs run out.**  32766 is the last one that is given to a producer, so that 32767 is left to fence it
with.  Then a new producer id follows with epoch 0: at InitProducerId, or when the transaction that used the
last epoch is complete (`next_producer_id`; `previous_producer_id` lets a retry find its answer).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import Final

from distributedlog.model.errors import (
    ConcurrentTransactionsError,
    DlogError,
    InvalidProducerIdMappingError,
    InvalidTransactionStateError,
    ProducerFencedError,
)
from distributedlog.model.ids import TopicPartition
from distributedlog.statemachine.pending import Producer

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
EPOCH_MAX: Final = 32_767
"""Only used to fence a producer."""
EPOCH_GIVEN_MAX: Final = EPOCH_MAX - 1
VERSION_CLASSIC: Final = 0
VERSION_EPOCH_PER_TRANSACTION: Final = 2
"""The level of `transaction.version` from which every end raises the epoch."""


class TransactionState(IntEnum):
    """The states, with the numbers that they have in records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def label(self) -> str:
        """The name as Kafka's tools spell it."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class Event(Enum):
    INIT = "a producer takes the id"
    ADD = "partitions are added"
    COMMIT = "the producer commits"
    ABORT = "the producer aborts"
    FENCE = "the coordinator aborts, and fences the producer"
    WRITTEN = "every partition has its marker"
    EXPIRE = "nothing was done with the id for long"


_S, _E = TransactionState, Event
TRANSITIONS: Final[Mapping[tuple[TransactionState, Event], TransactionState | None]] = {
    (_S.EMPTY, _E.INIT): _S.EMPTY,
    (_S.EMPTY, _E.ADD): _S.ONGOING,
    (_S.EMPTY, _E.ABORT): _S.COMPLETE_ABORT,  # at version 2: there is nothing to abort, but an epoch to raise
    (_S.EMPTY, _E.EXPIRE): None,
    (_S.ONGOING, _E.ADD): _S.ONGOING,
    (_S.ONGOING, _E.COMMIT): _S.PREPARE_COMMIT,
    (_S.ONGOING, _E.ABORT): _S.PREPARE_ABORT,
    (_S.ONGOING, _E.FENCE): _S.PREPARE_ABORT,
    (_S.PREPARE_COMMIT, _E.WRITTEN): _S.COMPLETE_COMMIT,
    (_S.PREPARE_ABORT, _E.WRITTEN): _S.COMPLETE_ABORT,
    (_S.COMPLETE_COMMIT, _E.INIT): _S.EMPTY,
    (_S.COMPLETE_COMMIT, _E.ADD): _S.ONGOING,
    (_S.COMPLETE_COMMIT, _E.ABORT): _S.COMPLETE_ABORT,  # at version 2
    (_S.COMPLETE_COMMIT, _E.EXPIRE): None,
    (_S.COMPLETE_ABORT, _E.INIT): _S.EMPTY,
    (_S.COMPLETE_ABORT, _E.ADD): _S.ONGOING,
    (_S.COMPLETE_ABORT, _E.ABORT): _S.COMPLETE_ABORT,  # at version 2
    (_S.COMPLETE_ABORT, _E.EXPIRE): None,
}
"""What may become of a transaction; None: the id is forgotten."""

REFUSALS: Final[Mapping[tuple[TransactionState, Event], type[DlogError]]] = {
    (_S.EMPTY, _E.COMMIT): InvalidTransactionStateError,
    (_S.EMPTY, _E.FENCE): InvalidTransactionStateError,
    (_S.EMPTY, _E.WRITTEN): InvalidTransactionStateError,
    (_S.ONGOING, _E.INIT): ConcurrentTransactionsError,  # it is fenced first
    (_S.ONGOING, _E.WRITTEN): InvalidTransactionStateError,
    (_S.ONGOING, _E.EXPIRE): InvalidTransactionStateError,
    (_S.PREPARE_COMMIT, _E.INIT): ConcurrentTransactionsError,
    (_S.PREPARE_COMMIT, _E.ADD): ConcurrentTransactionsError,
    (_S.PREPARE_COMMIT, _E.COMMIT): ConcurrentTransactionsError,
    (_S.PREPARE_COMMIT, _E.ABORT): InvalidTransactionStateError,
    (_S.PREPARE_COMMIT, _E.FENCE): InvalidTransactionStateError,
    (_S.PREPARE_COMMIT, _E.EXPIRE): InvalidTransactionStateError,
    (_S.PREPARE_ABORT, _E.INIT): ConcurrentTransactionsError,
    (_S.PREPARE_ABORT, _E.ADD): ConcurrentTransactionsError,
    (_S.PREPARE_ABORT, _E.COMMIT): InvalidTransactionStateError,
    (_S.PREPARE_ABORT, _E.ABORT): ConcurrentTransactionsError,
    (_S.PREPARE_ABORT, _E.FENCE): InvalidTransactionStateError,
    (_S.PREPARE_ABORT, _E.EXPIRE): InvalidTransactionStateError,
    (_S.COMPLETE_COMMIT, _E.COMMIT): InvalidTransactionStateError,
    (_S.COMPLETE_COMMIT, _E.FENCE): InvalidTransactionStateError,
    (_S.COMPLETE_COMMIT, _E.WRITTEN): InvalidTransactionStateError,
    (_S.COMPLETE_ABORT, _E.COMMIT): InvalidTransactionStateError,
    (_S.COMPLETE_ABORT, _E.FENCE): InvalidTransactionStateError,
    (_S.COMPLETE_ABORT, _E.WRITTEN): InvalidTransactionStateError,
}
"""Every other pair, and how it is answered."""

PREPARED: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
COMPLETE: Final = frozenset({_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """All that is written down of a transactional id."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    last_update_ms: int = NO_TIME
    start_ms: int = NO_TIME
    version: int = VERSION_CLASSIC
    """The version of the client that ended the transaction, or adds to it; 0 if the coordinator did."""
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID

    @property
    def producer(self) -> Producer:
        return Producer(self.producer_id, self.producer_epoch)

    @property
    def is_exhausted(self) -> bool:
        """Whether no further epoch can be given to a producer."""
        return self.producer_epoch >= EPOCH_GIVEN_MAX

    @property
    def next_producer(self) -> Producer:
        """The producer that goes on when the transaction is complete."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return Producer(self.next_producer_id, 0)
        return self.producer


def move(state: TransactionState, event: Event) -> TransactionState:
    """Returns the next state; raises how the event is answered where there is none."""
    refusal = REFUSALS.get((state, event))
    if refusal is not None:
        raise refusal(f"the transaction is {state.label}: {event.value} cannot happen now")
    following = TRANSITIONS[state, event]
    assert following is not None, "an id that expires has no next state"
    return following


# --- who asks ----------------------------------------------------------------------------------


def check_producer(transaction: Transaction | None, producer: Producer) -> Transaction:
    """Returns the transaction if it is this producer's.  One that was told how it goes on, and comes before
    the transaction is complete, has to wait."""
    if transaction is not None and _goes_on(transaction, producer):
        raise ConcurrentTransactionsError("the transaction before is being ended: ask again")
    known = check_producer_id(transaction, producer)
    if producer.producer_epoch != known.producer_epoch or producer.producer_epoch == EPOCH_MAX:
        raise fenced(known, producer)
    return known


def check_producer_id(transaction: Transaction | None, producer: Producer) -> Transaction:
    if transaction is None:
        raise InvalidProducerIdMappingError("the transactional id is not known, or has expired")
    if transaction.producer_id != producer.producer_id:
        raise InvalidProducerIdMappingError(
            f"the transactional id has the producer id {transaction.producer_id}, not {producer.producer_id}"
        )
    return transaction


def _goes_on(transaction: Transaction, producer: Producer) -> bool:
    is_told = transaction.version >= VERSION_EPOCH_PER_TRANSACTION and transaction.state in PREPARED
    return is_told and producer == transaction.next_producer


def fenced(transaction: Transaction, producer: Producer) -> ProducerFencedError:
    return ProducerFencedError(
        f"the epoch {producer.producer_epoch} is not that of the producer, {transaction.producer_epoch}"
    )


# --- what becomes of it ------------------------------------------------------------------------


def add_partitions(
    transaction: Transaction, partitions: frozenset[TopicPartition], version: int, wall_ms: int
) -> Transaction:
    state = move(transaction.state, Event.ADD)
    begins = transaction.state is not TransactionState.ONGOING
    return replace(
        transaction,
        state=state,
        partitions=transaction.partitions | partitions,
        start_ms=wall_ms if begins else transaction.start_ms,
        last_update_ms=wall_ms,
        version=version,
    )


def end(
    transaction: Transaction, event: Event, version: int, new_producer_id: int | None, wall_ms: int
) -> Transaction:
    """The producer commits or aborts; at version 2 its epoch is raised.  `new_producer_id` is for a producer
    whose epochs have run out."""
    state = move(transaction.state, event)
    ended = replace(transaction, state=state, last_update_ms=wall_ms, version=version)
    if version >= VERSION_EPOCH_PER_TRANSACTION:
        ended = replace(ended, producer_epoch=transaction.producer_epoch + 1)
        if transaction.is_exhausted:
            assert new_producer_id is not None, "whoever asks brings an id when the epochs have run out"
            ended = replace(ended, next_producer_id=new_producer_id)
    if state in COMPLETE:  # there was nothing to write markers to
        return _go_on(replace(ended, start_ms=wall_ms))
    return ended


def fence(transaction: Transaction, wall_ms: int) -> Transaction:
    """The coordinator aborts.  The raised epoch is told to nobody."""
    return replace(
        transaction,
        state=move(transaction.state, Event.FENCE),
        producer_epoch=min(transaction.producer_epoch + 1, EPOCH_MAX),
        last_update_ms=wall_ms,
        version=VERSION_CLASSIC,
    )


def complete(transaction: Transaction, wall_ms: int) -> Transaction:
    """Every marker is written: the next transaction may begin."""
    state = move(transaction.state, Event.WRITTEN)
    return _go_on(replace(transaction, state=state, partitions=frozenset(), last_update_ms=wall_ms))


def _go_on(transaction: Transaction) -> Transaction:
    """Gives the next producer id to whoever goes on, where there is one."""
    if transaction.next_producer_id == NO_PRODUCER_ID:
        return transaction
    return replace(
        transaction,
        producer_id=transaction.next_producer_id,
        producer_epoch=0,
        previous_producer_id=transaction.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )


def initialize(transaction: Transaction, producer: Producer, timeout_ms: int, wall_ms: int) -> Transaction:
    """A producer takes the id, with this producer id and epoch."""
    state = move(transaction.state, Event.INIT)
    is_new_id = producer.producer_id != transaction.producer_id
    return Transaction(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        timeout_ms=timeout_ms,
        state=state,
        last_update_ms=wall_ms,
        previous_producer_id=transaction.producer_id if is_new_id else transaction.previous_producer_id,
    )
