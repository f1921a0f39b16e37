"""What a leader makes of a follower's answers."""

from distributedlog.raft import Membership, Snapshot
from distributedlog.raft.progress import Mode, Progress


def may_append(follower: Progress) -> bool:
    return follower.may_append


def test_a_probe_goes_out_once_and_an_answer_opens_the_window() -> None:
    follower = Progress(5, inflight_max=2, now_ms=0)
    assert may_append(follower)
    follower.sent(4, 0)
    assert not may_append(follower)
    assert follower.accepted(4, 10)
    assert follower.mode is Mode.REPLICATE
    assert follower.next_index == 5


def test_the_window_bounds_what_is_under_way() -> None:
    follower = Progress(1, inflight_max=2, now_ms=0)
    follower.accepted(0, 0)
    follower.sent(3, 0)
    follower.sent(6, 0)
    assert not may_append(follower)
    follower.accepted(3, 1)
    assert may_append(follower)
    assert follower.next_index == 7, "what is under way is not sent again"


def test_an_answer_to_an_old_question_changes_nothing() -> None:
    follower = Progress(1, inflight_max=2, now_ms=0)
    follower.accepted(8, 0)
    assert not follower.rejected(5, 2), "5 was accepted since"
    assert follower.next_index == 9
    follower.probe_from(9)
    assert not follower.rejected(12, 2), "12 is not what is being asked"
    assert not follower.accepted(3, 1), "a late copy"
    assert follower.match_index == 8


def test_a_refusal_goes_back_but_never_behind_what_is_known_to_match() -> None:
    follower = Progress(1, inflight_max=2, now_ms=0)
    follower.accepted(4, 0)
    follower.sent(9, 0)
    assert follower.rejected(9, 2)
    assert (follower.mode, follower.next_index) == (Mode.PROBE, 5)


def test_a_snapshot_ends_when_the_follower_has_it_or_more() -> None:
    follower = Progress(1, inflight_max=2, now_ms=0)
    follower.begin_snapshot(Snapshot(10, 2, Membership.of_voters(1), b"..."), 0)
    assert not may_append(follower)
    follower.accepted(3, 0)
    assert follower.mode is Mode.SNAPSHOT
    follower.accepted(10, 0)
    assert (follower.mode, follower.next_index) == (Mode.REPLICATE, 11)


def test_a_follower_that_is_not_the_one_it_was_begins_anew() -> None:
    follower = Progress(1, inflight_max=2, now_ms=0)
    follower.accepted(8, 0)
    follower.acked_round = 5
    follower.forget(20)
    assert (follower.match_index, follower.acked_round, follower.next_index) == (0, 0, 20)
