"""What the leader makes of its followers' fetches, by example and against a naive count."""

from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.replication.isr import IsrProposal, LeaderView

LAG_MS = 30_000


def a_view(
    *, isr: tuple[int, ...] = (1, 2, 3), min_insync_replicas: int = 2, high_watermark: int = 0, start: int = 0
) -> LeaderView:
    return LeaderView(
        1,
        replicas=(1, 2, 3),
        isr=isr,
        min_insync_replicas=min_insync_replicas,
        high_watermark=high_watermark,
        epoch_start_offset=start,
        now_ms=0,
    )


def fetch(view: LeaderView, broker_id: int, offset: int, *, end: int = 10, now_ms: int = 0) -> bool:
    return view.note_fetch(broker_id, offset, leader_end_offset=end, now_ms=now_ms)


def test_nothing_is_committed_before_the_whole_isr_has_fetched() -> None:
    view = a_view()
    assert not view.advance(10)
    fetch(view, 2, 7)
    assert not view.advance(10)
    fetch(view, 3, 5)
    assert view.advance(10)
    assert view.high_watermark == 5


def test_the_leaders_own_position_counts_like_any_other() -> None:
    view = a_view()
    fetch(view, 2, 9)
    fetch(view, 3, 8)
    assert view.advance(4)
    assert view.high_watermark == 4


def test_who_is_not_in_the_isr_holds_nothing_up() -> None:
    view = a_view(isr=(1, 2))
    fetch(view, 2, 6)
    assert view.advance(10)
    assert view.high_watermark == 6


def test_the_last_replica_standing_commits_nothing() -> None:
    view = a_view(isr=(1,), min_insync_replicas=2)
    assert view.is_under_min_isr
    assert not view.advance(10)
    assert view.high_watermark == 0


def test_a_topic_with_fewer_replicas_than_the_minimum_is_content_with_all_of_them() -> None:
    view = LeaderView(
        1, replicas=(1,), isr=(1,), min_insync_replicas=2, high_watermark=0, epoch_start_offset=0, now_ms=0
    )
    assert not view.is_under_min_isr
    assert view.advance(3)


def test_the_high_watermark_never_goes_back() -> None:
    view = a_view()
    fetch(view, 2, 8)
    fetch(view, 3, 8)
    view.advance(10)
    fetch(view, 3, 2)  # it lost its disk
    assert not view.advance(10)
    assert view.high_watermark == 8


def test_a_stranger_and_an_earlier_life_of_a_follower_do_not_count() -> None:
    view = a_view(isr=(1, 2))
    assert not fetch(view, 9, 10)
    assert view.note_fetch(2, 3, leader_end_offset=10, now_ms=0, broker_epoch=50)
    assert not view.note_fetch(2, 10, leader_end_offset=10, now_ms=0, broker_epoch=49)
    view.advance(10)
    assert view.high_watermark == 3


def test_a_follower_that_never_fetches_is_proposed_to_leave_after_the_lag() -> None:
    view = a_view()
    fetch(view, 2, 10, now_ms=LAG_MS)
    assert view.propose(10, LAG_MS, LAG_MS) is None
    assert view.propose(10, LAG_MS + 1, LAG_MS) == IsrProposal(((1, -1), (2, -1)))


def test_a_follower_joins_when_what_the_leader_deleted_is_deleted_there_for_good() -> None:
    view = a_view(isr=(1, 2))
    fetch(view, 2, 10)
    for start, wanted in ((3, (1, 2)), (7, (1, 2, 3))):
        view.note_fetch(3, 10, leader_end_offset=10, now_ms=0, log_start_offset=start)
        proposal = view.propose(10, 0, LAG_MS, leader_start_offset=7)
        assert (view.isr if proposal is None else proposal.isr) == wanted


def test_a_follower_that_fetches_and_is_always_a_little_behind_is_in_sync() -> None:
    """It is caught up with where the leader was when it last fetched."""
    view = a_view(isr=(1, 2), min_insync_replicas=1)
    for step in range(100):
        fetch(view, 2, step * 10, end=(step + 1) * 10, now_ms=step * 1_000)
    assert view.propose(2_000, 100_000, LAG_MS) is None


def test_a_follower_that_fetches_and_falls_ever_further_behind_is_not() -> None:
    view = a_view(isr=(1, 2), min_insync_replicas=1)
    for step in range(100):
        fetch(view, 2, step, end=(step + 1) * 10, now_ms=step * 1_000)
    proposal = view.propose(2_000, 100_000, LAG_MS)
    assert proposal is not None
    assert proposal.isr == (1,)


def test_a_follower_that_has_all_is_in_sync_however_long_nothing_came() -> None:
    view = a_view(isr=(1, 2), min_insync_replicas=1)
    fetch(view, 2, 10, end=10)
    assert view.propose(10, 10 * LAG_MS, LAG_MS) is None


def test_a_follower_joins_when_it_has_reached_the_high_watermark_and_the_leaders_beginning() -> None:
    view = a_view(isr=(1, 2), min_insync_replicas=1, high_watermark=4, start=7)
    fetch(view, 2, 10)
    fetch(view, 3, 5)
    assert view.propose(10, 0, LAG_MS) is None
    fetch(view, 3, 7)
    proposal = view.propose(10, 0, LAG_MS)
    assert proposal is not None
    assert proposal.isr == (1, 2, 3)


def test_whoever_is_proposed_to_join_counts_already_and_whoever_is_to_leave_counts_still() -> None:
    view = a_view(isr=(1, 2), min_insync_replicas=1)
    fetch(view, 2, 1, now_ms=0)
    fetch(view, 3, 5, now_ms=LAG_MS * 2)
    proposal = view.propose(10, LAG_MS * 2, LAG_MS)
    assert proposal is not None
    assert proposal.isr == (1, 3)
    view.advance(10)
    assert view.high_watermark == 1, "broker 2 may still be in the ISR"
    view.set_replicas((1, 2, 3), (1, 3), 0)
    view.advance(10)
    assert view.high_watermark == 5


def test_what_is_committed_waits_for_who_may_have_joined_already() -> None:
    view = a_view(isr=(1,), min_insync_replicas=1)
    view.advance(5)
    fetch(view, 3, 5)
    proposal = view.propose(10, 0, LAG_MS)
    assert proposal is not None
    assert proposal.isr == (1, 3)
    assert not view.advance(10), "the controller may have accepted it: broker 3 could lead tomorrow"
    view.withdraw()
    assert view.advance(10)


def test_only_one_proposal_is_open_and_a_refused_one_is_forgotten() -> None:
    view = a_view(isr=(1, 2), min_insync_replicas=1)
    fetch(view, 2, 10)
    fetch(view, 3, 6)
    assert view.propose(10, 0, LAG_MS) is not None
    assert view.propose(10, 0, LAG_MS) is None
    view.withdraw()
    view.advance(10)
    assert view.high_watermark == 10
    fetch(view, 3, 10)
    assert view.propose(10, 0, LAG_MS) is not None


BROKERS = st.sampled_from((2, 3, 4))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("fetch"), BROKERS, st.integers(0, 30)),
        st.tuples(st.just("own"), st.integers(0, 30)),
        st.tuples(st.just("isr"), st.sets(BROKERS)),
        st.tuples(st.just("propose"), st.integers(0, 100_000)),
        st.tuples(st.just("withdraw")),
        st.tuples(st.just("minimum"), st.integers(1, 4)),
    ),
    max_size=40,
)


@settings(max_examples=100)
@given(STEPS)
def test_the_view_commits_what_a_naive_count_commits(steps: list[tuple[str, object]]) -> None:
    view = LeaderView(
        1,
        replicas=(1, 2, 3, 4),
        isr=(1, 2),
        min_insync_replicas=2,
        high_watermark=0,
        epoch_start_offset=0,
        now_ms=0,
    )
    positions: dict[object, int] = {}
    isr: set[object] = {1, 2}
    proposed: set[object] = set()
    minimum, own, mark = 2, 0, 0
    for name, *arguments in steps:
        match name, arguments:
            case "fetch", [broker, int(offset)]:
                assert isinstance(broker, int)
                fetch(view, broker, offset, end=30)
                positions[broker] = offset
            case "own", [int(position)]:
                own = position
            case "isr", [set() as members]:
                isr, proposed = {1, *members}, set()
                view.set_replicas((1, 2, 3, 4), tuple(sorted({1, *members})), 0)
            case "propose", [int(now_ms)]:
                proposal = view.propose(30, now_ms, LAG_MS)
                proposed = proposed if proposal is None else set(proposal.isr)
                assert proposal is None or (1 in proposal.isr and set(proposal.isr) != isr)
            case "minimum", [int(count)]:
                minimum = count
                view.set_min_insync_replicas(count)
            case _:
                proposed = set()
                view.withdraw()
        counted = (isr | proposed) - {1}
        if len(isr) >= minimum:
            mark = max(mark, min([own, *(positions.get(each, -1) for each in counted)]))
        view.advance(own)
        assert view.high_watermark == mark


def test_records_are_deleted_when_no_replica_that_may_lead_has_them() -> None:
    view = a_view()
    for broker_id in (2, 3):
        view.note_fetch(broker_id, 10, leader_end_offset=10, now_ms=0, log_start_offset=4)
    assert view.find_low_watermark(8) == 4
    view.set_replicas((1, 2, 3), (1, 2), 0)
    view.note_fetch(2, 10, leader_end_offset=10, now_ms=0, log_start_offset=8)
    assert view.find_low_watermark(8) == 8
    view.set_replicas((1, 2, 3), (1,), 0, elr=(3,))
    assert view.find_low_watermark(8) == 4, "3 is down, and may be elected"
    view.note_fetch(3, 10, leader_end_offset=10, now_ms=0, log_start_offset=8)
    assert view.find_low_watermark(8) == 8


def test_a_new_leader_knows_nothing_of_an_eligible_replica_that_is_down() -> None:
    view = a_view(isr=(1,))
    view.set_replicas((1, 2, 3), (1,), 0, elr=(2,))
    assert view.find_low_watermark(8) < 0
