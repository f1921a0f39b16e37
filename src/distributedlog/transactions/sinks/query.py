"""One query that writes through a sink: the batch that it has open, who writes in it, and what was committed.

Each attempt of a task writes under a *lease*: a producer id of the query's pool, with an epoch that nobody
has had.  An attempt never commits.  The driver names the winners when the batch ends, and one record decides:
the winners' records are committed, those of all other attempts aborted, and the batch is the query's last
committed one (its *marker*, which never expires, but with the id of a query that nobody goes on with).

    state            what is known                                     joins, ends
    ONGOING          attempts hold leases of a batch                   are served
    PREPARE_COMMIT   it is decided: winners commit, others abort       wait
    PREPARE_ABORT    likewise: all abort                               joins wait, an end is refused
    COMPLETE_COMMIT  every marker is written; every lease is free      a later batch may begin
    COMPLETE_ABORT   likewise                                          any batch behind the last committed one

A *token* rises cluster-wide with each batch that a driver begins.  Of two drivers the one with the higher
token counts, and the other is fenced; `token` is the highest that was seen, `batch_token` that of the batch.

**Epochs.**  A lease has epoch e, its markers e + 1, the next lease of the id e + 2: so whatever comes late, a
produce or a marker, carries an epoch that partitions know to be over.  An id is leased again only when its
markers are written, and leaves the pool when its epochs have run out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from distributedlog.model.errors import ConcurrentTransactionsError, DlogError, InvalidTransactionStateError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.sink_transaction import SINK_ID_PREFIX
from distributedlog.statemachine.pending import Producer
from distributedlog.transactions.transaction import EPOCH_GIVEN_MAX, NO_TIME, TransactionState

NO_BATCH: Final = -1
FIRST_EPOCH: Final = 0


class Event(Enum):
    JOIN = "an attempt joins"
    COMMIT = "the driver ends the batch"
    ABORT = "the batch is aborted: by its driver, its timeout, a higher token or a wrong winner"
    WRITTEN = "every marker is written"


_S, _E = TransactionState, Event
TRANSITIONS: Final[Mapping[tuple[TransactionState | None, Event], TransactionState]] = {
    (None, _E.JOIN): _S.ONGOING,
    (_S.ONGOING, _E.JOIN): _S.ONGOING,
    (_S.ONGOING, _E.COMMIT): _S.PREPARE_COMMIT,
    (_S.ONGOING, _E.ABORT): _S.PREPARE_ABORT,
    (_S.PREPARE_COMMIT, _E.WRITTEN): _S.COMPLETE_COMMIT,
    (_S.PREPARE_ABORT, _E.WRITTEN): _S.COMPLETE_ABORT,
    (_S.COMPLETE_COMMIT, _E.JOIN): _S.ONGOING,
    (_S.COMPLETE_ABORT, _E.JOIN): _S.ONGOING,
}
"""What may become of a query; None: nobody knows it yet."""

REFUSALS: Final[Mapping[tuple[TransactionState | None, Event], type[DlogError]]] = {
    (None, _E.COMMIT): InvalidTransactionStateError,
    (None, _E.ABORT): InvalidTransactionStateError,
    (None, _E.WRITTEN): InvalidTransactionStateError,
    (_S.ONGOING, _E.WRITTEN): InvalidTransactionStateError,
    (_S.PREPARE_COMMIT, _E.JOIN): ConcurrentTransactionsError,
    (_S.PREPARE_COMMIT, _E.COMMIT): ConcurrentTransactionsError,  # the same end waits, and is answered
    (_S.PREPARE_COMMIT, _E.ABORT): InvalidTransactionStateError,
    (_S.PREPARE_ABORT, _E.JOIN): ConcurrentTransactionsError,
    (_S.PREPARE_ABORT, _E.COMMIT): InvalidTransactionStateError,
    (_S.PREPARE_ABORT, _E.ABORT): InvalidTransactionStateError,
    (_S.COMPLETE_COMMIT, _E.COMMIT): InvalidTransactionStateError,  # the same end is answered
    (_S.COMPLETE_COMMIT, _E.ABORT): InvalidTransactionStateError,
    (_S.COMPLETE_COMMIT, _E.WRITTEN): InvalidTransactionStateError,
    (_S.COMPLETE_ABORT, _E.COMMIT): InvalidTransactionStateError,
    (_S.COMPLETE_ABORT, _E.ABORT): InvalidTransactionStateError,
    (_S.COMPLETE_ABORT, _E.WRITTEN): InvalidTransactionStateError,
}
"""Every other pair, and how it is answered."""

SINK_STATES: Final = tuple(state for state in TransactionState if state is not TransactionState.EMPTY)
DECIDED: Final = frozenset({_S.PREPARE_COMMIT, _S.COMPLETE_COMMIT})
ABORTED: Final = frozenset({_S.PREPARE_ABORT, _S.COMPLETE_ABORT})


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkQuery:
    """What is written down of a query itself."""

    token: int
    """The highest token that was seen."""
    batch_token: int
    """The token under which the batch was opened."""
    batch_id: int
    state: TransactionState
    timeout_ms: int
    winners: tuple[Producer, ...] = ()
    """Whom the decision commits, in order; kept so that the same end gets the same answer."""
    committed_batch_id: int = NO_BATCH
    start_ms: int = NO_TIME
    last_update_ms: int = NO_TIME


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A producer id of a query: held by an attempt, or free."""

    epoch: int
    attempt_id: str = ""
    """Empty: the id is free."""
    partitions: frozenset[TopicPartition] = frozenset()
    last_update_ms: int = NO_TIME

    @property
    def is_open(self) -> bool:
        return bool(self.attempt_id)

    @property
    def marker_epoch(self) -> int:
        return self.epoch + 1


def sink_id_of(query_id: str) -> str:
    """Returns the transactional id under which the attempts of a query produce."""
    return SINK_ID_PREFIX + query_id


def is_sink_id(transactional_id: str) -> bool:
    return transactional_id.startswith(SINK_ID_PREFIX)


def query_id_of(sink_id: str) -> str:
    return sink_id.removeprefix(SINK_ID_PREFIX)


def move(state: TransactionState | None, event: Event) -> TransactionState:
    """Returns the next state; raises how the event is answered where there is none."""
    refusal = REFUSALS.get((state, event))
    if refusal is not None:
        label = "not known" if state is None else state.label
        raise refusal(f"the query is {label}: {event.value} cannot happen now")
    return TRANSITIONS[state, event]


# --- what becomes of a query -------------------------------------------------------------------


def open_batch(
    query: SinkQuery | None, token: int, batch_id: int, timeout_ms: int, wall_ms: int
) -> SinkQuery:
    """The first attempt of a batch joins."""
    return SinkQuery(
        token=token,
        batch_token=token,
        batch_id=batch_id,
        state=move(None if query is None else query.state, Event.JOIN),
        timeout_ms=timeout_ms,
        committed_batch_id=NO_BATCH if query is None else query.committed_batch_id,
        start_ms=wall_ms,
        last_update_ms=wall_ms,
    )


def decide(query: SinkQuery, winners: tuple[Producer, ...], wall_ms: int) -> SinkQuery:
    """The decision: winners and marker in one record."""
    return replace(
        query,
        state=move(query.state, Event.COMMIT),
        winners=winners,
        committed_batch_id=query.batch_id,
        last_update_ms=wall_ms,
    )


def abort_batch(query: SinkQuery, token: int, wall_ms: int) -> SinkQuery:
    """All attempts are aborted; `token` is the query's own, or the higher one that fences it."""
    return replace(query, state=move(query.state, Event.ABORT), token=token, last_update_ms=wall_ms)


def complete(query: SinkQuery, wall_ms: int) -> SinkQuery:
    return replace(query, state=move(query.state, Event.WRITTEN), last_update_ms=wall_ms)


# --- what becomes of a lease -------------------------------------------------------------------


def lease_new(attempt_id: str, wall_ms: int) -> Lease:
    return Lease(epoch=FIRST_EPOCH, attempt_id=attempt_id, last_update_ms=wall_ms)


def lease_again(free: Lease, attempt_id: str, wall_ms: int) -> Lease:
    assert not free.is_open, "only an id whose markers are written is leased again"
    return Lease(epoch=free.epoch + 1, attempt_id=attempt_id, last_update_ms=wall_ms)


def release(lease: Lease, wall_ms: int) -> Lease | None:
    """The markers are written; None: the id has no further epochs for a lease and its markers."""
    if lease.marker_epoch + 1 >= EPOCH_GIVEN_MAX:
        return None
    return Lease(epoch=lease.marker_epoch, last_update_ms=wall_ms)
