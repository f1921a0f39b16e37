"""A broker's life in its cluster: it registers, is let in, is heard, and leaves.

| state       | meaning                                         | leaves by                                 |
|-------------|-------------------------------------------------|-------------------------------------------|
| OUTSIDE     | not registered                                  | registered                                |
| FENCED      | registered, not (or no longer) let in           | let in; forgotten; asked to leave         |
| SERVING     | may lead, and be in an ISR                      | fenced; cut off; forgotten; asked to leave|
| CUT_OFF     | not heard by a controller for a session timeout | heard again; forgotten; asked to leave    |
| LEAVING     | hands over what it leads                        | let go; out of time                       |
| LEFT        | done                                            |                                           |

Heartbeats carry how far the metadata is replayed here and how long the data loop took to answer: a broker
whose data loop is stuck is fenced by what it says itself.  One that no controller can hear knows so after a
session timeout, when the controller has fenced it: it is CUT_OFF, and must not think that it leads.

What a crash does: the next process has another incarnation and registers anew.
"""

import logging
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from distributedlog.broker.forwarding import ControllerForwarder
from distributedlog.broker.raft_driver import Scheduler
from distributedlog.controller.requests import (
    HeartbeatReply,
    HeartbeatRequest,
    RegisterBrokerReply,
    RegisterBrokerRequest,
    Response,
)
from distributedlog.model.errors import (
    BrokerNotRegisteredError,
    DuplicateRegistrationError,
    InconsistentClusterIdError,
    InvalidRegistrationError,
    StaleBrokerEpochError,
    UnsupportedVersionError,
)
from distributedlog.ports.clock import Clock
from distributedlog.ports.executor import Outcome
from distributedlog.ports.randomness import Randomness

logger = logging.getLogger(__name__)

NO_EPOCH: Final = -1
REGISTER_AGAIN_MS: Final = 250
HASTE_MS: Final = 50
"""Between heartbeats while something is awaited: being let in, being let go."""


class LifeState(Enum):
    OUTSIDE = "outside"
    FENCED = "fenced"
    SERVING = "serving"
    CUT_OFF = "cut off"
    LEAVING = "leaving"
    LEFT = "left"


class LifeEvent(Enum):
    REGISTERED = "registered"
    LET_IN = "let in"
    FENCED = "fenced"
    UNHEARD = "unheard for a session timeout"
    FORGOTTEN = "the controller knows another registration, or none"
    ASKED_TO_LEAVE = "asked to leave"
    LET_GO = "let go"


_S, _E = LifeState, LifeEvent
TRANSITIONS: Final[Mapping[tuple[LifeState, LifeEvent], LifeState]] = {
    (_S.OUTSIDE, _E.REGISTERED): _S.FENCED,
    (_S.OUTSIDE, _E.ASKED_TO_LEAVE): _S.LEFT,
    (_S.FENCED, _E.LET_IN): _S.SERVING,
    (_S.FENCED, _E.FENCED): _S.FENCED,
    (_S.FENCED, _E.UNHEARD): _S.FENCED,
    (_S.FENCED, _E.FORGOTTEN): _S.OUTSIDE,
    (_S.FENCED, _E.ASKED_TO_LEAVE): _S.LEFT,
    (_S.SERVING, _E.LET_IN): _S.SERVING,
    (_S.SERVING, _E.FENCED): _S.FENCED,
    (_S.SERVING, _E.UNHEARD): _S.CUT_OFF,
    (_S.SERVING, _E.FORGOTTEN): _S.OUTSIDE,
    (_S.SERVING, _E.ASKED_TO_LEAVE): _S.LEAVING,
    (_S.CUT_OFF, _E.LET_IN): _S.SERVING,
    (_S.CUT_OFF, _E.FENCED): _S.FENCED,
    (_S.CUT_OFF, _E.UNHEARD): _S.CUT_OFF,
    (_S.CUT_OFF, _E.FORGOTTEN): _S.OUTSIDE,
    (_S.CUT_OFF, _E.ASKED_TO_LEAVE): _S.LEFT,
    (_S.LEAVING, _E.LET_IN): _S.LEAVING,
    (_S.LEAVING, _E.FENCED): _S.LEAVING,
    (_S.LEAVING, _E.UNHEARD): _S.LEFT,
    (_S.LEAVING, _E.FORGOTTEN): _S.LEFT,
    (_S.LEAVING, _E.LET_GO): _S.LEFT,
}
"""A pair that is not here cannot happen: a KeyError is a defect of the driver below."""

_REFUSED_FOR_GOOD: Final = (InconsistentClusterIdError, InvalidRegistrationError, UnsupportedVersionError)


class LifeTimes(NamedTuple):
    heartbeat_interval_ms: int = 1_000
    session_timeout_ms: int = 9_000
    registration_timeout_ms: int = 5_000
    data_loop_lag_ms_max: int = 6_000
    duplicate_patience_ms: int = 60_000
    """How long another process may be alive under our id, before we take it for a twin."""


class BrokerLife:
    """Drives the table above.  Call it on the control loop only."""

    def __init__(
        self,
        registration: RegisterBrokerRequest,
        forwarder: ControllerForwarder,
        times: LifeTimes,
        *,
        clock: Clock,
        scheduler: Scheduler,
        randomness: Randomness,
        data_loop_lag_ms: Callable[[], int],
        changed: Callable[[LifeState], None],
        failed: Callable[[BaseException], None],
        prepare: Callable[[Callable[[], None]], None] = lambda ready: ready(),
    ) -> None:
        """`failed` is told when the cluster will never take this broker as it is.  `prepare` is called when
        the metadata has been replayed up to the registration; the broker asks to be let in once it calls
        back."""
        self.state = LifeState.OUTSIDE
        self.epoch = NO_EPOCH
        self.heartbeats = 0
        self.heartbeats_failed = 0
        self._registration = registration
        self._forwarder = forwarder
        self._times = times
        self._clock = clock
        self._scheduler = scheduler
        self._randomness = randomness
        self._lag_ms = data_loop_lag_ms
        self._changed = changed
        self._failed = failed
        self._prepare = prepare
        self._heard_ms = clock.monotonic_ms()
        self.lease_end_ms = clock.monotonic_ms()
        """Until then no controller has fenced this broker: a session from when the last heartbeat that was
        answered was sent.  Another thread may read it."""
        self._sequence = 0
        self._duplicate_since_ms: int | None = None
        self._refused_why: type[BaseException] | None = None
        """Of the last registration; what is said of it is said once."""
        self._left: Callable[[], None] | None = None
        self._stopped = False

    # --- requests ------------------------------------------------------------------------------

    def start(self) -> None:
        self._register()

    def leave(self, left: Callable[[], None]) -> None:
        """Hands leaderships over; `left` is called when others have them, or nobody answers.

        Who asks again takes the place of who asked before.
        """
        before = self.state
        if before is LifeState.LEFT:
            left()
            return
        self._left = left
        if before is LifeState.LEAVING:
            return
        self._move(LifeEvent.ASKED_TO_LEAVE)
        if self.state is LifeState.LEAVING:
            self._heard_ms = self._clock.monotonic_ms()
            self._beat_in(0)

    def stop(self) -> None:
        """Sends nothing more, as a crash would."""
        self._stopped = True

    @property
    def is_data_loop_stuck(self) -> bool:
        return self._lag_ms() > self._times.data_loop_lag_ms_max

    # --- registration --------------------------------------------------------------------------

    def _register(self) -> None:
        if not self._stopped and self.state is LifeState.OUTSIDE:
            self._forwarder.ask(
                self._registration, self._times.registration_timeout_ms, self._registered, until_visible=False
            )

    def _registered(self, outcome: Outcome[Response]) -> None:
        if self._stopped or self.state is not LifeState.OUTSIDE:
            return
        error = outcome.error
        if error is None:
            reply = outcome.value()
            assert isinstance(reply, RegisterBrokerReply)
            self.epoch = reply.broker_epoch
            self._duplicate_since_ms = None
            self._refused_why = None
            self._heard_ms = self._clock.monotonic_ms()
            self._move(LifeEvent.REGISTERED)
            self._forwarder.replica.when_at(self.epoch, lambda: self._prepare(self._prepared))
        elif isinstance(error, _REFUSED_FOR_GOOD) or self._is_duplicate_for_good(error):
            self._failed(error)
        else:
            if self._refused_why is not type(error):
                self._refused_why = type(error)
                logger.warning("not registered yet, and trying on: %s", error)
            self._after(self._jittered(REGISTER_AGAIN_MS), self._register)

    def _prepared(self) -> None:
        """The data plane shows what the registration found: this broker leads nothing before it is let in,
        and is let in by no heartbeat but one that is sent from now on."""
        self.lease_end_ms = self._clock.monotonic_ms() + self._times.session_timeout_ms
        self._beat_in(0)

    def _is_duplicate_for_good(self, error: BaseException) -> bool:
        """A predecessor that was killed counts as alive for a session timeout; a twin counts for ever."""
        if not isinstance(error, DuplicateRegistrationError):
            return False
        now_ms = self._clock.monotonic_ms()
        if self._duplicate_since_ms is None:
            self._duplicate_since_ms = now_ms
        return now_ms - self._duplicate_since_ms >= self._times.duplicate_patience_ms

    # --- heartbeats ----------------------------------------------------------------------------

    def _beat_in(self, pause_ms: int) -> None:
        """The next heartbeat, in place of one that was planned."""
        self._sequence += 1
        number = self._sequence
        self._after(pause_ms, lambda: self._beat(number))

    def _beat(self, number: int) -> None:
        if self._stopped or number != self._sequence or self.state in (LifeState.OUTSIDE, LifeState.LEFT):
            return
        request = HeartbeatRequest(
            broker_id=self._registration.broker_id,
            broker_epoch=self.epoch,
            metadata_offset=self._forwarder.replica.image.offset,
            want_fence=self.is_data_loop_stuck,
            want_shutdown=self.state is LifeState.LEAVING,
            data_loop_lag_ms=self._lag_ms(),
        )
        self.heartbeats += 1
        sent_ms = self._clock.monotonic_ms()

        def answered(outcome: Outcome[Response]) -> None:
            if not self._stopped and number == self._sequence:
                if outcome.error is None:
                    self.lease_end_ms = sent_ms + self._times.session_timeout_ms
                self._heard(outcome)

        self._forwarder.ask(request, self._patience_ms(), answered, until_visible=False)

    def _patience_ms(self) -> int:
        """How long a heartbeat may take.  Not beyond the session: its end is when we must know."""
        session_ms = self._times.session_timeout_ms
        left_ms = self._heard_ms + session_ms - self._clock.monotonic_ms()
        return min(session_ms // 2, left_ms) if left_ms > 0 else session_ms // 2

    def _heard(self, outcome: Outcome[Response]) -> None:
        if self.state in (LifeState.OUTSIDE, LifeState.LEFT):
            return
        error, now_ms = outcome.error, self._clock.monotonic_ms()
        if isinstance(error, StaleBrokerEpochError | BrokerNotRegisteredError):
            self._move(LifeEvent.FORGOTTEN)
            self._register()
            return
        if error is not None:
            self.heartbeats_failed += 1
            if now_ms - self._heard_ms >= self._times.session_timeout_ms:
                self._move(LifeEvent.UNHEARD)
            self._beat_in(self._jittered(self._times.heartbeat_interval_ms // 4))
            return
        self._heard_ms = now_ms
        reply = outcome.value()
        assert isinstance(reply, HeartbeatReply)
        self._obey(reply)

    def _obey(self, reply: HeartbeatReply) -> None:
        if self.state is LifeState.LEAVING and reply.should_shut_down:
            self._move(LifeEvent.LET_GO)
            return
        self._move(LifeEvent.FENCED if reply.is_fenced else LifeEvent.LET_IN)
        awaits = self.state in (LifeState.FENCED, LifeState.LEAVING) and not self.is_data_loop_stuck
        self._beat_in(HASTE_MS if awaits else self._jittered(self._times.heartbeat_interval_ms))

    # --- inside --------------------------------------------------------------------------------

    def _move(self, event: LifeEvent) -> None:
        before, self.state = self.state, TRANSITIONS[self.state, event]
        if self.state is before:
            return
        self._changed(self.state)
        if self.state is LifeState.LEFT and self._left is not None:
            left, self._left = self._left, None
            left()

    def _jittered(self, pause_ms: int) -> int:
        return self._randomness.between(pause_ms * 9 // 10, pause_ms)

    def _after(self, pause_ms: int, callback: Callable[[], None]) -> None:
        def unless_stopped() -> None:
            if not self._stopped:
                callback()

        self._scheduler.call_at(self._clock.monotonic_ms() + pause_ms, unless_stopped)
