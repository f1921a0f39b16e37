"""Runs a machine at the end of a log: append, replay, delay, release.

    submit -> handle -> append -> replay -> delay ........ committed -> reply, effects -> (as events) submit

A record is replayed as it is appended, so the next request sees it although it is not committed yet.
Therefore every response, reads and refusals included, waits until the last offset replayed before it was
made has committed: no reader gets what may still vanish.

| phase     | requests            | entries of the log              | leaves by                          |
|-----------|---------------------|---------------------------------|------------------------------------|
| FOLLOWING | NotLeaderError      | none is replayed                | elected -> LOADING                 |
| LOADING   | LoadInProgressError | replayed up to the log's end    | loaded -> ACTIVE                   |
| ACTIVE    | handled             | only the runtime's own appends  | append failed -> LOADING           |
| any       |                     |                                 | leadership lost -> FOLLOWING       |

Nothing is ever undone.  When an append fails, or leadership is lost after appends that did not commit, the
machine holds records that the log may not: it is thrown away, an empty one takes its place, and the outbox
says so (`Outbox.reload`): while this node leads, its owner has the log read back into another one (`adopt`,
`replay`).  Delayed responses fail with a retriable error, for nobody knows what becomes of their records.
Effects that were not released are dropped: they follow from the state, and whoever is active next finds them
there (`Machine.activated`).

Invariants: a response leaves after what it depends on is committed; so does an effect; every accepted request
gets exactly one response; the machine equals the replay of the log up to its end.  What a crash does: all of
this is soft; the log is replayed.

A log that can hold transactions is a `TransactionalLog`.  What belongs to an open one, replayed or appended,
is held in `pending` until its marker, so the machine replays what is committed; held records, too, are
committed to the log before a response leaves that may have been made from them.

A delayed response that passes its deadline becomes RequestTimedOutError, the outcome unknown; its
records and effects take their course.
"""

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import Enum
from heapq import heappop, heappush
from typing import Generic, NamedTuple, Protocol, TypeVar

from distributedlog.model.errors import (
    CoordinatorFencedError,
    DlogError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    LeadershipLostError,
    LoadInProgressError,
    NotLeaderError,
    OverloadedError,
    RequestTimedOutError,
)
from distributedlog.statemachine.contract import Context, Machine, Result
from distributedlog.statemachine.pending import NO_PENDING, PendingTransactions, Producer, TransactionEnd

RequestT = TypeVar("RequestT")
RecordT = TypeVar("RecordT")
RecordT_contra = TypeVar("RecordT_contra", contravariant=True)
ResponseT = TypeVar("ResponseT")
EffectT = TypeVar("EffectT")

NO_OFFSET = -1
NOTHING_WRITTEN = (
    CoordinatorFencedError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    NotLeaderError,
    OverloadedError,
)
"""Errors of an append that say so."""
NOT_WRITTEN = "the log could not be written; it may yet turn out that it was"


class Phase(Enum):
    FOLLOWING = "following"
    LOADING = "loading"
    ACTIVE = "active"


class PhaseEvent(Enum):
    ELECTED = "elected"
    LOADED = "loaded"
    APPEND_FAILED = "append failed"
    LEADERSHIP_LOST = "leadership lost"


TRANSITIONS: Mapping[tuple[Phase, PhaseEvent], Phase] = {
    (Phase.FOLLOWING, PhaseEvent.ELECTED): Phase.LOADING,
    (Phase.FOLLOWING, PhaseEvent.LEADERSHIP_LOST): Phase.FOLLOWING,
    (Phase.LOADING, PhaseEvent.LOADED): Phase.ACTIVE,
    (Phase.LOADING, PhaseEvent.LEADERSHIP_LOST): Phase.FOLLOWING,
    (Phase.ACTIVE, PhaseEvent.APPEND_FAILED): Phase.LOADING,
    (Phase.ACTIVE, PhaseEvent.LEADERSHIP_LOST): Phase.FOLLOWING,
}
"""A pair that is not here cannot happen: a KeyError is a defect of the driver."""


class RuntimeLimits(NamedTuple):
    delayed_max: int = 10_000
    """Responses that wait for a commit, entries that do, and effects that do, each."""


class AppendLog(Protocol[RecordT_contra]):
    """The end of the log.  Appending is immediate; that it is committed reaches the runtime later
    (`committed`)."""

    def next_offset(self) -> int: ...

    def append(self, records: Sequence[RecordT_contra]) -> int:
        """One entry, and its offset.  OverloadedError: nothing was written, for want of room; NotLeaderError:
        nothing was written, for others decide.  Any other DlogError: it is not known whether the log has
        it."""
        ...


class TransactionalLog(AppendLog[RecordT_contra], Protocol):
    """A log whose entries may belong to transactions.  Its appends end as `AppendLog.append` does; one that
    comes from a fenced producer or coordinator has written nothing."""

    def append_transactional(self, records: Sequence[RecordT_contra], producer: Producer) -> int: ...

    def append_marker(self, end: TransactionEnd) -> int: ...

    def key_of(self, record: RecordT_contra) -> Hashable:
        """Returns what compaction goes by."""
        ...


class TicketReply(NamedTuple, Generic[ResponseT]):
    """The reply to the request that got this ticket: a response or an error, never both."""

    ticket: int
    response: ResponseT | None
    error: DlogError | None
    needs_leadership: bool
    """Made from the state alone, with no entry of its own to commit: only a leader that has made sure it led
    when the request came may pass it on."""


class Outbox(NamedTuple, Generic[ResponseT, EffectT]):
    """What has come about since it was last taken, for the driver to do."""

    replies: Sequence[TicketReply[ResponseT]]
    effects: Sequence[EffectT]
    reload: bool
    """The machine was discarded: in LOADING the log has to be read back into another one."""


class _DelayedReply(NamedTuple, Generic[ResponseT]):
    depends_on: int
    reply: TicketReply[ResponseT]


class _DelayedEffects(NamedTuple, Generic[EffectT]):
    depends_on: int
    effects: Sequence[EffectT]


class Runtime(Generic[RequestT, RecordT, ResponseT, EffectT]):
    def __init__(
        self,
        new_machine: Callable[[], Machine[RequestT, RecordT, ResponseT, EffectT]],
        log: AppendLog[RecordT],
        limits: RuntimeLimits | None = None,
        *,
        transactions: TransactionalLog[RecordT] | None = None,
    ) -> None:
        """`transactions` is the log once more, if it can hold any."""
        self._new_machine = new_machine
        self._log = log
        self._transactions = transactions
        self.pending = self._no_pending()
        self._limits = limits or RuntimeLimits()
        self.machine = new_machine()
        self.phase = Phase.FOLLOWING
        self.committed_offset = NO_OFFSET
        self.replayed_offset = NO_OFFSET
        self._uncommitted: deque[int] = deque()
        self._delayed: deque[_DelayedReply[ResponseT]] = deque()
        self._waiting_tickets: set[int] = set()
        self._deadlines: list[tuple[int, int]] = []
        self._delayed_effects: deque[_DelayedEffects[EffectT]] = deque()
        self._next_ticket = 0
        self._replies: list[TicketReply[ResponseT]] = []
        self._effects: list[EffectT] = []
        self._reload = False
        self._epoch = 0

    # --- the log -------------------------------------------------------------------------------

    def adopt(self, machine: Machine[RequestT, RecordT, ResponseT, EffectT], committed_offset: int) -> None:
        """Takes a machine that has replayed all that is committed: for a state that is kept elsewhere
        already."""
        if self.phase is Phase.ACTIVE:
            raise AssertionError("an active machine is not exchanged")
        self.machine = machine
        self.pending = self._no_pending()
        self.replayed_offset = committed_offset
        self.committed(committed_offset)

    def replay(self, records: Sequence[RecordT], offset: int, transaction: Producer | None = None) -> None:
        """An entry of the log, while this runtime is not active.  One it has already is passed over."""
        self._check_replays()
        if offset > self.replayed_offset:
            self._replay(records, offset, transaction)

    def replay_marker(self, end: TransactionEnd, offset: int) -> None:
        """A marker in the log, as `replay`."""
        self._check_replays()
        if offset > self.replayed_offset:
            self._replay_marker(end, offset)

    def _check_replays(self) -> None:
        if self.phase is Phase.ACTIVE:
            raise AssertionError("an active machine replays only what it appends")

    def _replay(self, records: Sequence[RecordT], offset: int, transaction: Producer | None) -> None:
        if transaction is not None:
            self.pending.hold(records, transaction)
        else:
            if self.pending:
                self.pending.supersede(records)
            self.machine.replay(records, offset)
        self.replayed_offset = offset

    def _replay_marker(self, end: TransactionEnd, offset: int) -> None:
        committed = self.pending.end(end)
        if committed:
            self.machine.replay(committed, offset)
        self.replayed_offset = offset

    def _no_pending(self) -> PendingTransactions[RecordT]:
        return NO_PENDING if self._transactions is None else PendingTransactions(self._transactions.key_of)

    def committed(self, offset: int) -> None:
        """Everything up to `offset` is committed.  News that comes late is no news."""
        if offset <= self.committed_offset:
            return
        self.committed_offset = offset
        while self._uncommitted and self._uncommitted[0] <= offset:
            self._uncommitted.popleft()
        self._release()

    # --- leadership ----------------------------------------------------------------------------

    def elected(self, epoch: int) -> None:
        """The driver now replays what the log has and the machine has not, and says `loaded`."""
        self._move(PhaseEvent.ELECTED)
        self._epoch = epoch

    def loaded(self, now_ms: int) -> None:
        self._move(PhaseEvent.LOADED)
        context = self._context(now_ms)
        self._perform(self.machine.activated(context), context)

    def leadership_lost(self) -> None:
        """Entries that did not commit may vanish: a machine that replayed some is thrown away."""
        self._move(PhaseEvent.LEADERSHIP_LOST)
        self._fail_delayed("the node stopped leading; the request may or may not happen yet")
        if self.replayed_offset > self.committed_offset:
            self._discard()

    # --- requests ------------------------------------------------------------------------------

    def submit(self, request: RequestT, now_ms: int, deadline_ms: int) -> int:
        """Returns the ticket that the reply in the outbox will have.

        Raises when the request is not accepted: nothing was done.
        """
        self._check_accepts()
        self._next_ticket += 1
        ticket = self._next_ticket
        context = self._context(now_ms)
        try:
            result = self.machine.handle(request, context)
        except DlogError as refusal:
            self._delay(TicketReply(ticket, None, refusal, True), deadline_ms)
            return ticket
        if not self._perform(result, context, refusable=True):
            # Delayed replies were failed with the machine; this one was not among them yet.
            self._replies.append(_failed(ticket, NOT_WRITTEN))
            return ticket
        self._delay(TicketReply(ticket, result.response, None, not result.records), deadline_ms)
        return ticket

    def event(self, event: RequestT, now_ms: int) -> None:
        """Submits what became of an effect.  Raises as `submit`; if the machine refuses it, nobody learns of
        it."""
        self._check_accepts()
        context = self._context(now_ms)
        try:
            result = self.machine.handle(event, context)
        except DlogError:
            return
        self._perform(result, context, refusable=True)

    def end_transaction(self, end: TransactionEnd, now_ms: int, deadline_ms: int) -> int:
        """Writes the marker that ends a transaction; the ticket's reply comes once that is committed.

        Raises as `submit`, and what the log says of a marker that it does not take.
        """
        self._check_accepts()
        assert self._transactions is not None, "a log without transactions has none to end"
        self._next_ticket += 1
        next_offset = self._log.next_offset()
        try:
            offset = self._transactions.append_marker(end)
        except NOTHING_WRITTEN:
            raise
        except DlogError:
            offset = NO_OFFSET
        if offset != next_offset:
            self._append_failed()
            self._replies.append(_failed(self._next_ticket, NOT_WRITTEN))
            return self._next_ticket
        self._replay_marker(end, offset)
        self._note_appended(offset)
        self._delay(TicketReply(self._next_ticket, None, None, False), deadline_ms)
        return self._next_ticket

    def _check_accepts(self) -> None:
        if self.phase is Phase.FOLLOWING:
            raise NotLeaderError("this node does not lead")
        if self.phase is Phase.LOADING:
            raise LoadInProgressError("the state is being read back from its log")
        limit = self._limits.delayed_max
        if max(len(self._delayed), len(self._uncommitted), len(self._delayed_effects)) >= limit:
            raise OverloadedError(f"{limit} requests wait for their commit")

    # --- time ----------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        while self._deadlines and self._deadlines[0][1] not in self._waiting_tickets:
            heappop(self._deadlines)
        delayed_ms = self._deadlines[0][0] if self._deadlines else None
        machine_ms = self.machine.next_deadline_ms() if self._may_tick() else None
        if delayed_ms is None or machine_ms is None:
            return machine_ms if delayed_ms is None else delayed_ms
        return min(delayed_ms, machine_ms)

    def tick(self, now_ms: int) -> None:
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, ticket = heappop(self._deadlines)
            if ticket in self._waiting_tickets:
                self._waiting_tickets.discard(ticket)
                error = RequestTimedOutError("not committed in time; it may or may not happen yet")
                self._replies.append(TicketReply(ticket, None, error, False))
        if not self._may_tick():
            return
        machine_ms = self.machine.next_deadline_ms()
        if machine_ms is not None and machine_ms <= now_ms:
            context = self._context(now_ms)
            self._perform(self.machine.tick(context), context)

    def _may_tick(self) -> bool:
        """A log that does not commit is not fed by timers: they come when it moves again."""
        return self.phase is Phase.ACTIVE and len(self._uncommitted) < self._limits.delayed_max

    # --- what comes out ------------------------------------------------------------------------

    def take(self) -> Outbox[ResponseT, EffectT]:
        outbox = Outbox(self._replies, self._effects, self._reload)
        self._replies, self._effects, self._reload = [], [], False
        return outbox

    @property
    def delayed_count(self) -> int:
        return len(self._waiting_tickets)

    # --- inside --------------------------------------------------------------------------------

    def _context(self, now_ms: int) -> Context:
        return Context(now_ms, self._log.next_offset(), self._epoch, self.pending)

    def _move(self, event: PhaseEvent) -> None:
        self.phase = TRANSITIONS[self.phase, event]

    def _perform(
        self,
        result: Result[RecordT, ResponseT, EffectT] | Result[RecordT, None, EffectT],
        context: Context,
        *,
        refusable: bool = False,
    ) -> bool:
        """Appends and replays.  False: the append failed, and the machine was discarded.

        A log that is full, or whose leader is handing over, has written nothing.  A request may be sent again
        (`refusable`); a timer that went off cannot, so what it wanted has to be found again by a new machine.
        """
        if result.records:
            try:
                offset = self._append(result)
            except NOTHING_WRITTEN:
                if refusable:
                    raise
                offset = NO_OFFSET
            except DlogError:
                offset = NO_OFFSET
            if offset != context.next_offset:
                self._append_failed()
                return False
            self._replay(result.records, offset, result.transaction)
            self._note_appended(offset)
        if result.effects:
            self._delayed_effects.append(_DelayedEffects(self.replayed_offset, result.effects))
            self._release()
        return True

    def _append(self, result: Result[RecordT, ResponseT, EffectT] | Result[RecordT, None, EffectT]) -> int:
        if result.transaction is None:
            return self._log.append(result.records)
        assert self._transactions is not None, "a log without transactions takes none"
        return self._transactions.append_transactional(result.records, result.transaction)

    def _note_appended(self, offset: int) -> None:
        if offset > self.committed_offset:
            self._uncommitted.append(offset)

    def _append_failed(self) -> None:
        self._move(PhaseEvent.APPEND_FAILED)
        self._fail_delayed("the log could not be written; the request may or may not happen yet")
        self._discard()

    def _delay(self, reply: TicketReply[ResponseT], deadline_ms: int) -> None:
        self._waiting_tickets.add(reply.ticket)
        # Whatever the state holds may have shaped the reply, so the last entry in it must be there to stay.
        self._delayed.append(_DelayedReply(self.replayed_offset, reply))
        heappush(self._deadlines, (deadline_ms, reply.ticket))
        if len(self._deadlines) > 2 * self._limits.delayed_max:
            # Most were released long before their deadline: only the others are kept.
            self._deadlines = sorted(each for each in self._deadlines if each[1] in self._waiting_tickets)
        self._release()

    def _release(self) -> None:
        while self._delayed and self._delayed[0].depends_on <= self.committed_offset:
            reply = self._delayed.popleft().reply
            if reply.ticket in self._waiting_tickets:
                self._waiting_tickets.discard(reply.ticket)
                self._replies.append(reply)
        while self._delayed_effects and self._delayed_effects[0].depends_on <= self.committed_offset:
            self._effects.extend(self._delayed_effects.popleft().effects)

    def _fail_delayed(self, why: str) -> None:
        for delayed in self._delayed:
            ticket = delayed.reply.ticket
            if ticket in self._waiting_tickets:
                self._waiting_tickets.discard(ticket)
                self._replies.append(_failed(ticket, why))
        self._delayed.clear()
        self._deadlines.clear()
        self._delayed_effects.clear()

    def _discard(self) -> None:
        self.machine = self._new_machine()
        self.pending = self._no_pending()
        self.replayed_offset = NO_OFFSET
        self._uncommitted.clear()
        self._reload = True


def _failed(ticket: int, why: str) -> TicketReply[ResponseT]:
    return TicketReply(ticket, None, LeadershipLostError(why), False)
