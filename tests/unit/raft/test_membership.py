"""Members and how they change."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.model.errors import MembershipError
from distributedlog.raft import AddObserver, Change, Membership, Promote, Remove
from distributedlog.raft.membership import MembershipHistory, apply_change

node_ids = st.integers(1, 6)
changes: st.SearchStrategy[Change] = st.one_of(
    st.builds(AddObserver, node_ids, st.integers(0, 3)),
    st.builds(Promote, node_ids),
    st.builds(Remove, node_ids),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(changes, max_size=20))
def test_majorities_before_and_after_a_change_always_share_a_voter(steps: list[Change]) -> None:
    membership = Membership.of_voters(1, 2, 3)
    for step in steps:
        try:
            after = apply_change(membership, step)
        except MembershipError:
            continue
        together = set(membership.voters) | set(after.voters)
        assert membership.majority + after.majority > len(together)
        assert len(set(membership.voters) ^ set(after.voters)) <= 1
        membership = after


def test_a_voter_is_removed_before_it_is_added_again() -> None:
    membership = Membership.of_voters(1, 2)
    with pytest.raises(MembershipError, match="remove it before"):
        apply_change(membership, AddObserver(2, 9))
    membership = apply_change(membership, Remove(2))
    membership = apply_change(membership, AddObserver(2, 9))
    assert apply_change(membership, Promote(2)) == Membership({1: 0, 2: 9})


@pytest.mark.parametrize(
    ("change", "why"),
    [(Promote(2), "a voter|not an observer"), (Promote(9), "not an observer"), (Remove(9), "not a member")],
)
def test_impossible_changes_say_why(change: Change, why: str) -> None:
    with pytest.raises(MembershipError, match=why):
        apply_change(Membership.of_voters(1, 2), change)


def test_the_last_voter_stays() -> None:
    with pytest.raises(MembershipError, match="last voter"):
        apply_change(Membership({1: 0}, {2: 0}), Remove(1))


def test_a_membership_needs_a_voter_and_names_each_node_once() -> None:
    with pytest.raises(MembershipError, match="at least one voter"):
        Membership({})
    with pytest.raises(MembershipError, match="not both"):
        Membership({1: 0}, {1: 0})


def test_a_truncation_goes_back_to_the_membership_before() -> None:
    first, second, third = (Membership.of_voters(*range(1, n)) for n in (3, 4, 5))
    history = MembershipHistory(0, first)
    history.append(5, second)
    history.append(9, third)
    assert (history.at(4), history.at(5), history.at(9)) == (first, second, third)
    history.truncate_from(7)
    assert (history.current, history.index, history.previous) == (second, 5, first)
    history.forget_before(6)
    assert history.at(6) == second
    history.truncate_from(1)
    assert history.current == second, "a snapshot's membership is never taken back"
