"""Runs a machine at the end of a log: append, replay, park, release.

    submit -> handle -> append -> replay -> park ......... committed -> answer, effects -> (as events) submit

A record is replayed as it is appended, so the next request sees it although it is not committed yet.
Therefore every response, reads and refusals included, waits until the last offset replayed before it was
made has committed: a reader is never told what may still vanish.

| phase     | requests            | entries of the log              | leaves by                          |
|-----------|---------------------|---------------------------------|------------------------------------|
| FOLLOWING | NotLeaderError      | replayed as they commit         | elected -> LOADING                 |
| LOADING   | LoadInProgressError | replayed up to the log's end    | loaded -> ACTIVE                   |
| ACTIVE    | handled             | only the runtime's own appends  | append failed -> LOADING           |
| any       |                     |                                 | leadership lost -> FOLLOWING       |

Nothing is ever undone.  When an append fails, or leadership is lost after appends that did not commit, the
machine holds records that the log may not: it is thrown away, an empty one takes its place, and the outbox
asks the driver to `restore` the newest snapshot and `replay` the log behind it.  Parked responses fail with a
retriable error, for nobody knows what becomes of their records.  Effects that were not released are dropped:
they follow from the state, and whoever is in charge next finds them there (`Machine.activated`).

Invariants: a response leaves after what it depends on is committed; so does an effect; every accepted request
is answered exactly once; the machine equals the replay of the log up to its end.  What a crash does: all of
this is soft; the log is replayed.

A parked response that passes its deadline is answered with RequestTimedOutError, the outcome unknown; its
records and effects take their course.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from heapq import heappop, heappush
from typing import Generic, NamedTuple, Protocol, TypeVar

from distributedlog.model.errors import (
    DlogError,
    LeadershipLostError,
    LoadInProgressError,
    NotLeaderError,
    OverloadedError,
    RequestTimedOutError,
)
from distributedlog.statemachine.contract import Context, Machine, Result

RequestT = TypeVar("RequestT")
RecordT = TypeVar("RecordT")
RecordT_contra = TypeVar("RecordT_contra", contravariant=True)
ResponseT = TypeVar("ResponseT")
EffectT = TypeVar("EffectT")

NO_OFFSET = -1


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
    parked_max: int = 10_000
    """Responses that wait for a commit, entries that do, and effects that do, each."""


class AppendLog(Protocol[RecordT_contra]):
    """The end of the log.  Appending is immediate; that it is committed is told to the runtime later."""

    def next_offset(self) -> int: ...

    def append(self, records: Sequence[RecordT_contra]) -> int:
        """One entry, and its offset.  OverloadedError: nothing was written, for want of room; NotLeaderError:
        nothing was written, for others decide.  Any other DlogError: it is not known to stand in the log."""
        ...


class Answer(NamedTuple, Generic[ResponseT]):
    """To the request that got this ticket: a response or an error, never both."""

    ticket: int
    response: ResponseT | None
    error: DlogError | None
    needs_leadership: bool
    """Made from the state alone, with no entry of its own to commit: only a leader that has made sure it led
    when it was asked may pass it on."""


class Outbox(NamedTuple, Generic[ResponseT, EffectT]):
    """What has come about since it was last taken, for the driver to do."""

    answers: Sequence[Answer[ResponseT]]
    effects: Sequence[EffectT]
    reload: bool
    """The machine was discarded: restore the newest snapshot and replay the log behind it."""


class _Parked(NamedTuple, Generic[ResponseT]):
    depends_on: int
    answer: Answer[ResponseT]


class _Waiting(NamedTuple, Generic[EffectT]):
    depends_on: int
    effects: Sequence[EffectT]


class Runtime(Generic[RequestT, RecordT, ResponseT, EffectT]):
    def __init__(
        self,
        new_machine: Callable[[], Machine[RequestT, RecordT, ResponseT, EffectT]],
        log: AppendLog[RecordT],
        limits: RuntimeLimits | None = None,
    ) -> None:
        self._new_machine = new_machine
        self._log = log
        self._limits = limits or RuntimeLimits()
        self.machine = new_machine()
        self.phase = Phase.FOLLOWING
        self.committed_offset = NO_OFFSET
        self.replayed_offset = NO_OFFSET
        self._uncommitted: deque[int] = deque()
        self._parked: deque[_Parked[ResponseT]] = deque()
        self._waiting_tickets: set[int] = set()
        self._deadlines: list[tuple[int, int]] = []
        self._waiting_effects: deque[_Waiting[EffectT]] = deque()
        self._next_ticket = 0
        self._answers: list[Answer[ResponseT]] = []
        self._effects: list[EffectT] = []
        self._reload = False
        self._epoch = 0

    # --- the log -------------------------------------------------------------------------------

    def restore(self, snapshot: bytes, offset: int) -> None:
        """A snapshot of the state after the entry at `offset`."""
        if self.phase is Phase.ACTIVE:
            raise AssertionError("a machine in charge is ahead of every snapshot")
        self.machine = self._new_machine()
        self.machine.restore(snapshot, offset)
        self.replayed_offset = offset

    def adopt(self, machine: Machine[RequestT, RecordT, ResponseT, EffectT], committed_offset: int) -> None:
        """A machine that stands where the log was committed: for a state that is kept elsewhere already."""
        if self.phase is Phase.ACTIVE:
            raise AssertionError("a machine in charge is not exchanged")
        self.machine = machine
        self.replayed_offset = committed_offset
        self.committed(committed_offset)

    def replay(self, records: Sequence[RecordT], offset: int) -> None:
        """An entry of the log, while this runtime is not in charge.  One it has already is passed over."""
        if self.phase is Phase.ACTIVE:
            raise AssertionError("a machine in charge replays only what it appends")
        if offset > self.replayed_offset:
            self.machine.replay(records, offset)
            self.replayed_offset = offset

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
        self._fail_parked("the node stopped leading; what was asked of it may or may not happen yet")
        if self.replayed_offset > self.committed_offset:
            self._discard()

    # --- requests ------------------------------------------------------------------------------

    def submit(self, request: RequestT, now_ms: int, deadline_ms: int) -> int:
        """The ticket under which the answer will stand in the outbox.

        Raises when the request is not accepted: nothing was done.
        """
        self._check_accepts()
        self._next_ticket += 1
        ticket = self._next_ticket
        context = self._context(now_ms)
        try:
            result = self.machine.handle(request, context)
        except DlogError as refusal:
            self._park(Answer(ticket, None, refusal, True), deadline_ms)
            return ticket
        if not self._perform(result, context, refusable=True):
            # The parked were failed with the machine; this one was not among them yet.
            self._answers.append(
                _failed(ticket, "the log could not be written; it may yet turn out that it was")
            )
            return ticket
        self._park(Answer(ticket, result.response, None, not result.records), deadline_ms)
        return ticket

    def event(self, event: RequestT, now_ms: int) -> None:
        """What became of an effect.  Raises as `submit`; if the machine refuses it, nobody is told."""
        self._check_accepts()
        context = self._context(now_ms)
        try:
            result = self.machine.handle(event, context)
        except DlogError:
            return
        self._perform(result, context, refusable=True)

    def _check_accepts(self) -> None:
        if self.phase is Phase.FOLLOWING:
            raise NotLeaderError("this node does not lead")
        if self.phase is Phase.LOADING:
            raise LoadInProgressError("the state is being read back from its log")
        limit = self._limits.parked_max
        if max(len(self._parked), len(self._uncommitted), len(self._waiting_effects)) >= limit:
            raise OverloadedError(f"{limit} requests wait for their commit")

    # --- time ----------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        while self._deadlines and self._deadlines[0][1] not in self._waiting_tickets:
            heappop(self._deadlines)
        parked_ms = self._deadlines[0][0] if self._deadlines else None
        machine_ms = self.machine.next_deadline_ms() if self._may_tick() else None
        if parked_ms is None or machine_ms is None:
            return machine_ms if parked_ms is None else parked_ms
        return min(parked_ms, machine_ms)

    def tick(self, now_ms: int) -> None:
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, ticket = heappop(self._deadlines)
            if ticket in self._waiting_tickets:
                self._waiting_tickets.discard(ticket)
                error = RequestTimedOutError("not committed in time; it may or may not happen yet")
                self._answers.append(Answer(ticket, None, error, False))
        if not self._may_tick():
            return
        machine_ms = self.machine.next_deadline_ms()
        if machine_ms is not None and machine_ms <= now_ms:
            context = self._context(now_ms)
            self._perform(self.machine.tick(context), context)

    def _may_tick(self) -> bool:
        """A log that stands still is not fed by timers: they come when it moves again."""
        return self.phase is Phase.ACTIVE and len(self._uncommitted) < self._limits.parked_max

    # --- what comes out ------------------------------------------------------------------------

    def take(self) -> Outbox[ResponseT, EffectT]:
        outbox = Outbox(self._answers, self._effects, self._reload)
        self._answers, self._effects, self._reload = [], [], False
        return outbox

    @property
    def parked_count(self) -> int:
        return len(self._waiting_tickets)

    # --- inside --------------------------------------------------------------------------------

    def _context(self, now_ms: int) -> Context:
        return Context(now_ms, self._log.next_offset(), self._epoch)

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

        A log that is full, or whose leader is handing over, has written nothing.  Whoever asked may ask again
        (`refusable`); a timer that went off cannot, so what it wanted has to be found again by a new machine.
        """
        if result.records:
            try:
                offset = self._log.append(result.records)
            except (OverloadedError, NotLeaderError):
                if refusable:
                    raise
                offset = NO_OFFSET
            except DlogError:
                offset = NO_OFFSET
            if offset != context.next_offset:
                self._move(PhaseEvent.APPEND_FAILED)
                self._fail_parked("the log could not be written; what was asked may or may not happen yet")
                self._discard()
                return False
            self.machine.replay(result.records, offset)
            self.replayed_offset = offset
            if offset > self.committed_offset:
                self._uncommitted.append(offset)
        if result.effects:
            self._waiting_effects.append(_Waiting(self.replayed_offset, result.effects))
            self._release()
        return True

    def _park(self, answer: Answer[ResponseT], deadline_ms: int) -> None:
        self._waiting_tickets.add(answer.ticket)
        # Whatever the state holds may have shaped the answer, so the last entry in it must be there to stay.
        self._parked.append(_Parked(self.replayed_offset, answer))
        heappush(self._deadlines, (deadline_ms, answer.ticket))
        if len(self._deadlines) > 2 * self._limits.parked_max:
            # Most have been answered long before their deadline: only the others are kept.
            self._deadlines = sorted(each for each in self._deadlines if each[1] in self._waiting_tickets)
        self._release()

    def _release(self) -> None:
        while self._parked and self._parked[0].depends_on <= self.committed_offset:
            answer = self._parked.popleft().answer
            if answer.ticket in self._waiting_tickets:
                self._waiting_tickets.discard(answer.ticket)
                self._answers.append(answer)
        while self._waiting_effects and self._waiting_effects[0].depends_on <= self.committed_offset:
            self._effects.extend(self._waiting_effects.popleft().effects)

    def _fail_parked(self, why: str) -> None:
        for parked in self._parked:
            ticket = parked.answer.ticket
            if ticket in self._waiting_tickets:
                self._waiting_tickets.discard(ticket)
                self._answers.append(_failed(ticket, why))
        self._parked.clear()
        self._deadlines.clear()
        self._waiting_effects.clear()

    def _discard(self) -> None:
        self.machine = self._new_machine()
        self.replayed_offset = NO_OFFSET
        self._uncommitted.clear()
        self._reload = True


def _failed(ticket: int, why: str) -> Answer[ResponseT]:
    return Answer(ticket, None, LeadershipLostError(why), False)
