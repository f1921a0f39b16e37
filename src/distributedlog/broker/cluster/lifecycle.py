"""The lifecycle of a broker in its cluster: it registers, is unfenced, sends heartbeats, and shuts down.

| state                       | meaning                               | leaves by                            |
|-----------------------------|---------------------------------------|--------------------------------------|
| UNREGISTERED                | has no broker epoch                   | registered                           |
| FENCED                      | registered, but not unfenced          | unfenced                             |
| RUNNING                     | unfenced: may lead, and be in an ISR  | fenced; session expired              |
| SESSION_EXPIRED             | no answer for a session timeout       | unfenced; fenced                     |
| PENDING_CONTROLLED_SHUTDOWN | hands over what it leads              | shutdown allowed; session expired    |
| SHUTTING_DOWN               | sends no more heartbeats              |                                      |

A broker that is RUNNING when a shutdown is requested goes through a controlled shutdown; any other shuts down
at once.  A broker whose registration is lost is UNREGISTERED again.

Heartbeats carry how far the metadata is replayed here and how long the data loop took to answer: a broker
whose data loop is stuck is fenced by what it says itself.  A broker whose heartbeats no controller answers
knows after a session timeout that the controller has fenced it: its session has expired, and it must not
think that it leads.

Each answer grants the coordinators of this broker a lease, or none (decision 14).  A broker that asks to be
fenced, or to shut down, gives its lease up before it asks: the controller moves what it leads at once.
Told to a controller without waiting for the next heartbeat's turn are: that this broker has applied a change
that took a coordinator's partition from it, that it waits for others to have done so, and where logs end that
nobody leads any more.

What a crash does: the next process has another incarnation and registers anew.
"""

import logging
from collections.abc import Callable, Mapping
from enum import Enum
from itertools import islice
from typing import Final, NamedTuple

from distributedlog.broker.cluster.forwarding import ControllerForwarder
from distributedlog.broker.cluster.lease_grant import NO_LEASE, NO_OFFSET, LeaseGrant, lease_ms
from distributedlog.controller.features import has_hosts
from distributedlog.controller.image import MetadataImage
from distributedlog.controller.replica_faults import FAULTS_PER_HEARTBEAT_MAX, ReplicaFault
from distributedlog.controller.requests import (
    HeartbeatReply,
    HeartbeatRequest,
    RegisterBrokerReply,
    RegisterBrokerRequest,
    Response,
)
from distributedlog.controller.sessions.log_ends import LOG_ENDS_PER_HEARTBEAT_MAX, ReplicaLogEnd
from distributedlog.model.errors import (
    BrokerNotRegisteredError,
    DuplicateRegistrationError,
    InconsistentClusterIdError,
    InvalidRegistrationError,
    StaleBrokerEpochError,
    UnsupportedVersionError,
)
from distributedlog.model.ids import Uuid
from distributedlog.ports.clock import Clock
from distributedlog.ports.executor import Outcome
from distributedlog.ports.randomness import Randomness
from distributedlog.ports.scheduler import Scheduler

logger = logging.getLogger(__name__)

NO_EPOCH: Final = -1
REGISTER_AGAIN_MS: Final = 250
PENDING_INTERVAL_MS: Final = 50
"""The interval of heartbeats while one is awaited that unfences this broker, allows it to shut down, or says
that a coordinator has no predecessor any more."""


class LifecycleState(Enum):
    UNREGISTERED = "unregistered"
    FENCED = "fenced"
    RUNNING = "running"
    SESSION_EXPIRED = "session expired"
    PENDING_CONTROLLED_SHUTDOWN = "pending controlled shutdown"
    SHUTTING_DOWN = "shutting down"


class LifecycleEvent(Enum):
    REGISTERED = "registered"
    UNFENCED = "unfenced"
    FENCED = "fenced"
    SESSION_EXPIRED = "no heartbeat answered for a session timeout"
    REGISTRATION_LOST = "the controller knows another registration, or none"
    SHUTDOWN_REQUESTED = "shutdown requested"
    SHUTDOWN_ALLOWED = "the controller allows to shut down"


_S, _E = LifecycleState, LifecycleEvent
TRANSITIONS: Final[Mapping[tuple[LifecycleState, LifecycleEvent], LifecycleState]] = {
    (_S.UNREGISTERED, _E.REGISTERED): _S.FENCED,
    (_S.UNREGISTERED, _E.SHUTDOWN_REQUESTED): _S.SHUTTING_DOWN,
    (_S.FENCED, _E.UNFENCED): _S.RUNNING,
    (_S.FENCED, _E.FENCED): _S.FENCED,
    (_S.FENCED, _E.SESSION_EXPIRED): _S.FENCED,
    (_S.FENCED, _E.REGISTRATION_LOST): _S.UNREGISTERED,
    (_S.FENCED, _E.SHUTDOWN_REQUESTED): _S.SHUTTING_DOWN,
    (_S.RUNNING, _E.UNFENCED): _S.RUNNING,
    (_S.RUNNING, _E.FENCED): _S.FENCED,
    (_S.RUNNING, _E.SESSION_EXPIRED): _S.SESSION_EXPIRED,
    (_S.RUNNING, _E.REGISTRATION_LOST): _S.UNREGISTERED,
    (_S.RUNNING, _E.SHUTDOWN_REQUESTED): _S.PENDING_CONTROLLED_SHUTDOWN,
    (_S.SESSION_EXPIRED, _E.UNFENCED): _S.RUNNING,
    (_S.SESSION_EXPIRED, _E.FENCED): _S.FENCED,
    (_S.SESSION_EXPIRED, _E.SESSION_EXPIRED): _S.SESSION_EXPIRED,
    (_S.SESSION_EXPIRED, _E.REGISTRATION_LOST): _S.UNREGISTERED,
    (_S.SESSION_EXPIRED, _E.SHUTDOWN_REQUESTED): _S.SHUTTING_DOWN,
    (_S.PENDING_CONTROLLED_SHUTDOWN, _E.UNFENCED): _S.PENDING_CONTROLLED_SHUTDOWN,
    (_S.PENDING_CONTROLLED_SHUTDOWN, _E.FENCED): _S.PENDING_CONTROLLED_SHUTDOWN,
    (_S.PENDING_CONTROLLED_SHUTDOWN, _E.SESSION_EXPIRED): _S.SHUTTING_DOWN,
    (_S.PENDING_CONTROLLED_SHUTDOWN, _E.REGISTRATION_LOST): _S.SHUTTING_DOWN,
    (_S.PENDING_CONTROLLED_SHUTDOWN, _E.SHUTDOWN_ALLOWED): _S.SHUTTING_DOWN,
}
"""A pair that is not here cannot happen: a KeyError is a defect of the driver below."""

_FATAL_ERRORS: Final = (InconsistentClusterIdError, InvalidRegistrationError, UnsupportedVersionError)


class LifecycleTimes(NamedTuple):
    heartbeat_interval_ms: int = 500
    session_timeout_ms: int = 9_000
    registration_timeout_ms: int = 5_000
    data_loop_lag_ms_max: int = 6_750
    duplicate_timeout_ms: int = 60_000
    """How long another process may be alive under our id before it counts as a twin."""


class BrokerLifecycle:
    """Drives the table above.  Call it on the control loop only."""

    def __init__(
        self,
        registration: RegisterBrokerRequest,
        forwarder: ControllerForwarder,
        times: LifecycleTimes,
        *,
        clock: Clock,
        scheduler: Scheduler,
        randomness: Randomness,
        data_loop_lag_ms: Callable[[], int],
        changed: Callable[[LifecycleState], None],
        failed: Callable[[BaseException], None],
        prepare: Callable[[Callable[[], None]], None] = lambda ready: ready(),
        faults_taken: Callable[[tuple[ReplicaFault, ...]], None] = lambda faults: None,
        granted: Callable[[LeaseGrant], None] = lambda grant: None,
    ) -> None:
        """`failed` is called when the cluster will never register this broker as it is.  `prepare` is called
        when the metadata has been replayed up to the registration; the broker asks to be unfenced once it
        calls back.  `granted` gets the lease of this broker's coordinators, whenever it is another."""
        self.state = LifecycleState.UNREGISTERED
        self.epoch = NO_EPOCH
        self.heartbeats = 0
        self.heartbeats_failed = 0
        self._registration = registration
        self._forwarder = forwarder
        self._times = times
        self._heartbeat_interval_ms = times.heartbeat_interval_ms
        self._clock = clock
        self._scheduler = scheduler
        self._randomness = randomness
        self._lag_ms = data_loop_lag_ms
        self._changed = changed
        self._failed = failed
        self._prepare = prepare
        self._faults_taken = faults_taken
        self._faults: dict[tuple[Uuid, int], ReplicaFault] = {}
        self._log_ends: tuple[ReplicaLogEnd, ...] = ()
        self._is_prepared = False
        self._answered_ms = clock.monotonic_ms()
        self._granted = granted
        self.lease = NO_LEASE
        self._applied_offset = NO_OFFSET
        """The metadata offset that the data loop has applied."""
        self._awaited_offset = NO_OFFSET
        """The metadata offset that is to be settled: a coordinator waits for it, for a session at most."""
        self._awaited_until_ms = clock.monotonic_ms()
        self._is_in_flight = False
        self._is_urgent = False
        self._sequence = 0
        self._duplicate_since_ms: int | None = None
        self._registration_error: type[BaseException] | None = None
        """The error of the last registration: each is logged once."""
        self._shut_down: Callable[[], None] | None = None
        self._is_telling_host = False
        self._stopped = False

    # --- requests ------------------------------------------------------------------------------

    def start(self) -> None:
        self._register()

    def shut_down(self, done: Callable[[], None]) -> None:
        """Hands leaderships over; `done` is called when others have them, or no controller answers.

        The `done` of a second call replaces that of the first.
        """
        before = self.state
        if before is LifecycleState.SHUTTING_DOWN:
            done()
            return
        self._shut_down = done
        if before is LifecycleState.PENDING_CONTROLLED_SHUTDOWN:
            return
        self._move(LifecycleEvent.SHUTDOWN_REQUESTED)
        if self.state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN:
            self._answered_ms = self._clock.monotonic_ms()
            self._heartbeat_in(0)

    def stop(self) -> None:
        """Sends nothing more, as a crash would."""
        self._stopped = True

    def note_applied(self, offset: int, is_urgent: bool) -> None:
        """Notes what the data loop has applied; with `is_urgent` another broker waits to hear of it."""
        self._applied_offset = offset
        if is_urgent:
            self._hurry()

    def await_settled(self, offset: int) -> None:
        """Sends heartbeats until one is answered that tells this offset, or a later one, to be settled."""
        self._awaited_offset = max(self._awaited_offset, offset)
        self._awaited_until_ms = self._clock.monotonic_ms() + self._times.session_timeout_ms
        self._hurry()

    def _hurry(self) -> None:
        """Sends a heartbeat now, or as soon as the one is answered that is in flight."""
        self._is_urgent = True
        if not self._is_in_flight and self.state is LifecycleState.RUNNING:
            self._heartbeat_in(0)

    @property
    def is_data_loop_stuck(self) -> bool:
        return self._lag_ms() > self._times.data_loop_lag_ms_max

    def tell_fault(self, fault: ReplicaFault) -> None:
        """Tells the controller of a replica with the next heartbeat, which is sent at once if heartbeats are
        sent at all, and on until one takes it."""
        self._faults[fault[:2]] = fault
        if self._is_prepared and not self._stopped:
            self._heartbeat_in(0)

    def tell_log_ends(self, ends: tuple[ReplicaLogEnd, ...]) -> None:
        """Tells with every heartbeat, the first one at once, where logs end of partitions that nobody leads.
        These take the place of all that were told before."""
        self._log_ends = ends
        if ends:
            self._hurry()

    def take_session_timeout(self, session_timeout_ms: int, data_loop_lag_ms_max: int) -> None:
        """What the cluster's metadata says; heartbeats must come twice in it, whatever this node was told."""
        interval_ms = min(self._heartbeat_interval_ms, session_timeout_ms // 2)
        self._times = self._times._replace(
            heartbeat_interval_ms=interval_ms,
            session_timeout_ms=session_timeout_ms,
            data_loop_lag_ms_max=data_loop_lag_ms_max,
        )

    # --- registration --------------------------------------------------------------------------

    def _register(self) -> None:
        if not self._stopped and self.state is LifecycleState.UNREGISTERED:
            self._forwarder.ask(
                self._registration, self._times.registration_timeout_ms, self._registered, until_visible=False
            )

    def _registered(self, outcome: Outcome[Response]) -> None:
        if self._stopped or self.state is not LifecycleState.UNREGISTERED:
            return
        error = outcome.error
        if error is None:
            reply = outcome.value()
            assert isinstance(reply, RegisterBrokerReply)
            self.epoch = reply.broker_epoch
            self._duplicate_since_ms = None
            self._registration_error = None
            self._answered_ms = self._clock.monotonic_ms()
            self._move(LifecycleEvent.REGISTERED)
            self._forwarder.replica.when_at(self.epoch, lambda: self._prepare(self._prepared))
        elif isinstance(error, _FATAL_ERRORS) or self._note_duplicate(error):
            self._failed(error)
        else:
            if self._registration_error is not type(error):
                self._registration_error = type(error)
                logger.warning("not registered yet, and trying on: %s", error)
            self._after(self._jittered(REGISTER_AGAIN_MS), self._register)

    def _prepared(self) -> None:
        """Begins to send heartbeats once the data plane shows what the registration found: this broker leads
        nothing before it is unfenced, and no heartbeat unfences it but one that is sent from now on."""
        self._is_prepared = True
        self._grant(
            LeaseGrant(self._clock.monotonic_ms() + lease_ms(self._times.session_timeout_ms), self.epoch)
        )
        self._heartbeat_in(0)

    def _note_duplicate(self, error: BaseException) -> bool:
        """Notes since when another process is registered under our id; returns whether it is a twin: one that
        was killed counts as alive for a session timeout, a twin for ever."""
        if not isinstance(error, DuplicateRegistrationError):
            return False
        now_ms = self._clock.monotonic_ms()
        if self._duplicate_since_ms is None:
            self._duplicate_since_ms = now_ms
        return now_ms - self._duplicate_since_ms >= self._times.duplicate_timeout_ms

    def tell_host(self, image: MetadataImage) -> None:
        """Registers this process once more if the level has risen to one that keeps the host that it said."""
        known = image.brokers.get(self._registration.broker_id)
        if (
            known is None
            or known.epoch != self.epoch
            or known.host == self._registration.host
            or not has_hosts(image.level)
            or self._is_telling_host
            or self._stopped
        ):
            return
        self._is_telling_host = True

        def told(outcome: Outcome[Response]) -> None:
            self._is_telling_host = False
            if outcome.error is not None:
                self._after(
                    self._jittered(REGISTER_AGAIN_MS), lambda: self.tell_host(self._forwarder.replica.image)
                )

        self._forwarder.ask(self._registration, self._times.registration_timeout_ms, told, until_visible=True)

    # --- heartbeats ----------------------------------------------------------------------------

    def _heartbeat_in(self, pause_ms: int) -> None:
        """Plans the next heartbeat, in place of one that was planned."""
        self._sequence += 1
        number = self._sequence
        self._after(pause_ms, lambda: self._send_heartbeat(number))

    def _send_heartbeat(self, number: int) -> None:
        if (
            self._stopped
            or number != self._sequence
            or self.state in (LifecycleState.UNREGISTERED, LifecycleState.SHUTTING_DOWN)
        ):
            return
        told = tuple(islice(self._faults.values(), FAULTS_PER_HEARTBEAT_MAX))
        log_ends = self._log_ends[:LOG_ENDS_PER_HEARTBEAT_MAX]
        # Those that did not fit come first the next time.
        self._log_ends = self._log_ends[LOG_ENDS_PER_HEARTBEAT_MAX:] + log_ends
        request = HeartbeatRequest(
            broker_id=self._registration.broker_id,
            broker_epoch=self.epoch,
            metadata_offset=self._forwarder.replica.image.offset,
            # Nobody is unfenced before all that it lacks is told.
            want_fence=self.is_data_loop_stuck or len(told) < len(self._faults),
            want_shutdown=self.state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN,
            data_loop_lag_ms=self._lag_ms(),
            replica_faults=told,
            applied_offset=self._applied_offset,
            log_ends=log_ends,
        )
        if request.want_fence or request.want_shutdown:
            self._grant(NO_LEASE)
        self._is_in_flight, self._is_urgent = True, False
        self.heartbeats += 1
        sent_ms = self._clock.monotonic_ms()

        def answered(outcome: Outcome[Response]) -> None:
            if not self._stopped and number == self._sequence:
                self._is_in_flight = False
                if outcome.error is None:
                    self._take_faults(told, outcome.value())
                    self._take_lease(request, outcome.value(), sent_ms)
                self._take_reply(outcome)

        self._forwarder.ask(request, self._heartbeat_timeout_ms(), answered, until_visible=False)

    def _take_faults(self, told: tuple[ReplicaFault, ...], reply: Response) -> None:
        """Stops to tell what the controller has acted on; one that knows of no faults says nothing."""
        if isinstance(reply, HeartbeatReply) and reply.took_replica_faults:
            for fault in told:
                if self._faults.get(fault[:2]) == fault:
                    del self._faults[fault[:2]]
            self._faults_taken(told)

    def _take_lease(self, request: HeartbeatRequest, reply: Response, sent_ms: int) -> None:
        """Takes what an answer grants: a lease from when the heartbeat was sent."""
        assert isinstance(reply, HeartbeatReply)
        settled_offset = reply.settled_offset
        if settled_offset is None or settled_offset >= self._awaited_offset:
            self._awaited_offset = NO_OFFSET  # or nobody is there who would ever say so
        if reply.is_fenced or request.want_fence or request.want_shutdown:
            self._grant(NO_LEASE)
            return
        end_ms = sent_ms + lease_ms(self._times.session_timeout_ms)
        lease_offset = NO_OFFSET if reply.lease_offset is None else reply.lease_offset
        self._grant(LeaseGrant(end_ms, lease_offset, NO_OFFSET if settled_offset is None else settled_offset))

    def _grant(self, lease: LeaseGrant) -> None:
        if lease != self.lease:
            self.lease = lease
            self._granted(lease)

    def _heartbeat_timeout_ms(self) -> int:
        """Returns how long a heartbeat may take: not beyond the session, at whose end this broker must
        know."""
        session_ms = self._times.session_timeout_ms
        left_ms = self._answered_ms + session_ms - self._clock.monotonic_ms()
        return min(session_ms // 2, left_ms) if left_ms > 0 else session_ms // 2

    def _take_reply(self, outcome: Outcome[Response]) -> None:
        if self.state in (LifecycleState.UNREGISTERED, LifecycleState.SHUTTING_DOWN):
            return
        error, now_ms = outcome.error, self._clock.monotonic_ms()
        if isinstance(error, StaleBrokerEpochError | BrokerNotRegisteredError):
            self._move(LifecycleEvent.REGISTRATION_LOST)
            self._register()
            return
        if error is not None:
            self.heartbeats_failed += 1
            if now_ms - self._answered_ms >= self._times.session_timeout_ms:
                self._move(LifecycleEvent.SESSION_EXPIRED)
            self._heartbeat_in(self._jittered(self._times.heartbeat_interval_ms // 4))
            return
        self._answered_ms = now_ms
        reply = outcome.value()
        assert isinstance(reply, HeartbeatReply)
        self._follow_reply(reply)

    def _follow_reply(self, reply: HeartbeatReply) -> None:
        if self.state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN and reply.should_shut_down:
            self._move(LifecycleEvent.SHUTDOWN_ALLOWED)
            return
        self._move(LifecycleEvent.FENCED if reply.is_fenced else LifecycleEvent.UNFENCED)
        awaits = self.state in (LifecycleState.FENCED, LifecycleState.PENDING_CONTROLLED_SHUTDOWN)
        if self._awaited_offset != NO_OFFSET and self._clock.monotonic_ms() < self._awaited_until_ms:
            awaits = True
        is_pending = awaits and not self.is_data_loop_stuck
        interval_ms = PENDING_INTERVAL_MS if is_pending else self._jittered(self._times.heartbeat_interval_ms)
        self._heartbeat_in(0 if self._is_urgent else interval_ms)

    # --- inside --------------------------------------------------------------------------------

    def _move(self, event: LifecycleEvent) -> None:
        before, self.state = self.state, TRANSITIONS[self.state, event]
        if self.state is before:
            return
        self._changed(self.state)
        if self.state is LifecycleState.SHUTTING_DOWN and self._shut_down is not None:
            done, self._shut_down = self._shut_down, None
            done()

    def _jittered(self, pause_ms: int) -> int:
        return self._randomness.between(pause_ms * 9 // 10, pause_ms)

    def _after(self, pause_ms: int, callback: Callable[[], None]) -> None:
        def unless_stopped() -> None:
            if not self._stopped:
                callback()

        self._scheduler.call_at(self._clock.monotonic_ms() + pause_ms, unless_stopped)
