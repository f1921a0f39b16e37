"""A broker without a lease tells its partitions who fetches from it; one whose ISR is silent is isolated."""

from distributedlog.broker.cluster.isolation import CHECK_INTERVAL_MS, STOPPED_MS, Isolation
from distributedlog.broker.cluster.lease_grant import NO_LEASE, lease_ms
from tests.simulation.clock import ManualClock
from tests.unit.broker.partition_stage import StepScheduler

SESSION_MS = 6_000
COMPANION, OTHER = 2, 3


class Stage:
    """A broker that leads one partition."""

    def __init__(self, *followers: int) -> None:
        """`followers` are in sync."""
        self.clock = ManualClock()
        self.scheduler = StepScheduler(self.clock)
        self.told: list[frozenset[int] | None] = []
        self.followers = followers
        self.isolation = Isolation(self.clock, self.scheduler, self.change)
        self.beat()

    def change(self, heard: frozenset[int] | None) -> bool:
        self.told.append(heard)
        return heard is not None and not heard.issuperset(self.followers)

    def is_isolated(self) -> bool:
        return self.isolation.is_isolated

    def beat(self) -> None:
        """A heartbeat was answered."""
        self.isolation.take_lease(self.clock.monotonic_ms() + lease_ms(SESSION_MS), SESSION_MS)

    def fetch(self, *followers: int, for_ms: int) -> None:
        """These fetch, all the time."""
        for _ in range(for_ms // 500):
            self.scheduler.advance(500)
            for follower in followers:
                self.isolation.note_fetch(follower)


def test_who_is_silent_and_unheard_is_isolated_before_its_session_is_over() -> None:
    stage = Stage(OTHER)
    stage.scheduler.advance(lease_ms(SESSION_MS) - 1)
    assert stage.told == []
    stage.scheduler.advance(1)
    assert stage.is_isolated()
    stage.scheduler.advance(10 * CHECK_INTERVAL_MS)
    assert set(stage.told) == {frozenset()}
    assert len(stage.told) > 1, "partitions that it comes to lead meanwhile hear of it, too"


def test_heartbeats_that_are_answered_keep_it_in_the_cluster() -> None:
    stage = Stage(OTHER)
    for _ in range(30):
        stage.scheduler.advance(500)
        stage.beat()
    assert stage.told == []
    assert stage.scheduler.timer_count == 1


def test_where_only_the_controllers_are_gone_nothing_changes() -> None:
    stage = Stage(OTHER)
    stage.fetch(OTHER, for_ms=15_000)
    assert not stage.is_isolated()
    stage.scheduler.advance(SESSION_MS // 2 + CHECK_INTERVAL_MS)
    assert stage.is_isolated(), "now the follower is gone as well"


def test_one_that_is_cut_off_together_with_another_broker_is_isolated() -> None:
    """The companion fetches on; who is on the other side does not, and may lead by now."""
    stage = Stage(COMPANION, OTHER)
    stage.fetch(COMPANION, for_ms=lease_ms(SESSION_MS))
    assert stage.is_isolated()
    assert stage.told[-1] == frozenset({COMPANION})
    stage.fetch(COMPANION, for_ms=1_000)
    assert stage.is_isolated(), "it is not who is missed"
    stage.isolation.note_fetch(OTHER)
    assert not stage.is_isolated()
    assert stage.told[-1] == frozenset({COMPANION, OTHER})


def test_a_fetch_ends_it_at_once() -> None:
    stage = Stage(OTHER)
    stage.scheduler.advance(lease_ms(SESSION_MS))
    stage.isolation.note_fetch(OTHER)
    assert stage.told == [frozenset(), frozenset({OTHER})]
    assert not stage.is_isolated()


def test_an_answer_of_a_controller_ends_it_and_a_lease_that_is_given_up_does_not() -> None:
    stage = Stage(OTHER)
    stage.scheduler.advance(lease_ms(SESSION_MS))
    stage.isolation.take_lease(NO_LEASE.end_ms, SESSION_MS)
    assert stage.is_isolated()
    stage.beat()
    assert stage.told == [frozenset(), None]
    assert not stage.is_isolated()
    stage.scheduler.advance(lease_ms(SESSION_MS))
    assert stage.is_isolated(), "it is watched on"


def test_who_leads_nothing_that_others_could_lead_is_not_isolated() -> None:
    stage = Stage()
    stage.scheduler.advance(2 * SESSION_MS)
    assert frozenset() in stage.told
    assert not stage.is_isolated()


def test_a_broker_that_has_just_started_waits_for_its_first_fetches() -> None:
    stage = Stage(OTHER)
    stage.isolation.take_lease(NO_LEASE.end_ms, SESSION_MS)
    stage.scheduler.advance(SESSION_MS // 2 - 1)
    assert not stage.is_isolated()
    stage.scheduler.advance(lease_ms(SESSION_MS))
    assert stage.is_isolated()


def stop(stage: Stage, for_ms: int) -> None:
    """The process is stopped for so long; what its timers and sockets have waits for its next turn."""
    stage.clock.advance(for_ms)


def test_a_process_that_was_stopped_is_isolated_before_it_serves_what_came_meanwhile() -> None:
    stage = Stage(OTHER)
    stage.fetch(OTHER, for_ms=2_000)
    stop(stage, SESSION_MS)
    stage.isolation.look()
    assert stage.is_isolated()
    stage.isolation.note_fetch(OTHER)
    assert stage.is_isolated(), "it may have been sent before the stop"


def test_a_fetch_that_is_served_first_after_a_stop_says_nothing_either() -> None:
    stage = Stage(OTHER)
    stage.fetch(OTHER, for_ms=2_000)
    stop(stage, SESSION_MS)
    stage.isolation.note_fetch(OTHER)
    assert stage.is_isolated()
    stage.fetch(OTHER, for_ms=SESSION_MS // 2)
    assert not stage.is_isolated(), "it fetches on"


def test_a_controller_that_answers_after_a_stop_ends_it_at_once() -> None:
    stage = Stage(OTHER)
    stop(stage, SESSION_MS)
    stage.isolation.look()
    stage.isolation.take_lease(stage.clock.monotonic_ms() - 1, SESSION_MS)
    assert stage.is_isolated(), "the answer to a heartbeat of before the stop"
    stage.beat()
    assert not stage.is_isolated()
    stage.fetch(OTHER, for_ms=lease_ms(SESSION_MS) + 1_000)
    assert not stage.is_isolated()


def test_a_stop_that_ends_before_the_lease_does_changes_nothing() -> None:
    stage = Stage(OTHER)
    stop(stage, lease_ms(SESSION_MS) - 1)
    stage.isolation.look()
    stage.isolation.note_fetch(OTHER)
    stage.beat()
    assert stage.told == []


def test_a_look_that_is_a_little_late_is_no_stop() -> None:
    stage = Stage(OTHER)
    stage.fetch(OTHER, for_ms=lease_ms(SESSION_MS))
    stop(stage, STOPPED_MS - 1)
    stage.isolation.look()
    assert not stage.is_isolated()
