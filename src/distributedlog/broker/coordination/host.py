"""Runs one machine of records and replay on its log: loads it, submits to it, keeps its time, hands out.

    the log says                              the host
    this node leads, in an epoch not seen     begins a load; requests get LoadInProgressError meanwhile
    read back                                 the machine is active; its timers are armed
    committed further                         replies and effects that waited for it leave
    an append failed                          throws the machine away, and loads again after a while
    leads no more, or in another epoch        throws it away; whoever waits is told that nobody knows

Three things differ from machine to machine, and are given to the host:

| what                             | controller                    | coordinators                  |
|----------------------------------|-------------------------------|-------------------------------|
| where the log is loaded from     | the committed image, as it is | a partition's log, in slices  |
| how a read is confirmed          | a majority says that it leads | by a lease                    |
| whether it can hold transactions | no                            | yes: held until their markers |

A load belongs to one epoch.  It is an object (`Load`), and the host listens to the newest only: whatever an
earlier one still does, or completes, changes nothing.  The same holds for what became of an effect (`event`).

A reply without an entry of its own was made from the state alone.  It leaves after it was confirmed that
nobody else can have led when it was made; one of an earlier epoch never does.

Nothing is lost between two signals: one that comes while the host is at work makes it look again.  All calls
come and go on one loop.  Nothing here survives a crash: the log does.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from distributedlog.model.errors import DlogError, NotLeaderError
from distributedlog.ports.clock import Clock
from distributedlog.ports.executor import Done, Outcome
from distributedlog.ports.scheduler import Scheduler
from distributedlog.statemachine.contract import Machine
from distributedlog.statemachine.pending import PendingTransactions, Producer, TransactionEnd
from distributedlog.statemachine.runtime import (
    NO_OFFSET,
    AppendLog,
    Outbox,
    Phase,
    Runtime,
    RuntimeLimits,
    TicketReply,
    TransactionalLog,
)

RequestT = TypeVar("RequestT")
RecordT = TypeVar("RecordT")
ResponseT = TypeVar("ResponseT")
EffectT = TypeVar("EffectT")

_logger = logging.getLogger("distributedlog.broker")

REST_MS: Final = 200
"""The pause until deadlines are looked at again that rest while nothing can be written."""
TICKS_MAX: Final = 100
"""Deadlines that are dealt with before other work has its turn."""

Confirmed = Callable[[DlogError | None], None]
ConfirmRead = Callable[[Confirmed], None]
"""Calls back with None if nobody else can have led when it was called, else with the error."""


class HostLog(AppendLog[RecordT], Protocol):
    """The log of a machine, as the host knows it."""

    def leader_epoch(self) -> int | None:
        """Returns the epoch in which this node leads, None if it does not."""
        ...

    def committed_offset(self, epoch: int) -> int:
        """Returns the offset of the last entry that this leader knows to be committed."""
        ...

    def is_writable(self) -> bool:
        """Returns False while every append is bound to fail: timers rest then."""
        ...

    def load(self, load: "Load[RecordT]") -> None:
        """Begins to replay what the log holds into `load`, and finishes it, now or later."""
        ...


class Load(Generic[RecordT]):
    """One load of a machine.  Once it is finished, or another began, it changes nothing any more."""

    __slots__ = ("_host",)

    def __init__(self, host: "Host[Any, RecordT, Any, Any]") -> None:
        self._host = host

    @property
    def is_current(self) -> bool:
        return self._host.is_loading(self)

    def replay(self, records: Sequence[RecordT], offset: int, transaction: Producer | None = None) -> None:
        """Replays one entry; of a transaction whose end is not known yet if `transaction` is given."""
        if self.is_current:
            self._host.runtime.replay(records, offset, transaction)

    def replay_marker(self, end: TransactionEnd, offset: int) -> None:
        if self.is_current:
            self._host.runtime.replay_marker(end, offset)

    def adopt(self, machine: Machine[Any, RecordT, Any, Any], committed_offset: int) -> None:
        """Takes a machine that has replayed all that is committed already."""
        if self.is_current:
            self._host.runtime.adopt(machine, committed_offset)

    def finish(self, error: DlogError | None = None) -> None:
        """Ends the load: the log is read back, or could not be, and is tried again after a while."""
        if self.is_current:
            self._host.finish_load(error)


def _nothing(*_: object) -> None:
    return None


@dataclass(frozen=True, slots=True)
class HostCallbacks(Generic[EffectT]):
    """What the owner of a host does for it."""

    perform: Callable[[EffectT, int], None] = _nothing
    """Performs an effect whose cause is committed; the number is the epoch that it is of."""
    activity: Callable[[bool], None] = _nothing
    """Is told when the machine takes charge, or no longer has it."""
    unloaded: Callable[[bool], None] = _nothing
    """Is told that the machine was thrown away: True because leadership was lost, False because an append
    failed.  Who waits for an effect of it gets none."""
    failed: Callable[[DlogError], None] = _nothing
    """Is told that the machine refuses this log for good."""
    map_error: Callable[[DlogError], DlogError] = lambda error: error
    """Makes the error for whoever asked."""
    caught_up: Callable[[], None] = _nothing
    """Is called each time the host has looked at its log, before anything is handed out."""
    before_tick: Callable[[], None] = _nothing


class _Outgoing(NamedTuple, Generic[ResponseT, EffectT]):
    epoch: int | None
    outbox: Outbox[ResponseT, EffectT]


class Host(Generic[RequestT, RecordT, ResponseT, EffectT]):
    def __init__(
        self,
        new_machine: Callable[[], Machine[RequestT, RecordT, ResponseT, EffectT]],
        log: HostLog[RecordT],
        confirm_read: ConfirmRead,
        callbacks: HostCallbacks[EffectT],
        *,
        clock: Clock,
        scheduler: Scheduler,
        load_again_ms: int,
        transactions: TransactionalLog[RecordT] | None = None,
        limits: RuntimeLimits | None = None,
    ) -> None:
        """`load_again_ms` is how long a load, or an append, that failed is left alone.  `transactions` is the
        log once more, if it can hold any."""
        self._new_machine = new_machine
        self._log = log
        self._confirm_read = confirm_read
        self._callbacks = callbacks
        self._clock = clock
        self._scheduler = scheduler
        self._load_again_ms = load_again_ms
        self.runtime: Runtime[RequestT, RecordT, ResponseT, EffectT] = Runtime(
            new_machine, log, limits, transactions=transactions
        )
        self.epoch: int | None = None
        """The epoch of the leadership that the machine is loaded, or being loaded, for."""
        self._load: Load[RecordT] | None = None
        self._is_load_planned = False
        self._in_flight: dict[int, Done[ResponseT]] = {}
        self._outgoing: list[_Outgoing[ResponseT, EffectT]] = []
        self._has_lost = False
        self._was_active = False
        self._is_unfit = False
        """The log is not one that this node may go on with."""
        self._is_closed = False
        self._busy = False
        self._again = False
        self._wake_ms: int | None = None

    # --- looking -------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether the machine is active, as far as this node knows."""
        return self.runtime.phase is Phase.ACTIVE

    @property
    def pending(self) -> PendingTransactions[RecordT]:
        return self.runtime.pending

    def is_loading(self, load: Load[RecordT]) -> bool:
        return self._load is load

    # --- requests ------------------------------------------------------------------------------

    def submit(self, request: RequestT, deadline_ms: int, done: Done[ResponseT]) -> None:
        """Submits a request; `done` gets the response once what it says is committed, or how it ended."""
        now_ms = self._clock.monotonic_ms()
        self._begin(lambda: self.runtime.submit(request, now_ms, deadline_ms), done)

    def end_transaction(self, end: TransactionEnd, deadline_ms: int, done: Done[ResponseT]) -> None:
        """Ends a transaction in the log; `done` gets None once its marker is committed."""
        now_ms = self._clock.monotonic_ms()
        self._begin(lambda: self.runtime.end_transaction(end, now_ms, deadline_ms), done)

    def _begin(self, begin: Callable[[], int], done: Done[ResponseT]) -> None:
        self._busy = True
        try:
            self._in_flight[begin()] = done
        except DlogError as error:
            refusal: DlogError | None = error
        else:
            refusal = None
        finally:
            self._busy = False
        if refusal is not None:
            done(Outcome(error=self._callbacks.map_error(refusal)))
        self.progressed()

    def event(self, event: RequestT, epoch: int) -> None:
        """Notes what became of an effect of that epoch.  That of an earlier epoch is dropped, and so is what
        cannot be handled now: the next machine finds in its state what is to be done."""
        if epoch != self.epoch:
            return
        self._busy = True
        try:
            self.runtime.event(event, self._clock.monotonic_ms())
        except DlogError as error:
            _logger.debug("what became of an effect was not noted: %s", error)
        finally:
            self._busy = False
        self.progressed()

    # --- the log -------------------------------------------------------------------------------

    def progressed(self) -> None:
        """Follows what may have been committed, or a change of leader; not while a request is half done."""
        if self._busy:
            self._again = True
            return
        self._busy = True
        try:
            self._again = True
            while self._again:
                self._again = False
                self._catch_up()
                self._callbacks.caught_up()
        finally:
            self._busy = False
        self._hand_out()

    def close(self) -> None:
        """Ends the host, as if another led: everyone who waits gets an error."""
        self._is_closed = True
        self.progressed()

    def _catch_up(self) -> None:
        """Brings the runtime to where the log is.  What this leads to is seen by the next round."""
        runtime, epoch = self.runtime, None if self._is_closed else self._log.leader_epoch()
        if self.epoch is not None:
            runtime.committed(self._log.committed_offset(self.epoch))
            if epoch != self.epoch:
                self._unload()
        if epoch is not None and self.epoch is None and not self._is_unfit:
            self.epoch = epoch
            runtime.elected(epoch)
            self._begin_load()

    def _unload(self) -> None:
        self._load = None
        self.runtime.leadership_lost()
        self._collect()
        self.epoch = None
        self._has_lost = True

    # --- loading -------------------------------------------------------------------------------

    def _begin_load(self) -> None:
        """Begins to read the log back, into an empty machine."""
        self.runtime.adopt(self._new_machine(), NO_OFFSET)
        self._load = Load(self)
        self._log.load(self._load)

    def _plan_load(self) -> None:
        if not self._is_load_planned:
            self._is_load_planned = True
            self._scheduler.call_at(self._clock.monotonic_ms() + self._load_again_ms, self._load_again)

    def _load_again(self) -> None:
        self._is_load_planned = False
        if self.runtime.phase is Phase.LOADING and self._load is None:
            self._begin_load()
        self.progressed()

    def finish_load(self, error: DlogError | None) -> None:
        """Ends the load under way."""
        self._load = None
        if error is not None:
            _logger.warning("the log cannot be read back yet: %s", error)
            self._plan_load()
            return
        was_busy, self._busy = self._busy, True
        try:
            self.runtime.loaded(self._clock.monotonic_ms())
        except DlogError as refusal:
            self._is_unfit = True
            self._unload()
            self._callbacks.failed(refusal)
        finally:
            self._busy = was_busy
        self.progressed()

    # --- what comes out ------------------------------------------------------------------------

    def _collect(self) -> bool:
        """Takes what the runtime has for others, of the present epoch; returns if its machine is gone."""
        outbox = self.runtime.take()
        if outbox.replies or outbox.effects:
            self._outgoing.append(_Outgoing(self.epoch, outbox))
        return outbox.reload

    def _hand_out(self) -> None:
        is_discarded = self._collect()
        if self._outgoing:
            outgoing, self._outgoing = self._outgoing, []
            for epoch, outbox in outgoing:
                for effect in outbox.effects:
                    self._callbacks.perform(effect, NO_OFFSET if epoch is None else epoch)
                for reply in outbox.replies:
                    self._reply(reply, epoch)
        has_lost, self._has_lost = self._has_lost, False
        if has_lost or is_discarded:
            self._callbacks.unloaded(has_lost)
        if self.runtime.phase is Phase.LOADING and self._load is None:
            self._plan_load()
        if self.is_active is not self._was_active:
            self._was_active = self.is_active
            self._callbacks.activity(self._was_active)
        self._arm()

    def _reply(self, reply: TicketReply[ResponseT], epoch: int | None) -> None:
        done = self._in_flight.pop(reply.ticket)
        if reply.error is None:
            outcome: Outcome[ResponseT] = Outcome(reply.response)
        else:
            outcome = Outcome(error=self._callbacks.map_error(reply.error))
        if not reply.needs_leadership:
            done(outcome)
            return

        def confirmed(error: DlogError | None) -> None:
            done(outcome if error is None else Outcome(error=self._callbacks.map_error(error)))

        if epoch != self.epoch:
            # What it was made from is of an earlier leadership: that this node leads now says nothing of it.
            confirmed(NotLeaderError("this node did not lead all the time"))
        else:
            self._confirm_read(confirmed)

    # --- time ----------------------------------------------------------------------------------

    def _arm(self) -> None:
        deadline_ms = self.runtime.next_deadline_ms()
        if deadline_ms is None:
            return
        if not self._log.is_writable():
            deadline_ms = max(deadline_ms, self._clock.monotonic_ms() + REST_MS)
        if self._wake_ms is None or deadline_ms < self._wake_ms:
            self._wake_ms = deadline_ms
            self._scheduler.call_at(deadline_ms, lambda: self._wake(deadline_ms))

    def _wake(self, planned_ms: int) -> None:
        if self._is_closed or self._wake_ms != planned_ms:
            return
        self._callbacks.before_tick()
        self._wake_ms = None
        if self._log.is_writable():
            self._tick(self._clock.monotonic_ms())
        self.progressed()

    def _tick(self, now_ms: int) -> None:
        runtime = self.runtime
        self._busy = True
        try:
            for _ in range(TICKS_MAX):
                deadline_ms = runtime.next_deadline_ms()
                if deadline_ms is None or deadline_ms > now_ms:
                    return
                runtime.tick(now_ms)
        finally:
            self._busy = False
