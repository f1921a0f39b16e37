"""A broker's lifecycle in its cluster: every row of its table, and the clocks in it."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from distributedlog.broker.cluster.forwarding import ControllerForwarder
from distributedlog.broker.cluster.lease_grant import NO_LEASE, NO_OFFSET, LeaseGrant, lease_ms
from distributedlog.broker.cluster.lifecycle import (
    PENDING_INTERVAL_MS,
    REGISTER_AGAIN_MS,
    TRANSITIONS,
    BrokerLifecycle,
    LifecycleEvent,
    LifecycleState,
    LifecycleTimes,
)
from distributedlog.broker.cluster.metadata import MetadataReplica
from distributedlog.control.contract import ControllerReply
from distributedlog.controller.bundles import encode_bundle
from distributedlog.controller.features import LEVEL_MAX, versioned
from distributedlog.controller.records import NoOp
from distributedlog.controller.replica_faults import FAULTS_PER_HEARTBEAT_MAX, Fault, ReplicaFault
from distributedlog.controller.requests import (
    HeartbeatReply,
    HeartbeatRequest,
    RegisterBrokerReply,
    RegisterBrokerRequest,
    Request,
    Response,
)
from distributedlog.model.errors import (
    BrokerNotRegisteredError,
    DlogError,
    DuplicateRegistrationError,
    InconsistentClusterIdError,
    InvalidRegistrationError,
    InvalidRequestError,
    StaleBrokerEpochError,
    UnreachableError,
    UnsupportedVersionError,
)
from distributedlog.model.ids import Uuid
from distributedlog.ports.executor import Done, Outcome
from tests.simulation.clock import SeededRandomness
from tests.unit.broker.control_stage import Timers, registration

TIMES = LifecycleTimes()
INTERVAL_MS, SESSION_MS = TIMES.heartbeat_interval_ms, TIMES.session_timeout_ms
LEASE_MS = lease_ms(SESSION_MS)
EPOCH = 40
S, E = LifecycleState, LifecycleEvent


class Call(NamedTuple):
    request: Request
    at_ms: int
    done: Done[ControllerReply]


class Bench:
    """A broker, and the one voter that it knows: a test answers for it, or lets it be silent."""

    def __init__(self, *, hold_back: bool = False, host: str | None = None) -> None:
        self.timers = Timers()
        self.replica = MetadataReplica()
        self.calls: list[Call] = []
        self.states: list[LifecycleState] = []
        self.failures: list[BaseException] = []
        self.shut_downs: list[str] = []
        self.lag_ms = 0
        self.taken: list[tuple[ReplicaFault, ...]] = []
        self.leases: list[LeaseGrant] = []
        self.prepared: list[Callable[[], None]] = []
        forwarder = ControllerForwarder(
            9,
            [1],
            self,
            None,
            self.replica,
            clock=self.timers.clock,
            scheduler=self.timers,
            randomness=SeededRandomness(1),
        )
        self.lifecycle = BrokerLifecycle(
            registration(9)._replace(host=host),
            forwarder,
            TIMES,
            clock=self.timers.clock,
            scheduler=self.timers,
            randomness=SeededRandomness(2),
            data_loop_lag_ms=lambda: self.lag_ms,
            changed=self.states.append,
            failed=self.failures.append,
            prepare=self.prepared.append if hold_back else lambda ready: ready(),
            faults_taken=self.taken.append,
            granted=self.leases.append,
        )

    # --- the voter -----------------------------------------------------------------------------

    def call(self, node_id: int, request: Request, timeout_ms: int, done: Done[ControllerReply]) -> None:
        self.calls.append(Call(request, self.timers.clock.monotonic_ms(), done))

    def answer(self, response: Response) -> None:
        self.calls.pop().done(Outcome(ControllerReply(response, -1)))

    def refuse(self, error: DlogError) -> None:
        self.calls.pop().done(Outcome(error=error))

    def replay_to(self, offset: int) -> None:
        self.replica.handle_entry(encode_bundle(versioned([NoOp()], LEVEL_MAX)), offset)
        self.replica.publish()

    def reply(
        self,
        *,
        fenced: bool = False,
        may_go: bool = False,
        lease_offset: int | None = None,
        settled_offset: int | None = None,
    ) -> None:
        self.answer(
            HeartbeatReply(
                is_caught_up=True,
                is_fenced=fenced,
                in_controlled_shutdown=False,
                should_shut_down=may_go,
                lease_offset=lease_offset,
                settled_offset=settled_offset,
            )
        )

    # --- time ----------------------------------------------------------------------------------

    def wait_for_call(self, at_most_ms: int = INTERVAL_MS) -> Request:
        """Time passes until the broker asks for something."""
        for step_ms in (0, *[1] * at_most_ms):
            self.timers.advance(step_ms)
            if self.calls:
                return self.calls[-1].request
        raise AssertionError("the broker asks for nothing")

    def wait_for_heartbeat(self) -> HeartbeatRequest:
        request = self.wait_for_call()
        assert isinstance(request, HeartbeatRequest)
        return request

    def expire_session(self) -> int:
        """No answer comes any more, until the broker has noticed; how long that took."""
        started_ms, states = self.timers.clock.monotonic_ms(), len(self.states)
        while len(self.states) == states and self.timers.clock.monotonic_ms() < started_ms + 3 * SESSION_MS:
            self.timers.advance(1)
        return self.timers.clock.monotonic_ms() - started_ms

    # --- the table -----------------------------------------------------------------------------

    def reach(self, state: LifecycleState) -> None:
        self.lifecycle.start()
        if state is S.UNREGISTERED:
            return
        self.cause(E.REGISTERED)
        if state is not S.FENCED:
            self.cause(E.UNFENCED)
        if state is S.SESSION_EXPIRED:
            self.cause(E.SESSION_EXPIRED)
        if state is S.PENDING_CONTROLLED_SHUTDOWN:
            self.cause(E.SHUTDOWN_REQUESTED)
        assert self.lifecycle.state is state

    def cause(self, event: LifecycleEvent) -> None:
        if event is E.REGISTERED:
            assert isinstance(self.wait_for_call(), RegisterBrokerRequest)
            self.answer(RegisterBrokerReply(EPOCH))
            self.replay_to(EPOCH)
        elif event is E.SHUTDOWN_REQUESTED:
            self.lifecycle.shut_down(lambda: self.shut_downs.append("first"))
        elif event is E.SESSION_EXPIRED:
            self.wait_for_heartbeat()
            self.timers.advance(2 * SESSION_MS)
        else:
            self.wait_for_heartbeat()
            if event is E.REGISTRATION_LOST:
                self.refuse(StaleBrokerEpochError("who?"))
            else:
                self.reply(fenced=event is E.FENCED, may_go=event is E.SHUTDOWN_ALLOWED)


# --- every row ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "event"), list(TRANSITIONS), ids=lambda value: str(value.name).lower().replace("_", "-")
)
def test_every_event_leads_where_the_table_says(state: LifecycleState, event: LifecycleEvent) -> None:
    bench = Bench()
    bench.reach(state)
    bench.cause(event)
    assert bench.lifecycle.state is TRANSITIONS[state, event]


@pytest.mark.parametrize(
    "state", [each for each in LifecycleState if each is not LifecycleState.SHUTTING_DOWN]
)
def test_a_shutdown_ends_and_calls_back_once(state: LifecycleState) -> None:
    bench = Bench()
    bench.reach(state)
    if state is not S.PENDING_CONTROLLED_SHUTDOWN:
        bench.cause(E.SHUTDOWN_REQUESTED)
    if bench.lifecycle.state is S.PENDING_CONTROLLED_SHUTDOWN:
        bench.cause(E.SHUTDOWN_ALLOWED)
    assert bench.lifecycle.state is S.SHUTTING_DOWN
    assert bench.shut_downs == ["first"]
    bench.timers.advance(3 * SESSION_MS)
    assert bench.shut_downs == ["first"]


def test_pairs_that_are_not_in_the_table_do_not_come_about() -> None:
    """UNREGISTERED and SHUTTING_DOWN have no heartbeat in flight whose reply counts, and only who is in
    controlled shutdown is allowed to shut down.  A second request to shut down finds it pending or done, and
    only UNREGISTERED registers."""
    missing = {(state, event) for state in S for event in E} - set(TRANSITIONS)
    replied = {E.UNFENCED, E.FENCED, E.SESSION_EXPIRED, E.REGISTRATION_LOST, E.SHUTDOWN_ALLOWED}
    assert missing == (
        {(S.UNREGISTERED, event) for event in replied}
        | {(S.SHUTTING_DOWN, event) for event in E}
        | {(state, E.REGISTERED) for state in S if state is not S.UNREGISTERED}
        | {(state, E.SHUTDOWN_ALLOWED) for state in (S.FENCED, S.RUNNING, S.SESSION_EXPIRED)}
        | {(S.PENDING_CONTROLLED_SHUTDOWN, E.SHUTDOWN_REQUESTED)}
    )


def test_a_heartbeat_that_is_answered_after_the_shutdown_means_nothing() -> None:
    bench = Bench()
    bench.reach(S.SESSION_EXPIRED)
    bench.wait_for_heartbeat()
    late, asked = bench.calls[-1], len(bench.calls)
    bench.cause(E.SHUTDOWN_REQUESTED)
    late.done(Outcome(error=StaleBrokerEpochError("who?")))
    assert bench.lifecycle.state is S.SHUTTING_DOWN
    bench.timers.advance(SESSION_MS)
    assert len(bench.calls) == asked, "and nothing is asked any more"


def test_a_registration_that_is_answered_after_the_shutdown_means_nothing() -> None:
    bench = Bench()
    bench.reach(S.UNREGISTERED)
    bench.wait_for_call()
    bench.cause(E.SHUTDOWN_REQUESTED)
    bench.answer(RegisterBrokerReply(EPOCH))
    assert bench.states == [S.SHUTTING_DOWN]


def test_a_second_shutdown_replaces_the_callback_of_the_first() -> None:
    bench = Bench()
    bench.reach(S.PENDING_CONTROLLED_SHUTDOWN)
    bench.lifecycle.shut_down(lambda: bench.shut_downs.append("second"))
    bench.cause(E.SHUTDOWN_ALLOWED)
    assert bench.shut_downs == ["second"]
    bench.lifecycle.shut_down(lambda: bench.shut_downs.append("third"))
    assert bench.shut_downs == ["second", "third"]


# --- registering -------------------------------------------------------------------------------


def test_a_broker_registers_until_it_is_taken() -> None:
    bench = Bench()
    bench.lifecycle.start()
    for error in (DuplicateRegistrationError("alive"), InvalidRequestError("not now")):
        bench.refuse(error)
        assert isinstance(bench.wait_for_call(REGISTER_AGAIN_MS), RegisterBrokerRequest)
    bench.timers.advance(TIMES.registration_timeout_ms)
    bench.calls.clear()
    assert isinstance(bench.wait_for_call(REGISTER_AGAIN_MS + 500), RegisterBrokerRequest)
    bench.cause(E.REGISTERED)
    assert bench.lifecycle.epoch == EPOCH
    assert bench.failures == []


def test_why_a_broker_is_not_taken_is_said_once_for_each_reason(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.lifecycle.start()
    for error in (*[DuplicateRegistrationError("a twin")] * 3, *[InvalidRequestError("not now")] * 2):
        bench.refuse(error)
        bench.wait_for_call(REGISTER_AGAIN_MS)
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == ["a twin", "not now"]


@pytest.mark.parametrize(
    "error",
    [InconsistentClusterIdError("x"), InvalidRegistrationError("x"), UnsupportedVersionError("x")],
    ids=lambda error: type(error).__name__,
)
def test_a_broker_that_the_cluster_will_never_take_stops(error: DlogError) -> None:
    bench = Bench()
    bench.lifecycle.start()
    bench.refuse(error)
    assert bench.failures == [error]
    bench.timers.advance(60_000)
    assert bench.calls == []


def test_a_predecessor_that_seems_alive_is_waited_for_and_a_twin_is_not_waited_for_for_ever() -> None:
    bench = Bench()
    bench.lifecycle.start()
    started_ms = bench.timers.clock.monotonic_ms()
    while not bench.failures:
        bench.wait_for_call(REGISTER_AGAIN_MS)
        bench.refuse(DuplicateRegistrationError("alive"))
    waited_ms = bench.timers.clock.monotonic_ms() - started_ms
    assert TIMES.duplicate_timeout_ms <= waited_ms <= TIMES.duplicate_timeout_ms + REGISTER_AGAIN_MS


def test_a_broker_whose_registration_is_lost_registers_again_as_the_same_process() -> None:
    for error in (StaleBrokerEpochError("who?"), BrokerNotRegisteredError("who?")):
        bench = Bench()
        bench.reach(S.RUNNING)
        bench.wait_for_heartbeat()
        bench.refuse(error)
        again = bench.wait_for_call()
        assert again == registration(9)
        bench.answer(RegisterBrokerReply(EPOCH + 5))
        bench.replay_to(EPOCH + 5)
        assert bench.wait_for_heartbeat().broker_epoch == EPOCH + 5


def test_a_broker_asks_to_be_unfenced_once_its_own_image_has_its_registration() -> None:
    bench = Bench()
    bench.lifecycle.start()
    bench.answer(RegisterBrokerReply(EPOCH))
    bench.replay_to(EPOCH - 1)
    bench.timers.advance(2 * INTERVAL_MS)
    assert bench.calls == []
    bench.replay_to(EPOCH)
    request = bench.wait_for_heartbeat()
    assert (request.broker_epoch, request.metadata_offset) == (EPOCH, EPOCH)


def test_a_broker_asks_to_be_unfenced_once_it_is_prepared() -> None:
    bench = Bench(hold_back=True)
    bench.lifecycle.start()
    bench.answer(RegisterBrokerReply(EPOCH))
    bench.replay_to(EPOCH)
    bench.timers.advance(2 * INTERVAL_MS)
    assert bench.calls == []
    bench.prepared[0]()
    bench.wait_for_heartbeat()


# --- heartbeats --------------------------------------------------------------------------------


def test_heartbeats_come_sooner_while_a_reply_is_awaited_than_while_running() -> None:
    bench = Bench()
    bench.reach(S.FENCED)
    bench.cause(E.FENCED)
    before_ms = bench.timers.clock.monotonic_ms()
    bench.wait_for_heartbeat()
    assert bench.timers.clock.monotonic_ms() - before_ms == PENDING_INTERVAL_MS
    bench.reply()
    before_ms = bench.timers.clock.monotonic_ms()
    bench.wait_for_heartbeat()
    assert INTERVAL_MS * 9 // 10 <= bench.timers.clock.monotonic_ms() - before_ms <= INTERVAL_MS


def test_a_stuck_data_loop_asks_to_be_fenced_at_the_usual_interval() -> None:
    bench = Bench()
    bench.reach(S.RUNNING)
    bench.lag_ms = TIMES.data_loop_lag_ms_max + 1
    request = bench.wait_for_heartbeat()
    assert request.want_fence
    assert request.data_loop_lag_ms == bench.lag_ms
    bench.reply(fenced=True)
    before_ms = bench.timers.clock.monotonic_ms()
    assert bench.wait_for_heartbeat().want_fence
    assert bench.timers.clock.monotonic_ms() - before_ms > PENDING_INTERVAL_MS
    bench.lag_ms = TIMES.data_loop_lag_ms_max
    bench.reply(fenced=True)
    assert not bench.wait_for_heartbeat().want_fence


def test_faults_are_told_with_every_heartbeat_until_a_controller_takes_them() -> None:
    bench = Bench()
    first, second = (ReplicaFault(Uuid(bytes([n] * 16)), 0, Fault.DAMAGED) for n in (1, 2))
    bench.lifecycle.tell_fault(first)
    bench.reach(S.FENCED)
    assert bench.wait_for_heartbeat().replica_faults == (first,)
    bench.reply()
    assert bench.wait_for_heartbeat().replica_faults == (first,), "an earlier version took nothing"
    bench.lifecycle.tell_fault(second)
    bench.answer(HeartbeatReply(True, False, False, False, took_replica_faults=True))
    assert bench.taken == [], "the answer is that of a heartbeat which another one has overtaken"
    assert bench.wait_for_heartbeat().replica_faults == (first, second)
    bench.answer(HeartbeatReply(True, False, False, False, took_replica_faults=True))
    assert bench.taken == [(first, second)]
    assert bench.wait_for_heartbeat().replica_faults == ()


def test_nobody_is_unfenced_before_all_faults_are_told() -> None:
    bench = Bench()
    for number in range(FAULTS_PER_HEARTBEAT_MAX + 1):
        bench.lifecycle.tell_fault(ReplicaFault(Uuid(number.to_bytes(16, "big")), 0, Fault.DAMAGED))
    bench.reach(S.FENCED)
    request = bench.wait_for_heartbeat()
    assert (len(request.replica_faults), request.want_fence) == (FAULTS_PER_HEARTBEAT_MAX, True)
    bench.answer(HeartbeatReply(True, True, False, False, took_replica_faults=True))
    request = bench.wait_for_heartbeat()
    assert (len(request.replica_faults), request.want_fence) == (1, False)


def test_the_session_timeout_is_the_clusters_and_two_heartbeats_fit_into_it() -> None:
    bench = Bench()
    bench.reach(S.RUNNING)
    bench.lifecycle.take_session_timeout(INTERVAL_MS, INTERVAL_MS // 2)
    bench.wait_for_heartbeat()
    sent_ms = bench.timers.clock.monotonic_ms()
    bench.reply()
    assert bench.lifecycle.lease.end_ms == sent_ms + lease_ms(INTERVAL_MS)
    bench.lag_ms = INTERVAL_MS // 2 + 1
    assert bench.wait_for_heartbeat().want_fence
    assert bench.timers.clock.monotonic_ms() - sent_ms <= INTERVAL_MS // 2


def test_a_controlled_shutdown_is_requested_at_once() -> None:
    bench = Bench()
    bench.reach(S.RUNNING)
    bench.cause(E.SHUTDOWN_REQUESTED)
    assert bench.wait_for_call(0) == HeartbeatRequest(
        broker_id=9, broker_epoch=EPOCH, metadata_offset=EPOCH, want_shutdown=True, applied_offset=NO_OFFSET
    )


def test_a_broker_knows_that_its_session_expired_when_it_does_and_not_later() -> None:
    bench = Bench()
    bench.reach(S.RUNNING)
    assert bench.expire_session() == SESSION_MS
    assert bench.states[-1] is S.SESSION_EXPIRED


# --- leases ------------------------------------------------------------------------------------


def test_a_lease_lasts_from_when_the_heartbeat_was_sent_and_not_from_its_answer() -> None:
    bench = Bench()
    bench.reach(S.RUNNING)
    bench.wait_for_heartbeat()
    sent_ms, before = bench.calls[-1].at_ms, bench.lifecycle.lease
    bench.timers.advance(SESSION_MS // 4)
    assert bench.lifecycle.lease == before, "nobody has answered yet"
    bench.reply()
    assert bench.lifecycle.lease.end_ms == sent_ms + LEASE_MS > before.end_ms
    assert bench.leases[-1] == bench.lifecycle.lease
    bench.wait_for_heartbeat()
    bench.refuse(UnreachableError("gone"))
    assert bench.lifecycle.lease.end_ms == sent_ms + LEASE_MS
    assert LEASE_MS * 4 == SESSION_MS * 3, "clocks differ in speed"


def test_a_lease_carries_what_the_answer_says_and_nothing_where_it_says_nothing() -> None:
    bench = Bench()
    bench.reach(S.RUNNING)
    bench.wait_for_heartbeat()
    bench.reply(lease_offset=70, settled_offset=60)
    assert bench.lifecycle.lease[1:] == (70, 60)
    bench.wait_for_heartbeat()
    bench.reply()
    assert bench.lifecycle.lease[1:] == (NO_OFFSET, NO_OFFSET), "a controller of the version before"


def test_before_it_is_unfenced_a_broker_has_a_lease_of_what_its_registration_found() -> None:
    bench = Bench()
    bench.lifecycle.start()
    assert bench.lifecycle.lease == NO_LEASE
    bench.cause(E.REGISTERED)
    assert bench.lifecycle.lease.lease_offset == EPOCH
    bench.cause(E.FENCED)
    assert bench.lifecycle.lease == NO_LEASE


@pytest.mark.parametrize("asks", ["to be fenced", "to shut down"])
def test_who_asks_to_lose_what_it_leads_gives_its_lease_up_before_it_asks(asks: str) -> None:
    bench = Bench()
    bench.reach(S.RUNNING)
    assert bench.lifecycle.lease != NO_LEASE
    if asks == "to be fenced":
        bench.lag_ms = TIMES.data_loop_lag_ms_max + 1
    else:
        bench.cause(E.SHUTDOWN_REQUESTED)
    bench.wait_for_heartbeat()
    assert bench.lifecycle.lease == NO_LEASE
    bench.reply()
    assert bench.lifecycle.lease == NO_LEASE, "nor does the answer give it one"


def test_a_heartbeat_says_what_the_data_loop_has_applied_at_once_if_another_waits_for_it() -> None:
    bench = Bench()
    bench.reach(S.RUNNING)
    bench.lifecycle.note_applied(45, is_urgent=False)
    before_ms = bench.timers.clock.monotonic_ms()
    assert bench.wait_for_heartbeat().applied_offset == 45
    assert bench.timers.clock.monotonic_ms() > before_ms
    bench.reply()
    bench.lifecycle.note_applied(46, is_urgent=True)
    request = bench.wait_for_call(0)
    assert isinstance(request, HeartbeatRequest)
    assert request.applied_offset == 46


def test_what_is_urgent_while_a_heartbeat_is_in_flight_follows_its_answer() -> None:
    bench = Bench()
    bench.reach(S.RUNNING)
    bench.wait_for_heartbeat()
    bench.lifecycle.note_applied(46, is_urgent=True)
    bench.timers.advance(0)
    assert len(bench.calls) == 1
    bench.reply()
    request = bench.wait_for_call(0)
    assert isinstance(request, HeartbeatRequest)
    assert request.applied_offset == 46


def test_heartbeats_come_soon_while_a_coordinator_waits_for_its_predecessor_for_a_session_at_most() -> None:
    bench = Bench()
    bench.reach(S.RUNNING)
    bench.lifecycle.await_settled(80)
    bench.wait_for_call(0)
    for settled_offset in (70, 79):
        bench.reply(settled_offset=settled_offset)
        bench.wait_for_call(PENDING_INTERVAL_MS)
    bench.reply(settled_offset=80)
    before_ms = bench.timers.clock.monotonic_ms()
    bench.wait_for_heartbeat()
    assert bench.timers.clock.monotonic_ms() - before_ms > PENDING_INTERVAL_MS
    bench.lifecycle.await_settled(90)
    heartbeats = bench.lifecycle.heartbeats
    for _ in range(2 * SESSION_MS // PENDING_INTERVAL_MS):
        if bench.calls:
            bench.reply(settled_offset=80)
        bench.timers.advance(PENDING_INTERVAL_MS)
    sent = bench.lifecycle.heartbeats - heartbeats
    assert SESSION_MS // PENDING_INTERVAL_MS // 2 < sent < SESSION_MS // PENDING_INTERVAL_MS + 20


def test_of_a_controller_that_tells_nothing_of_leases_nothing_is_awaited() -> None:
    bench = Bench()
    bench.reach(S.RUNNING)
    bench.lifecycle.await_settled(80)
    bench.wait_for_call(0)
    bench.reply()
    before_ms = bench.timers.clock.monotonic_ms()
    bench.wait_for_heartbeat()
    assert bench.timers.clock.monotonic_ms() - before_ms > PENDING_INTERVAL_MS


def test_refusals_to_connect_are_noticed_no_earlier_and_no_later_than_silence() -> None:
    bench = Bench()
    bench.reach(S.RUNNING)
    started_ms = bench.timers.clock.monotonic_ms()
    while bench.lifecycle.state is S.RUNNING:
        if bench.calls:
            bench.refuse(UnreachableError("gone"))
        bench.timers.advance(1)
    assert 0 <= bench.timers.clock.monotonic_ms() - started_ms - SESSION_MS <= 1


def test_a_controlled_shutdown_without_an_answer_ends_with_the_session() -> None:
    bench = Bench()
    bench.reach(S.PENDING_CONTROLLED_SHUTDOWN)
    assert bench.expire_session() == SESSION_MS
    assert bench.shut_downs == ["first"]


def test_one_missed_heartbeat_is_followed_by_the_next_before_long() -> None:
    bench = Bench()
    bench.reach(S.RUNNING)
    bench.wait_for_heartbeat()
    bench.calls.clear()
    bench.timers.advance(SESSION_MS // 2)
    bench.calls.clear()
    bench.wait_for_call(INTERVAL_MS // 4)
    bench.reply()
    assert bench.lifecycle.state is S.RUNNING
    assert (bench.lifecycle.heartbeats, bench.lifecycle.heartbeats_failed) == (3, 1)


def test_a_stopped_lifecycle_does_nothing_any_more() -> None:
    for state in (S.UNREGISTERED, S.FENCED, S.RUNNING, S.SESSION_EXPIRED, S.PENDING_CONTROLLED_SHUTDOWN):
        bench = Bench()
        bench.reach(state)
        bench.wait_for_call()
        pending = bench.calls[-1]
        bench.lifecycle.stop()
        pending.done(Outcome(error=StaleBrokerEpochError("who?")))
        bench.timers.advance(3 * SESSION_MS)
        assert bench.lifecycle.state is state
        assert bench.calls[-1] == pending
