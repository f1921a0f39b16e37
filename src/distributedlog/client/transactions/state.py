"""Where a producer's transactions stand, and what an error means to them.  Pure.

    new --(initialized)--> ready --(begin)--> open --(ending)--> ending --(ended)--> ready
                                               |                    ^
                                               +--(failed)--> abortable --(ending: abort only)
    any --(an error that ends the producer)--> dead

| error                                         | then                                                       |
|-----------------------------------------------|------------------------------------------------------------|
| one that passes (`errors.is_retriable`)       | is tried again; it comes here only when its time is over   |
| of a record, a partition, a group's member    | abortable: the program aborts, and may do it all again     |
| another producer has the transactional id, or | dead: the program makes another producer, which begins     |
| its epoch is over, as the coordinator says    | behind what was committed (`ApplicationRecoverableError`)  |
| not allowed, not served, not configured       | dead: a person has to change something                     |

A partition leader that calls the epoch old is not believed at once: the coordinator decides when the abort
reaches it.

**Two flows.**  In the classic one a partition is added to the transaction before the first record for it is
sent, and sequences go on from transaction to transaction.  With `transaction.version` 2 (KIP-890) the first
record adds its partition, and every end gives the producer another epoch.

**Invariants.**  Records are sent only while a transaction is open.  A transaction in which anything failed is
never committed.  Once a commit was asked for, only a commit can follow: nobody knows yet what came of it.
"""

from collections.abc import Collection
from enum import Enum
from typing import Final

from distributedlog.client.accumulator import NOBODY, Identity
from distributedlog.client.errors import code_of
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    ApplicationRecoverableError,
    DlogError,
    InvalidTransactionStateError,
    TransactionAbortableError,
)
from distributedlog.model.ids import TopicPartition

DEADLY: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
"""Whoever says these, the producer is of no use any more."""
DEADLY_BY_COORDINATOR: Final = DEADLY | {
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT,
}


class State(Enum):
    NEW = "not initialized"
    READY = "without a transaction"
    OPEN = "in a transaction"
    ABORTABLE = "in a transaction that can only be aborted"
    ENDING = "ending a transaction"
    DEAD = "of no use any more"


class TransactionState:
    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.state = State.NEW
        self.identity = NOBODY
        self.is_implicit = False
        """Whether the first record adds its partition: `transaction.version` 2."""
        self.is_started = False
        """Whether the coordinator may know of the transaction."""
        self.needs_epoch = False
        """Whether sequences are in doubt, so that the next transaction needs another epoch."""
        self.error: DlogError | None = None
        """Why nothing more can be sent."""
        self.is_committing: bool | None = None
        """How the transaction is being ended."""
        self._partitions: set[TopicPartition] = set()
        self._groups: set[str] = set()

    # --- the ways through ----------------------------------------------------------------------

    def initialized(self, identity: Identity) -> None:
        self.identity = identity
        self._to_ready()

    def begin(self, *, is_implicit: bool) -> None:
        if self.state is State.DEAD:
            raise self._reason()
        if self.state is not State.READY:
            raise InvalidTransactionStateError(f"a transaction cannot begin: the producer is {self._words}")
        self.is_implicit = is_implicit
        self.state = State.OPEN

    def ending(self, *, commits: bool) -> None:
        """The end is about to be asked for; the same end may be asked for again."""
        if self.state is State.DEAD:
            raise self._reason()
        if self.state is State.ENDING and commits is not self.is_committing:
            raise InvalidTransactionStateError(
                "nobody knows yet whether the commit was done: commit again, or close the producer"
            )
        if self.state is State.ABORTABLE and commits:
            raise self._reason()
        if self.state not in (State.OPEN, State.ABORTABLE, State.ENDING):
            what = "commit" if commits else "abort"
            raise InvalidTransactionStateError(
                f"there is no transaction to {what}: the producer is {self._words}"
            )
        self.state = State.ENDING
        self.is_committing = commits

    def ended(self, identity: Identity) -> None:
        self.identity = identity
        self._to_ready()

    def _to_ready(self) -> None:
        self.state = State.READY
        self.error = self.is_committing = None
        self.is_started = self.needs_epoch = False
        self._partitions.clear()
        self._groups.clear()

    # --- while it is open ----------------------------------------------------------------------

    @property
    def is_sending(self) -> bool:
        return self.state is State.OPEN

    @property
    def is_ended(self) -> bool:
        return self.state not in (State.OPEN, State.ABORTABLE, State.ENDING)

    def check_sending(self) -> None:
        """Raises unless records, and offsets, may be sent."""
        if self.state is State.OPEN:
            return
        if self.error is not None:
            raise self._reason()
        raise InvalidTransactionStateError(
            f"a producer with a transactional_id sends within a transaction, and it is {self._words}"
        )

    def to_add(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Returns those that the coordinator has to be told of before anything is sent to them."""
        if self.is_implicit:
            self.is_started = True
            return []
        return [each for each in partitions if each not in self._partitions]

    def added(self, partitions: Collection[TopicPartition]) -> None:
        self._partitions.update(partitions)
        self.is_started = True

    def must_add_group(self, group_id: str) -> bool:
        if self.is_implicit:
            self.is_started = True
            return False
        return group_id not in self._groups

    def added_group(self, group_id: str) -> None:
        self._groups.add(group_id)
        self.is_started = True

    # --- errors --------------------------------------------------------------------------------

    def failed(self, error: DlogError, *, by_coordinator: bool = False) -> None:
        """Something of the transaction failed for good."""
        self.needs_epoch = True
        if code_of(error) in (DEADLY_BY_COORDINATOR if by_coordinator else DEADLY):
            self.die(error)
        elif self.state is State.OPEN:
            self.state, self.error = State.ABORTABLE, error

    def die(self, error: DlogError) -> None:
        self.state, self.error = State.DEAD, error

    def _reason(self) -> DlogError:
        assert self.error is not None
        if self.state is not State.DEAD:
            return TransactionAbortableError(
                f"the transaction can only be aborted; then it may be done again: {self.error}"
            )
        if isinstance(self.error, ApplicationRecoverableError):
            return type(self.error)(f"{self.error}; close this producer and make another one")
        return self.error

    @property
    def _words(self) -> str:
        return self.state.value
