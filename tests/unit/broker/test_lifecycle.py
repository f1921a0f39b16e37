"""A broker's life in its cluster: every row of its table, and the clocks in it."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from distributedlog.broker.forwarding import ControllerForwarder
from distributedlog.broker.lifecycle import (
    HASTE_MS,
    REGISTER_AGAIN_MS,
    TRANSITIONS,
    BrokerLife,
    LifeEvent,
    LifeState,
    LifeTimes,
)
from distributedlog.broker.metadata import MetadataReplica
from distributedlog.control.contract import ControllerReply
from distributedlog.controller.bundles import encode_bundle
from distributedlog.controller.features import LEVEL_MAX, versioned
from distributedlog.controller.records import NoOp
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
from distributedlog.ports.executor import Done, Outcome
from distributedlog.ports.randomness import SeededRandomness
from tests.unit.broker.control_stage import Timers, registration

TIMES = LifeTimes()
INTERVAL_MS, SESSION_MS = TIMES.heartbeat_interval_ms, TIMES.session_timeout_ms
EPOCH = 40
S, E = LifeState, LifeEvent


class Call(NamedTuple):
    request: Request
    at_ms: int
    done: Done[ControllerReply]


class Bench:
    """A broker, and the one voter that it knows: a test answers for it, or lets it be silent."""

    def __init__(self, *, hold_back: bool = False) -> None:
        self.timers = Timers()
        self.replica = MetadataReplica()
        self.calls: list[Call] = []
        self.states: list[LifeState] = []
        self.failures: list[BaseException] = []
        self.left: list[str] = []
        self.lag_ms = 0
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
        self.life = BrokerLife(
            registration(9),
            forwarder,
            TIMES,
            clock=self.timers.clock,
            scheduler=self.timers,
            randomness=SeededRandomness(2),
            data_loop_lag_ms=lambda: self.lag_ms,
            changed=self.states.append,
            failed=self.failures.append,
            prepare=self.prepared.append if hold_back else lambda ready: ready(),
        )

    # --- the voter -----------------------------------------------------------------------------

    def call(self, node_id: int, request: Request, timeout_ms: int, done: Done[ControllerReply]) -> None:
        self.calls.append(Call(request, self.timers.clock.monotonic_ms(), done))

    def answer(self, response: Response) -> None:
        self.calls.pop().done(Outcome(ControllerReply(response, -1)))

    def refuse(self, error: DlogError) -> None:
        self.calls.pop().done(Outcome(error=error))

    def replay_to(self, offset: int) -> None:
        self.replica.entry(encode_bundle(versioned([NoOp()], LEVEL_MAX)), offset)
        self.replica.publish()

    def reply(self, *, fenced: bool = False, may_go: bool = False) -> None:
        self.answer(
            HeartbeatReply(
                is_caught_up=True, is_fenced=fenced, in_controlled_shutdown=False, should_shut_down=may_go
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

    def wait_for_beat(self) -> HeartbeatRequest:
        request = self.wait_for_call()
        assert isinstance(request, HeartbeatRequest)
        return request

    def fall_silent(self) -> int:
        """No answer comes any more, until the broker has noticed; how long that took."""
        started_ms, states = self.timers.clock.monotonic_ms(), len(self.states)
        while len(self.states) == states and self.timers.clock.monotonic_ms() < started_ms + 3 * SESSION_MS:
            self.timers.advance(1)
        return self.timers.clock.monotonic_ms() - started_ms

    # --- the table -----------------------------------------------------------------------------

    def reach(self, state: LifeState) -> None:
        self.life.start()
        if state is S.OUTSIDE:
            return
        self.cause(E.REGISTERED)
        if state is not S.FENCED:
            self.cause(E.LET_IN)
        if state is S.CUT_OFF:
            self.cause(E.UNHEARD)
        if state is S.LEAVING:
            self.cause(E.ASKED_TO_LEAVE)
        assert self.life.state is state

    def cause(self, event: LifeEvent) -> None:
        if event is E.REGISTERED:
            assert isinstance(self.wait_for_call(), RegisterBrokerRequest)
            self.answer(RegisterBrokerReply(EPOCH))
            self.replay_to(EPOCH)
        elif event is E.ASKED_TO_LEAVE:
            self.life.leave(lambda: self.left.append("left"))
        elif event is E.UNHEARD:
            self.wait_for_beat()
            self.timers.advance(2 * SESSION_MS)
        else:
            self.wait_for_beat()
            if event is E.FORGOTTEN:
                self.refuse(StaleBrokerEpochError("who?"))
            else:
                self.reply(fenced=event is E.FENCED, may_go=event is E.LET_GO)


# --- every row ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "event"), list(TRANSITIONS), ids=lambda value: str(value.name).lower().replace("_", "-")
)
def test_every_event_leads_where_the_table_says(state: LifeState, event: LifeEvent) -> None:
    bench = Bench()
    bench.reach(state)
    bench.cause(event)
    assert bench.life.state is TRANSITIONS[state, event]


@pytest.mark.parametrize("state", [each for each in LifeState if each is not LifeState.LEFT])
def test_leaving_ends_in_being_told_so_once(state: LifeState) -> None:
    bench = Bench()
    bench.reach(state)
    if state is not S.LEAVING:
        bench.cause(E.ASKED_TO_LEAVE)
    if bench.life.state is S.LEAVING:
        bench.cause(E.LET_GO)
    assert bench.life.state is S.LEFT
    assert bench.left == ["left"]
    bench.timers.advance(3 * SESSION_MS)
    assert bench.left == ["left"]


def test_pairs_that_are_not_in_the_table_do_not_come_about() -> None:
    """OUTSIDE and LEFT have no heartbeats under way whose answer counts, and only LEAVING asks to be let go.
    Whoever is asked to leave twice is LEAVING or LEFT by then, and only OUTSIDE registers."""
    missing = {(state, event) for state in S for event in E} - set(TRANSITIONS)
    heard = {E.LET_IN, E.FENCED, E.UNHEARD, E.FORGOTTEN, E.LET_GO}
    assert missing == (
        {(S.OUTSIDE, event) for event in heard}
        | {(S.LEFT, event) for event in E}
        | {(state, E.REGISTERED) for state in S if state is not S.OUTSIDE}
        | {(state, E.LET_GO) for state in (S.FENCED, S.SERVING, S.CUT_OFF)}
        | {(S.LEAVING, E.ASKED_TO_LEAVE)}
    )


def test_a_heartbeat_that_is_answered_after_the_broker_has_left_means_nothing() -> None:
    bench = Bench()
    bench.reach(S.CUT_OFF)
    bench.wait_for_beat()
    late, asked = bench.calls[-1], len(bench.calls)
    bench.cause(E.ASKED_TO_LEAVE)
    late.done(Outcome(error=StaleBrokerEpochError("who?")))
    assert bench.life.state is S.LEFT
    bench.timers.advance(SESSION_MS)
    assert len(bench.calls) == asked, "and nothing is asked any more"


def test_a_registration_that_is_answered_after_the_broker_has_left_means_nothing() -> None:
    bench = Bench()
    bench.reach(S.OUTSIDE)
    bench.wait_for_call()
    bench.cause(E.ASKED_TO_LEAVE)
    bench.answer(RegisterBrokerReply(EPOCH))
    assert bench.states == [S.LEFT]


def test_who_is_asked_to_leave_again_leaves_once_and_tells_the_last_who_asked() -> None:
    bench = Bench()
    bench.reach(S.LEAVING)
    bench.life.leave(lambda: bench.left.append("second"))
    bench.cause(E.LET_GO)
    assert bench.left == ["second"]
    bench.life.leave(lambda: bench.left.append("third"))
    assert bench.left == ["second", "third"]


# --- registering -------------------------------------------------------------------------------


def test_a_broker_registers_until_it_is_taken() -> None:
    bench = Bench()
    bench.life.start()
    for error in (DuplicateRegistrationError("alive"), InvalidRequestError("not now")):
        bench.refuse(error)
        assert isinstance(bench.wait_for_call(REGISTER_AGAIN_MS), RegisterBrokerRequest)
    bench.timers.advance(TIMES.registration_timeout_ms)
    bench.calls.clear()
    assert isinstance(bench.wait_for_call(REGISTER_AGAIN_MS + 500), RegisterBrokerRequest)
    bench.cause(E.REGISTERED)
    assert bench.life.epoch == EPOCH
    assert bench.failures == []


def test_why_a_broker_is_not_taken_is_said_once_for_each_reason(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.life.start()
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
    bench.life.start()
    bench.refuse(error)
    assert bench.failures == [error]
    bench.timers.advance(60_000)
    assert bench.calls == []


def test_a_predecessor_that_seems_alive_is_waited_for_and_a_twin_is_not_waited_for_for_ever() -> None:
    bench = Bench()
    bench.life.start()
    started_ms = bench.timers.clock.monotonic_ms()
    while not bench.failures:
        bench.wait_for_call(REGISTER_AGAIN_MS)
        bench.refuse(DuplicateRegistrationError("alive"))
    waited_ms = bench.timers.clock.monotonic_ms() - started_ms
    assert TIMES.duplicate_patience_ms <= waited_ms <= TIMES.duplicate_patience_ms + REGISTER_AGAIN_MS


def test_a_broker_that_is_forgotten_registers_again_as_the_same_process() -> None:
    for error in (StaleBrokerEpochError("who?"), BrokerNotRegisteredError("who?")):
        bench = Bench()
        bench.reach(S.SERVING)
        bench.wait_for_beat()
        bench.refuse(error)
        again = bench.wait_for_call()
        assert again == registration(9)
        bench.answer(RegisterBrokerReply(EPOCH + 5))
        bench.replay_to(EPOCH + 5)
        assert bench.wait_for_beat().broker_epoch == EPOCH + 5


def test_a_broker_asks_to_be_let_in_once_its_own_image_has_its_registration() -> None:
    bench = Bench()
    bench.life.start()
    bench.answer(RegisterBrokerReply(EPOCH))
    bench.replay_to(EPOCH - 1)
    bench.timers.advance(2 * INTERVAL_MS)
    assert bench.calls == []
    bench.replay_to(EPOCH)
    request = bench.wait_for_beat()
    assert (request.broker_epoch, request.metadata_offset) == (EPOCH, EPOCH)


def test_a_broker_asks_to_be_let_in_once_it_is_prepared() -> None:
    bench = Bench(hold_back=True)
    bench.life.start()
    bench.answer(RegisterBrokerReply(EPOCH))
    bench.replay_to(EPOCH)
    bench.timers.advance(2 * INTERVAL_MS)
    assert bench.calls == []
    bench.prepared[0]()
    bench.wait_for_beat()


# --- heartbeats --------------------------------------------------------------------------------


def test_who_awaits_something_is_in_haste_and_who_serves_is_not() -> None:
    bench = Bench()
    bench.reach(S.FENCED)
    bench.cause(E.FENCED)
    before_ms = bench.timers.clock.monotonic_ms()
    bench.wait_for_beat()
    assert bench.timers.clock.monotonic_ms() - before_ms == HASTE_MS
    bench.reply()
    before_ms = bench.timers.clock.monotonic_ms()
    bench.wait_for_beat()
    assert INTERVAL_MS * 9 // 10 <= bench.timers.clock.monotonic_ms() - before_ms <= INTERVAL_MS


def test_a_stuck_data_loop_asks_to_be_fenced_and_is_in_no_haste() -> None:
    bench = Bench()
    bench.reach(S.SERVING)
    bench.lag_ms = TIMES.data_loop_lag_ms_max + 1
    request = bench.wait_for_beat()
    assert request.want_fence
    assert request.data_loop_lag_ms == bench.lag_ms
    bench.reply(fenced=True)
    before_ms = bench.timers.clock.monotonic_ms()
    assert bench.wait_for_beat().want_fence
    assert bench.timers.clock.monotonic_ms() - before_ms > HASTE_MS
    bench.lag_ms = TIMES.data_loop_lag_ms_max
    bench.reply(fenced=True)
    assert not bench.wait_for_beat().want_fence


def test_who_leaves_says_so_at_once() -> None:
    bench = Bench()
    bench.reach(S.SERVING)
    bench.cause(E.ASKED_TO_LEAVE)
    assert bench.wait_for_call(0) == HeartbeatRequest(
        broker_id=9, broker_epoch=EPOCH, metadata_offset=EPOCH, want_shutdown=True
    )


def test_a_broker_that_nobody_hears_knows_it_when_the_session_ends_and_not_later() -> None:
    bench = Bench()
    bench.reach(S.SERVING)
    assert bench.fall_silent() == SESSION_MS
    assert bench.states[-1] is S.CUT_OFF


def test_a_lease_lasts_a_session_from_when_the_heartbeat_was_sent_and_not_from_its_answer() -> None:
    bench = Bench()
    bench.reach(S.SERVING)
    bench.wait_for_beat()
    sent_ms, before_ms = bench.calls[-1].at_ms, bench.life.lease_end_ms
    bench.timers.advance(SESSION_MS // 4)
    assert bench.life.lease_end_ms == before_ms, "nobody has answered yet"
    bench.reply()
    assert bench.life.lease_end_ms == sent_ms + SESSION_MS > before_ms
    bench.wait_for_beat()
    bench.refuse(UnreachableError("gone"))
    assert bench.life.lease_end_ms == sent_ms + SESSION_MS


def test_refusals_to_connect_are_noticed_no_earlier_and_no_later_than_silence() -> None:
    bench = Bench()
    bench.reach(S.SERVING)
    started_ms = bench.timers.clock.monotonic_ms()
    while bench.life.state is S.SERVING:
        if bench.calls:
            bench.refuse(UnreachableError("gone"))
        bench.timers.advance(1)
    assert 0 <= bench.timers.clock.monotonic_ms() - started_ms - SESSION_MS <= 1


def test_who_leaves_and_is_not_heard_goes_after_a_session() -> None:
    bench = Bench()
    bench.reach(S.LEAVING)
    assert bench.fall_silent() == SESSION_MS
    assert bench.left == ["left"]


def test_one_missed_heartbeat_is_followed_by_the_next_before_long() -> None:
    bench = Bench()
    bench.reach(S.SERVING)
    bench.wait_for_beat()
    bench.calls.clear()
    bench.timers.advance(SESSION_MS // 2)
    bench.calls.clear()
    bench.wait_for_call(INTERVAL_MS // 4)
    bench.reply()
    assert bench.life.state is S.SERVING
    assert (bench.life.heartbeats, bench.life.heartbeats_failed) == (3, 1)


def test_a_stopped_life_does_nothing_any_more() -> None:
    for state in (S.OUTSIDE, S.FENCED, S.SERVING, S.CUT_OFF, S.LEAVING):
        bench = Bench()
        bench.reach(state)
        bench.wait_for_call()
        pending = bench.calls[-1]
        bench.life.stop()
        pending.done(Outcome(error=StaleBrokerEpochError("who?")))
        bench.timers.advance(3 * SESSION_MS)
        assert bench.life.state is state
        assert bench.calls[-1] == pending
