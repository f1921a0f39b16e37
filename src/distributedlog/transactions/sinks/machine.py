"""The batches of sinks, as the part of a transaction coordinator that keeps them.

    DURABLE, changed by `replay` alone     of each query what its last record says, and of each producer id in
                                           its pool (`query.SinkQuery`, `query.Lease`)
    SOFT STATE                             when a batch times out, counted from the last sign of life of
                                           any attempt; when pools are looked through for ids to forget

A batch is decided by its query's record in a PREPARE state.  That markers are to be written is an effect for
each lease, which comes back as a request when it is done and is the lease's record as a free one; with the
last of them the query's COMPLETE record is written, and who waits for the end is told (`SinkCompleted`).

What a crash does.  Before the decision: the next coordinator knows the leases, and the batch goes on, or its
timeout or a higher token aborts it.  After it: the next coordinator has the markers of all leases written
that are not free; the batch that is sent again is skipped.

**Invariants.**  A lease is open only while its query is ONGOING or in a PREPARE state.  Once a query is in a
PREPARE state no lease is given and no partition added.  An id is leased only while it is free.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Final

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    InvalidProducerIdMappingError,
    InvalidRequestError,
    InvalidTransactionStateError,
    OverloadedError,
    ProducerFencedError,
    RecordTooLargeError,
    TransactionalIdNotFoundError,
)
from distributedlog.model.internal_topics import INTERNAL_TOPICS
from distributedlog.protocol.messages.sink_transaction import ONE_RUN_PREFIX
from distributedlog.statemachine import Context, Result
from distributedlog.statemachine.deadlines import Deadlines
from distributedlog.statemachine.pending import Producer
from distributedlog.transactions.config import TransactionConfig, check_timeout
from distributedlog.transactions.records import Record
from distributedlog.transactions.requests import (
    BEING_ABORTED,
    NEEDS_PRODUCER_ID,
    AbortReason,
    AddRequest,
    Effect,
    MarkersWrittenRequest,
    Reply,
    SendMarkers,
    VerifyReply,
    VerifyRequest,
)
from distributedlog.transactions.sinks import query as queries
from distributedlog.transactions.sinks.query import ABORTED, DECIDED, Lease, SinkQuery
from distributedlog.transactions.sinks.records import (
    SinkLeaseRecord,
    SinkQueryRecord,
    SinkRecord,
    query_size_bound,
)
from distributedlog.transactions.sinks.requests import (
    DescribedAttempt,
    SinkAbort,
    SinkCompleted,
    SinkDecided,
    SinkDescribe,
    SinkDescription,
    SinkEnd,
    SinkEnded,
    SinkHeartbeat,
    SinkJoin,
    SinkJoined,
    SinkRequest,
    SinkSkipped,
    WinnersRefused,
)
from distributedlog.transactions.sizes import size_bound
from distributedlog.transactions.transaction import (
    COMPLETE,
    NO_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    VERSION_EPOCH_PER_TRANSACTION,
    Transaction,
    TransactionState,
)

SinkResult = Result[Record, Reply, Effect]
SinkTick = Result[Record, None, Effect]

ID_BYTES_MAX: Final = 1_000
"""The bytes of a query's or an attempt's id."""
FORGOTTEN_MAX: Final = 500
"""The producer ids and queries that one entry forgets."""
FORGET_AGAIN_MS: Final = 100
_POOLS: Final = ""
"""The timer by which pools are looked through; no query has this id."""


class SinkState:
    """A query with its pool; the last two are derived from the leases."""

    __slots__ = ("by_attempt", "free", "leases", "query")

    def __init__(self) -> None:
        self.query: SinkQuery | None = None
        self.leases: dict[int, Lease] = {}
        self.free: dict[int, None] = {}
        """The ids that nobody holds, in the order in which they were given back."""
        self.by_attempt: dict[str, int] = {}

    def put(self, producer_id: int, lease: Lease | None) -> None:
        before = self.leases.pop(producer_id, None)
        self.free.pop(producer_id, None)
        if before is not None and self.by_attempt.get(before.attempt_id) == producer_id:
            del self.by_attempt[before.attempt_id]
        if lease is None:
            return
        self.leases[producer_id] = lease
        if lease.is_open:
            self.by_attempt[lease.attempt_id] = producer_id
        else:
            self.free[producer_id] = None

    @property
    def known(self) -> SinkQuery:
        assert self.query is not None, "a lease is never written without its query"
        return self.query

    @property
    def open_count(self) -> int:
        return len(self.leases) - len(self.free)

    def open_leases(self) -> Iterator[tuple[int, Lease]]:
        return ((at, lease) for at, lease in self.leases.items() if lease.is_open)


class SinkMachine:
    """Belongs to a `TransactionMachine`, which hands on what concerns sinks."""

    def __init__(
        self, config: TransactionConfig, wall_ms: Callable[[], int], aborted: Counter[AbortReason]
    ) -> None:
        self.config = config
        self.states: dict[str, SinkState] = {}
        self._wall_ms = wall_ms
        self._aborted = aborted
        self._timers: Deadlines[str] = Deadlines()

    # --- the contract --------------------------------------------------------------------------

    def handle(self, request: SinkRequest, context: Context) -> SinkResult:
        _check_id(request.query_id, "query")
        match request:
            case SinkJoin():
                return self._join(request, context)
            case SinkHeartbeat():
                return self._heartbeat(request, context)
            case SinkEnd():
                return self._end(request, context)
            case SinkAbort():
                return self._abort(request, context)
            case SinkDescribe():
                return Result(self._describe(request))

    def replay(self, record: SinkRecord) -> None:
        state = self.states.get(record.query_id)
        if state is None:
            state = self.states[record.query_id] = SinkState()
        if isinstance(record, SinkQueryRecord):
            state.query = record.value
        else:
            state.put(record.producer_id, record.value)
        if state.query is None and not state.leases:
            del self.states[record.query_id]

    def records(self) -> Iterator[SinkRecord]:
        """Yields all durable state, as the records that would make it."""
        for query_id, state in self.states.items():
            if state.query is not None:
                yield SinkQueryRecord(query_id, state.query)
            for producer_id, lease in state.leases.items():
                yield SinkLeaseRecord(query_id, producer_id, lease)

    def activated(self, context: Context) -> list[Effect]:
        """Goes on with what others began: markers are written, open batches time out."""
        effects: list[Effect] = []
        for query_id, state in self.states.items():
            if state.query is None:
                continue
            if state.query.state in PREPARED:
                effects += _markers(query_id, state, state.query, context)
            elif state.query.state is TransactionState.ONGOING:
                self._timers.set(query_id, context.now_ms + state.query.timeout_ms)
        self._timers.set(_POOLS, context.now_ms + self.config.id_expiration_check_ms)
        return effects

    def next_deadline_ms(self) -> int | None:
        return self._timers.next_ms()

    def tick(self, context: Context) -> SinkTick:
        due = self._timers.pop_due(context.now_ms)
        if due is None:
            return Result(None)
        query_id, _ = due
        if query_id == _POOLS:
            return self._forget(context)
        state = self.states.get(query_id)
        if state is None or state.query is None or state.query.state is not TransactionState.ONGOING:
            return Result(None)
        records, effects = self._begin_abort(query_id, state, state.query.token, AbortReason.TIMEOUT, context)
        return Result(None, records, effects)

    # --- joining -------------------------------------------------------------------------------

    def _join(self, request: SinkJoin, context: Context) -> SinkResult:
        self._check_join(request)
        query_id, token = request.query_id, request.token
        state = self.states.get(query_id)
        found = None if state is None else state.query
        if state is None or found is None:
            return self._lease(request, SinkState(), None, context)
        _check_token(found, token)
        if found.state in PREPARED:
            queries.move(found.state, queries.Event.JOIN)  # raises
        if request.batch_id < found.committed_batch_id:
            raise InvalidTransactionStateError(
                f"the checkpoint is older than the sink: batch {request.batch_id} is sent again, and batch "
                f"{found.committed_batch_id} is committed"
            )
        if request.batch_id == found.committed_batch_id:
            return Result(SinkSkipped())
        if token == found.batch_token:
            _check_batch(found, token, request.batch_id)
            return self._lease(request, state, found, context)
        if found.state is TransactionState.ONGOING:
            records, effects = self._begin_abort(query_id, state, token, AbortReason.FENCED, context)
            return Result(BEING_ABORTED, records, effects)
        return self._lease(request, state, found, context)

    def _check_join(self, request: SinkJoin) -> None:
        _check_id(request.attempt_id, "attempt")
        if request.token < 0 or request.batch_id < 0:
            raise InvalidRequestError("a token and a batch id are not negative")
        check_timeout(request.timeout_ms, self.config.timeout_ms_max)
        if request.query_id not in self.states and len(self.states) >= self.config.sink_queries_max:
            raise OverloadedError(f"{self.config.sink_queries_max} queries have written here already")

    def _lease(
        self, request: SinkJoin, state: SinkState, found: SinkQuery | None, context: Context
    ) -> SinkResult:
        """Gives the attempt a producer id, and opens the batch if it is the first."""
        held_id = state.by_attempt.get(request.attempt_id)
        if held_id is not None:  # its answer was lost
            return Result(SinkJoined(Producer(held_id, state.leases[held_id].epoch)))
        if state.open_count >= self.config.sink_attempts_max:
            raise OverloadedError(f"{self.config.sink_attempts_max} attempts write in the batch already")
        free_id = next(iter(state.free), None)
        wall_ms = self._wall_ms()
        if free_id is not None:
            producer_id = free_id
            lease = queries.lease_again(state.leases[free_id], request.attempt_id, wall_ms)
        elif request.new_producer_id is None:
            return Result(NEEDS_PRODUCER_ID)
        else:
            producer_id = request.new_producer_id
            lease = queries.lease_new(request.attempt_id, wall_ms)
        records: list[Record] = []
        if found is None or found.state is not TransactionState.ONGOING:
            found = queries.open_batch(found, request.token, request.batch_id, request.timeout_ms, wall_ms)
            records.append(SinkQueryRecord(request.query_id, found))
        records.append(SinkLeaseRecord(request.query_id, producer_id, lease))
        self._timers.set(request.query_id, context.now_ms + found.timeout_ms)
        return Result(SinkJoined(Producer(producer_id, lease.epoch)), records)

    def _heartbeat(self, request: SinkHeartbeat, context: Context) -> SinkResult:
        state = self.states.get(request.query_id)
        if state is not None and state.query is not None:
            found = state.query
            _check_token(found, request.token)
            if request.token == found.batch_token:
                if found.state in DECIDED and found.batch_id == request.batch_id:
                    return Result(None)
                _check_batch(found, request.token, request.batch_id)
                self._timers.set(request.query_id, context.now_ms + found.timeout_ms)
        return Result(None)

    # --- partitions ----------------------------------------------------------------------------

    def add(self, request: AddRequest, context: Context) -> SinkResult:
        """A leader asks before the first append of an attempt: the partition becomes part of the batch."""
        query_id, state, lease = self._find_lease(request.transactional_id, request.producer)
        if any(each.topic in INTERNAL_TOPICS for each in request.partitions):
            raise InvalidTransactionStateError("a sink writes no offsets of groups, nor to internal topics")
        if request.partitions <= lease.partitions:
            return Result(None)
        partitions = lease.partitions | request.partitions
        size = size_bound(query_id + lease.attempt_id, partitions)
        if size > self.config.entry_bytes_max:
            raise RecordTooLargeError(
                f"an attempt that writes to {len(partitions)} partitions takes {size} bytes to keep; "
                f"{self.config.entry_bytes_max} fit into one entry"
            )
        added = Lease(
            epoch=lease.epoch,
            attempt_id=lease.attempt_id,
            partitions=partitions,
            last_update_ms=self._wall_ms(),
        )
        self._timers.set(query_id, context.now_ms + state.known.timeout_ms)
        return Result(None, (SinkLeaseRecord(query_id, request.producer.producer_id, added),))

    def verify(self, request: VerifyRequest) -> VerifyReply:
        _, _, lease = self._find_lease(request.transactional_id, request.producer)
        refused = ErrorCode.TRANSACTION_ABORTABLE
        return VerifyReply(
            tuple(
                (each, ErrorCode.NONE if each in lease.partitions else refused)
                for each in sorted(request.partitions)
            )
        )

    def _find_lease(self, sink_id: str, producer: Producer) -> tuple[str, SinkState, Lease]:
        """Returns the lease that a producer holds in an open batch; raises if it holds none."""
        query_id = queries.query_id_of(sink_id)
        state = self.states.get(query_id)
        lease = None if state is None else state.leases.get(producer.producer_id)
        if state is None or lease is None:
            raise InvalidProducerIdMappingError("the producer id is none of the query's")
        is_held = lease.is_open and lease.epoch == producer.producer_epoch
        if not is_held or state.known.state is not TransactionState.ONGOING:
            raise ProducerFencedError(f"the batch of {producer} is over")
        return query_id, state, lease

    # --- the end -------------------------------------------------------------------------------

    def _end(self, request: SinkEnd, context: Context) -> SinkResult:
        state = self.states.get(request.query_id)
        if state is None or state.query is None:
            raise InvalidTransactionStateError("nobody has joined under this query")
        found = state.query
        _check_token(found, request.token)
        if request.token != found.batch_token or request.batch_id != found.batch_id:
            raise InvalidTransactionStateError(
                f"batch {request.batch_id} is not open under this token: nobody has joined"
            )
        winners = tuple(sorted(request.winners))
        if found.state in DECIDED:
            if winners != found.winners:
                raise InvalidTransactionStateError("the batch is committed with other winners")
            is_complete = found.state is TransactionState.COMPLETE_COMMIT
            return Result(SinkEnded() if is_complete else SinkDecided())
        _check_batch(found, request.token, request.batch_id)
        wrong = self._find_wrong_winner(request.query_id, state, winners)
        if wrong is not None:
            records, effects = self._begin_abort(
                request.query_id, state, found.token, AbortReason.WRONG_WINNER, context
            )
            return Result(WinnersRefused(wrong), records, effects)
        decided = queries.decide(found, winners, self._wall_ms())
        self._timers.cancel(request.query_id)
        return Result(
            SinkDecided(),
            (SinkQueryRecord(request.query_id, decided),),
            _markers(request.query_id, state, decided, context),
        )

    def _find_wrong_winner(
        self, query_id: str, state: SinkState, winners: tuple[Producer, ...]
    ) -> str | None:
        for producer_id, epoch in winners:
            lease = state.leases.get(producer_id)
            if lease is None or not lease.is_open or lease.epoch != epoch:
                return f"the winner with producer id {producer_id} and epoch {epoch} holds no lease"
        if query_size_bound(query_id, len(winners)) > self.config.entry_bytes_max:
            return f"{len(winners)} winners do not fit into one record"
        return None

    def _abort(self, request: SinkAbort, context: Context) -> SinkResult:
        """Does nothing where the batch is decided, or another driver's."""
        state = self.states.get(request.query_id)
        if state is None or state.query is None or state.query.batch_token != request.token:
            return Result(None)
        if state.query.state is not TransactionState.ONGOING:
            return Result(None)
        records, effects = self._begin_abort(
            request.query_id, state, state.query.token, AbortReason.CLIENT, context
        )
        return Result(None, records, effects)

    def _begin_abort(
        self, query_id: str, state: SinkState, token: int, reason: AbortReason, context: Context
    ) -> tuple[tuple[Record, ...], list[Effect]]:
        aborted = queries.abort_batch(state.known, token, self._wall_ms())
        self._timers.cancel(query_id)
        self._aborted[reason] += 1
        effects = _markers(query_id, state, aborted, context)
        return (SinkQueryRecord(query_id, aborted),), effects

    def complete(self, request: MarkersWrittenRequest) -> SinkResult:
        """The markers of one lease are written: its id is free; with the last one the batch is complete."""
        query_id, producer = queries.query_id_of(request.transactional_id), request.producer
        if not self.waits_for(request.transactional_id, producer):
            raise InvalidTransactionStateError(f"nobody waits for markers of {producer}")
        state, wall_ms = self.states[query_id], self._wall_ms()
        lease = state.leases[producer.producer_id]
        released = queries.release(lease, wall_ms)
        records: list[Record] = [SinkLeaseRecord(query_id, producer.producer_id, released)]
        if state.open_count > 1:
            return Result(None, records)
        records.append(SinkQueryRecord(query_id, queries.complete(state.known, wall_ms)))
        return Result(None, records, (SinkCompleted(query_id),))

    def waits_for(self, sink_id: str, marker: Producer) -> bool:
        """Returns whether a decided batch waits for markers of this producer."""
        state = self.states.get(queries.query_id_of(sink_id))
        if state is None or state.query is None or state.query.state not in PREPARED:
            return False
        lease = state.leases.get(marker.producer_id)
        return lease is not None and lease.is_open and lease.marker_epoch == marker.producer_epoch

    def is_being_ended(self, query_id: str) -> bool:
        state = self.states.get(query_id)
        return state is not None and state.query is not None and state.query.state in PREPARED

    # --- pools ---------------------------------------------------------------------------------

    def _forget(self, context: Context) -> SinkTick:
        """Forgets producer ids that nobody has leased for long, and queries that nobody goes on with.  All
        other queries are kept: they hold the marker."""
        oldest_ms = self._wall_ms() - self.config.id_expiration_ms
        gone: list[Record] = []
        for query_id, state in self.states.items():
            old = [at for at in state.free if state.leases[at].last_update_ms < oldest_ms]
            gone += [SinkLeaseRecord(query_id, producer_id, None) for producer_id in old]
            if len(old) == len(state.leases) and _is_forgettable(query_id, state.query, oldest_ms):
                gone.append(SinkQueryRecord(query_id, None))
        again_ms = FORGET_AGAIN_MS if len(gone) > FORGOTTEN_MAX else self.config.id_expiration_check_ms
        self._timers.set(_POOLS, context.now_ms + again_ms)
        return Result(None, gone[:FORGOTTEN_MAX])

    # --- looking -------------------------------------------------------------------------------

    def _describe(self, request: SinkDescribe) -> SinkDescription:
        state = self.states.get(request.query_id)
        if state is None or state.query is None:
            raise TransactionalIdNotFoundError(f"no query {request.query_id!r} has written here")
        attempts = tuple(
            DescribedAttempt(Producer(at, lease.epoch), lease.attempt_id, tuple(sorted(lease.partitions)))
            for at, lease in sorted(state.open_leases())
        )
        return SinkDescription(state.query, attempts, len(state.free))

    def as_transactions(self, producer_ids: Collection[int] = ()) -> Iterator[tuple[str, Transaction]]:
        """Yields each query as the transaction that Kafka's tools may see in it, under an attempt's producer
        id: one of these, if any of them has one."""
        for query_id, state in self.states.items():
            if state.query is not None:
                yield queries.sink_id_of(query_id), _as_transaction(state, state.query, producer_ids)

    def as_transaction(self, sink_id: str) -> Transaction | None:
        state = self.states.get(queries.query_id_of(sink_id))
        return None if state is None or state.query is None else _as_transaction(state, state.query)

    def open_start_times_ms(self) -> Iterator[int]:
        return (state.known.start_ms for state in self.states.values() if state.open_count)


def _as_transaction(state: SinkState, query: SinkQuery, producer_ids: Collection[int] = ()) -> Transaction:
    held = [each for each, _ in state.open_leases()]
    named = next((each for each in held if each in producer_ids), next(iter(held), NO_PRODUCER_ID))
    lease = state.leases.get(named)
    return Transaction(
        producer_id=named,
        producer_epoch=NO_EPOCH if lease is None else lease.epoch,
        timeout_ms=query.timeout_ms,
        state=query.state,
        partitions=frozenset(each for _, lease in state.open_leases() for each in lease.partitions),
        start_ms=query.start_ms,
        last_update_ms=query.last_update_ms,
    )


def _check_id(given: str, what: str) -> None:
    if not 0 < len(given.encode()) <= ID_BYTES_MAX:
        raise InvalidRequestError(f"the id of a sink's {what} has 1 to {ID_BYTES_MAX} bytes")


def _is_forgettable(query_id: str, query: SinkQuery | None, oldest_ms: int) -> bool:
    """Returns whether a query is one run's, whose batch ended long ago: no other run has its id."""
    if query is None or not query_id.startswith(ONE_RUN_PREFIX):
        return False
    return query.state in COMPLETE and query.last_update_ms < oldest_ms


def _check_token(found: SinkQuery, token: int) -> None:
    if token < found.token:
        raise ProducerFencedError(
            f"another driver has gone on with the query: {token} is behind {found.token}"
        )


def _check_batch(found: SinkQuery, token: int, batch_id: int) -> None:
    """The token is that of the query's batch: it must be this one, and be open."""
    if batch_id != found.batch_id:
        raise InvalidRequestError(f"the token {token} is that of batch {found.batch_id}, not of {batch_id}")
    if found.state in ABORTED:
        raise ProducerFencedError(f"batch {batch_id} was aborted: it begins again with a new token")
    if found.state is not TransactionState.ONGOING:
        raise InvalidTransactionStateError(f"batch {batch_id} is decided")


def _markers(query_id: str, state: SinkState, decided: SinkQuery, context: Context) -> list[Effect]:
    """The markers of every lease that is not free: of winners to commit, of all others to abort."""
    is_commit = decided.state is TransactionState.PREPARE_COMMIT
    winners = frozenset(decided.winners) if is_commit else frozenset()
    sink_id = queries.sink_id_of(query_id)
    return [
        SendMarkers(
            sink_id,
            Producer(producer_id, lease.marker_epoch),
            Producer(producer_id, lease.epoch) in winners,
            lease.partitions,
            context.epoch,
            VERSION_EPOCH_PER_TRANSACTION,
        )
        for producer_id, lease in state.open_leases()
    ]
