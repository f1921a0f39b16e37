"""What a follower fetches: sessions, back-off, and answers that came too late."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import Uuid
from distributedlog.replication.fetch_planner import (
    BACKOFF_MS,
    BACKOFF_MS_MAX,
    INITIAL_EPOCH,
    NO_SESSION,
    STORING_MS,
    FetchPlanner,
    FetchPosition,
    FetchState,
    ReplicaKey,
    RequestPlan,
)

TOPIC = Uuid(bytes(range(16)))
A, B, C = (TOPIC, 0), (TOPIC, 1), (TOPIC, 2)
SESSION = 77


def at(offset: int, leader_epoch: int = 1) -> FetchPosition:
    return FetchPosition(leader_epoch, offset, leader_epoch - 1, 0, 0)


def established(*keys: ReplicaKey) -> FetchPlanner:
    """A fetcher with a session of these partitions, and nothing under way."""
    fetcher = FetchPlanner()
    for key in keys:
        fetcher.follow(key, at(0))
    assert fetcher.end_request(request(fetcher), ErrorCode.NONE, SESSION)
    return fetcher


def request(fetcher: FetchPlanner, now_ms: int = 0) -> RequestPlan:
    plan = fetcher.next_request(now_ms)
    assert plan is not None
    return plan


def test_the_first_request_names_all_and_asks_for_a_session() -> None:
    fetcher = FetchPlanner()
    assert fetcher.next_request(0) is None
    fetcher.follow(A, at(5))
    fetcher.follow(B, at(7))
    plan = request(fetcher)
    assert (plan.session_id, plan.session_epoch, plan.is_full) == (NO_SESSION, INITIAL_EPOCH, True)
    assert plan.partitions == {A: at(5), B: at(7)}
    # Its id is not known before the answer: nothing else is sent, whatever changes.
    fetcher.follow(C, at(0))
    assert fetcher.next_request(0) is None


def test_later_requests_name_what_changed() -> None:
    fetcher = established(A, B)
    first = request(fetcher)
    assert (first.session_id, first.session_epoch) == (SESSION, 1)
    assert not first.partitions
    assert not first.forgotten
    assert fetcher.end_request(first, ErrorCode.NONE, SESSION)
    fetcher.hold(A)
    assert fetcher.next_request(0) is None
    second = request(fetcher, STORING_MS)
    assert (second.session_epoch, second.partitions, second.forgotten) == (2, {}, (A,))
    fetcher.follow(A, at(9))
    third = request(fetcher)
    assert (third.session_epoch, third.partitions, third.forgotten) == (3, {A: at(9)}, ())


def test_a_second_request_is_sent_only_to_tell_something_new() -> None:
    fetcher = established(A, B)
    parked = request(fetcher)
    assert fetcher.next_request(0) is None
    fetcher.follow(A, at(3))
    second = request(fetcher)
    assert second.partitions == {A: at(3)}
    fetcher.follow(B, at(4))
    assert fetcher.next_request(0) is None  # two are under way
    assert fetcher.end_request(parked, ErrorCode.NONE, SESSION)
    assert request(fetcher).partitions == {B: at(4)}


def test_nothing_is_asked_while_all_is_being_stored() -> None:
    fetcher = established(A)
    fetcher.hold(A)
    assert fetcher.next_request(0) is None
    fetcher.follow(A, at(1))
    assert request(fetcher).partitions == {A: at(1)}


def test_an_error_of_the_session_makes_the_next_request_a_full_one() -> None:
    fetcher = established(A, B)
    plan = request(fetcher)
    fetcher.hold(B)
    assert not fetcher.end_request(plan, ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
    assert request(fetcher).partitions == {A: at(0)}


def test_a_leader_without_room_for_a_session_is_asked_for_all_each_time() -> None:
    fetcher = FetchPlanner()
    fetcher.follow(A, at(0))
    for _ in range(3):
        plan = request(fetcher)
        assert plan.is_full
        assert plan.partitions == {A: at(0)}
        assert fetcher.end_request(plan, ErrorCode.NONE, NO_SESSION)


def test_a_lost_connection_voids_what_was_sent() -> None:
    fetcher = established(A)
    plan = request(fetcher)
    fetcher.lose_connection()
    assert not fetcher.end_request(plan, ErrorCode.NONE, SESSION)
    assert request(fetcher).is_full


def test_an_answer_counts_only_for_what_was_asked() -> None:
    fetcher = established(A, B)
    plan = request(fetcher)
    assert fetcher.is_response_current(plan, A)
    fetcher.follow(A, at(0, leader_epoch=2))  # another leader epoch, and named in no request yet
    assert not fetcher.is_response_current(plan, A)
    later = request(fetcher)
    assert not fetcher.is_response_current(plan, A)
    assert fetcher.is_response_current(later, A)
    assert fetcher.is_response_current(plan, B)
    fetcher.hold(B)
    assert not fetcher.is_response_current(later, B)
    fetcher.unfollow(A)
    assert not fetcher.is_response_current(later, A)


def test_who_fails_is_left_out_for_longer_each_time() -> None:
    fetcher = established(A, B)
    pauses = []
    now_ms = 0
    for _ in range(6):
        retry_ms = fetcher.delay(A, now_ms)
        pauses.append(retry_ms - now_ms)
        assert fetcher.next_retry_ms() == retry_ms
        assert fetcher.state(A) is FetchState.DELAYED
        fetcher.end_request(request(fetcher, retry_ms - 1), ErrorCode.NONE, SESSION)
        assert fetcher.state(A) is FetchState.DELAYED
        now_ms = retry_ms
        plan = request(fetcher, now_ms)
        assert A in plan.partitions
        fetcher.end_request(plan, ErrorCode.NONE, SESSION)
    assert pauses == [
        BACKOFF_MS,
        2 * BACKOFF_MS,
        4 * BACKOFF_MS,
        8 * BACKOFF_MS,
        BACKOFF_MS_MAX,
        BACKOFF_MS_MAX,
    ]
    fetcher.succeed([A])
    assert fetcher.delay(A, now_ms) == now_ms + BACKOFF_MS


def test_who_is_throttled_is_left_out_until_then_and_what_comes_of_it_is_taken() -> None:
    fetcher = established(A, B)
    asked = request(fetcher)
    fetcher.throttle(A, 300)
    assert fetcher.state(A) is FetchState.THROTTLED
    assert fetcher.is_response_current(asked, A), "it was asked for before"
    plan = request(fetcher)
    assert (dict(plan.partitions), plan.forgotten) == ({}, (A,))
    fetcher.end_request(asked, ErrorCode.NONE, SESSION)
    fetcher.end_request(plan, ErrorCode.NONE, SESSION)
    assert fetcher.next_retry_ms() == 300
    assert A not in request(fetcher, 299).partitions
    assert request(fetcher, 300).partitions == {A: at(0)}
    assert not fetcher.is_response_current(plan, A), "it is fetched anew"


def test_who_is_throttled_no_more_is_fetched_at_once() -> None:
    fetcher = established(A, B)
    fetcher.throttle(A, 300)
    request(fetcher)
    fetcher.end_throttle(B)
    assert fetcher.next_request(1) is None, "the other one was not throttled"
    fetcher.end_throttle(A)
    assert request(fetcher, 1).partitions == {A: at(0)}
    fetcher.hold(A)
    fetcher.throttle(A, 900)
    assert fetcher.state(A) is FetchState.WAITING, "it would not be fetched now"


def test_a_new_leader_epoch_ends_a_back_off() -> None:
    fetcher = established(A)
    fetcher.delay(A, 0)
    fetcher.follow(A, at(0, leader_epoch=2))
    assert request(fetcher).partitions == {A: at(0, leader_epoch=2)}
    assert fetcher.delay(A, 0) == BACKOFF_MS


# --- what came is being stored ------------------------------------------------------------------


def holding(now_ms: int) -> FetchPlanner:
    """A fetcher that stores what came of A, and has put off the request that would only say so."""
    fetcher = established(A, B)
    fetcher.hold(A)
    assert fetcher.next_request(now_ms) is None
    assert fetcher.next_retry_ms() == now_ms + STORING_MS
    return fetcher


def test_what_is_stored_soon_costs_one_request() -> None:
    fetcher = holding(10)
    assert fetcher.next_request(11) is None
    fetcher.follow(A, at(1))
    plan = request(fetcher, 11)
    assert (plan.partitions, plan.forgotten) == ({A: at(1)}, ())
    assert fetcher.next_retry_ms() is None


def test_others_are_not_kept_waiting_by_a_slow_disk() -> None:
    fetcher = holding(10)
    assert fetcher.next_request(10 + STORING_MS - 1) is None
    plan = request(fetcher, 10 + STORING_MS)
    assert (plan.partitions, plan.forgotten) == ({}, (A,))
    assert fetcher.next_request(10 + STORING_MS) is None
    assert fetcher.next_retry_ms() is None, "it is told what is stored when it is, and nothing before"


def test_whoever_has_something_to_tell_waits_for_nobody() -> None:
    fetcher = holding(10)
    fetcher.follow(B, at(1))
    plan = request(fetcher, 10)
    assert (plan.partitions, plan.forgotten) == ({B: at(1)}, (A,))


def test_nothing_is_put_off_when_nothing_else_is_fetched() -> None:
    fetcher = holding(10)
    fetcher.unfollow(B)
    assert fetcher.next_request(10) is None
    assert fetcher.next_retry_ms() is None, "nobody is woken for nothing"
    fetcher.follow(A, at(1))
    assert request(fetcher, 11).partitions == {A: at(1)}


def test_a_request_that_is_put_off_is_forgotten_with_the_connection() -> None:
    fetcher = holding(10)
    fetcher.lose_connection()
    assert fetcher.next_retry_ms() is None
    assert request(fetcher, 11).partitions == {B: at(0)}


# --- cost ---------------------------------------------------------------------------------------


@given(st.integers(1, 20))
@settings(max_examples=20)
def test_idle_partitions_cost_a_request_nothing(count: int) -> None:
    keys = [(TOPIC, number) for number in range(count * 10)]
    fetcher = established(*keys)
    fetcher.hold(keys[0])
    fetcher.follow(keys[1], at(1))
    plan = request(fetcher)
    assert (len(plan.partitions), len(plan.forgotten)) == (1, 1)


class SessionMachine(RuleBasedStateMachine):
    """A leader's session, as the protocol has it, is at every time what the fetcher believes."""

    def __init__(self) -> None:
        super().__init__()
        self.fetcher = FetchPlanner()
        self.offsets: dict[ReplicaKey, int] = {}
        self.session: dict[ReplicaKey, FetchPosition] | None = None
        self.epoch = 0
        self.session_id = 0
        self.parked: list[tuple[RequestPlan, ErrorCode, int]] = []
        self.now_ms = 0

    @rule(number=st.integers(0, 4), leader_epoch=st.integers(1, 3))
    def follow(self, number: int, leader_epoch: int) -> None:
        key = (TOPIC, number)
        self.offsets[key] = self.offsets.get(key, 0) + 1
        self.fetcher.follow(key, at(self.offsets[key], leader_epoch))

    @rule(number=st.integers(0, 4))
    def unfollow(self, number: int) -> None:
        self.fetcher.unfollow((TOPIC, number))

    @rule(number=st.integers(0, 4))
    def hold(self, number: int) -> None:
        if (TOPIC, number) in self.fetcher:
            self.fetcher.hold((TOPIC, number))

    @rule(number=st.integers(0, 4))
    def delay(self, number: int) -> None:
        if (TOPIC, number) in self.fetcher:
            self.fetcher.delay((TOPIC, number), self.now_ms)

    @rule(number=st.integers(0, 4), wait_ms=st.integers(1, 300))
    def throttle(self, number: int, wait_ms: int) -> None:
        if (TOPIC, number) in self.fetcher:
            self.fetcher.throttle((TOPIC, number), self.now_ms + wait_ms)

    @rule(number=st.integers(0, 4))
    def end_throttle(self, number: int) -> None:
        self.fetcher.end_throttle((TOPIC, number))

    @rule(elapsed_ms=st.integers(0, 500))
    def wait(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms

    @rule(has_room=st.booleans())
    def send(self, has_room: bool) -> None:
        plan = self.fetcher.next_request(self.now_ms)
        if plan is None:
            retry_ms = self.fetcher.next_retry_ms()
            assert retry_ms is None or retry_ms > self.now_ms, "it would be asked again and again"
            return
        if plan.is_full:
            self.session_id += 1
            self.session, self.epoch = (dict(plan.partitions), 1) if has_room else (None, 0)
            self.parked.append((plan, ErrorCode.NONE, self.session_id if has_room else NO_SESSION))
            return
        assert self.session is not None
        assert (plan.session_id, plan.session_epoch) == (self.session_id, self.epoch)
        assert all(key in self.session for key in plan.forgotten)
        self.session.update(plan.partitions)
        for key in plan.forgotten:
            del self.session[key]
        self.epoch += 1
        for key in [(TOPIC, number) for number in range(5)]:
            if self.fetcher.state(key) is FetchState.READY:
                assert self.session[key] == self.fetcher.position(key)
            else:
                assert key not in self.session
        self.parked.append((plan, ErrorCode.NONE, self.session_id))

    @rule()
    def answer(self) -> None:
        if self.parked:
            self.fetcher.end_request(*self.parked.pop(0))

    @rule()
    def lose_session(self) -> None:
        if self.parked:
            plan, _, _ = self.parked.pop(0)
            self.fetcher.end_request(plan, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
            self.parked = [(each, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0) for each, _, _ in self.parked]

    @rule()
    def lose_connection(self) -> None:
        self.fetcher.lose_connection()
        self.parked.clear()

    @invariant()
    def at_most_two_are_under_way(self) -> None:
        assert self.fetcher.in_flight == len(self.parked) <= 2


TestSession = SessionMachine.TestCase
TestSession.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
