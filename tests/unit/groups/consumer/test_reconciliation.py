"""Every pair of `TRANSITIONS` happens, and no other can."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.groups.consumer.member import Member, MemberState
from distributedlog.groups.consumer.reconciliation import (
    STABLE,
    TRANSITIONS,
    UNRELEASED,
    UNREVOKED,
    MemberEvent,
    reconcile,
)
from distributedlog.groups.consumer.topics import NO_PARTITIONS, TopicIdPartition, TopicIdPartitions
from distributedlog.model.errors import FencedMemberEpochError
from distributedlog.model.ids import Uuid

TOPIC = Uuid(bytes(16))
TARGET_EPOCH = 7


def tps(*partitions: int) -> TopicIdPartitions:
    return frozenset(TopicIdPartition(TOPIC, partition) for partition in partitions)


def step(
    member: Member,
    target: TopicIdPartitions,
    owned: TopicIdPartitions | None = None,
    *,
    held_by_others: TopicIdPartitions = NO_PARTITIONS,
) -> Member:
    return reconcile(member, target, TARGET_EPOCH, owned, lambda tp: tp not in held_by_others)


def member(
    state: MemberState,
    assigned: TopicIdPartitions,
    revoking: TopicIdPartitions = NO_PARTITIONS,
    epoch: int = 5,
    previous: int = 4,
) -> Member:
    return Member(
        "m", state=state, assigned=assigned, revoking=revoking, epoch=epoch, previous_epoch=previous
    )


def test_a_member_at_the_target_stays_as_it_is() -> None:
    there = member(STABLE, tps(0), epoch=TARGET_EPOCH)
    assert step(there, tps(0)) is there


def test_a_member_gives_up_first_and_stays_in_its_epoch() -> None:
    moved = step(member(STABLE, tps(0, 1)), tps(1, 2), tps(0, 1))
    assert (moved.state, moved.epoch, moved.assigned, moved.revoking) == (UNREVOKED, 5, tps(1), tps(0))
    assert moved.previous_epoch == 5, "what it said in an earlier epoch counts no more"
    assert step(moved, tps(1, 2), tps(0, 1)) is moved
    assert step(moved, tps(1, 2)) is moved, "who says nothing may have everything"
    done = step(moved, tps(1, 2), tps(1))
    assert (done.state, done.epoch, done.assigned, done.revoking) == (
        STABLE,
        TARGET_EPOCH,
        tps(1, 2),
        NO_PARTITIONS,
    )


def test_a_member_that_has_given_up_already_need_not_be_told_to() -> None:
    done = step(member(STABLE, tps(0, 1)), tps(1), tps(1))
    assert (done.state, done.epoch, done.assigned) == (STABLE, TARGET_EPOCH, tps(1))


def test_a_member_waits_for_what_others_hold_and_gets_it_bit_by_bit() -> None:
    waiting = step(member(STABLE, tps(0)), tps(0, 1, 2), tps(0), held_by_others=tps(1, 2))
    assert (waiting.state, waiting.epoch, waiting.assigned) == (UNRELEASED, TARGET_EPOCH, tps(0))
    more = step(waiting, tps(0, 1, 2), tps(0), held_by_others=tps(2))
    assert (more.state, more.assigned) == (UNRELEASED, tps(0, 1))
    assert step(more, tps(0, 1, 2), tps(0)).state is STABLE


def test_a_member_that_waits_may_have_to_give_up_for_a_newer_target() -> None:
    waiting = member(UNRELEASED, tps(0, 1))
    assert step(waiting, tps(0), tps(0, 1)).state is UNREVOKED


def test_a_member_that_gave_up_goes_one_epoch_on_if_it_has_to_give_up_more() -> None:
    unrevoked = member(UNREVOKED, tps(1, 2), tps(0))
    again = step(unrevoked, tps(2), tps(1, 2))
    assert (again.state, again.epoch, again.revoking) == (UNREVOKED, 6, tps(1))
    waiting = step(unrevoked, tps(1, 2, 3), tps(1, 2), held_by_others=tps(3))
    assert (waiting.state, waiting.epoch) == (UNRELEASED, TARGET_EPOCH)


def test_a_state_of_a_newer_coordinator_makes_a_member_come_anew() -> None:
    unknown = member(MemberState.UNKNOWN, tps(0))
    for owned in (None, tps(0)):
        with pytest.raises(FencedMemberEpochError):
            step(unknown, tps(0), owned)
    assert step(unknown, tps(0), NO_PARTITIONS).state is STABLE


@pytest.mark.parametrize(("state", "event"), [*product((STABLE, UNREVOKED, UNRELEASED), MemberEvent)])
def test_every_pair_of_the_table_happens_and_the_others_cannot(
    state: MemberState, event: MemberEvent
) -> None:
    revoking = tps(9) if state is UNREVOKED else NO_PARTITIONS
    before = member(state, tps(0, 1), revoking)
    moved = {
        MemberEvent.MUST_REVOKE: lambda: step(before, tps(0), tps(0, 1)),
        MemberEvent.STILL_HOLDS: lambda: step(before, tps(0, 1), tps(0, 1, 9)),
        MemberEvent.MUST_WAIT: lambda: step(before, tps(0, 1, 2), tps(0, 1), held_by_others=tps(2)),
        MemberEvent.COMPLETE: lambda: step(before, tps(0, 1), tps(0, 1)),
    }[event]()
    if (state, event) in TRANSITIONS:
        assert moved.state is TRANSITIONS[state, event]
    else:
        assert event is MemberEvent.STILL_HOLDS, "only who was told to give up can still hold it"
        assert moved.state is TRANSITIONS[state, MemberEvent.COMPLETE]


PARTITIONS = st.frozensets(st.builds(TopicIdPartition, st.just(TOPIC), st.integers(0, 5)))


@settings(max_examples=100, deadline=None)
@given(
    assigned=PARTITIONS,
    revoking=PARTITIONS,
    target=PARTITIONS,
    owned=st.none() | PARTITIONS,
    others=PARTITIONS,
    state=st.sampled_from([STABLE, UNREVOKED, UNRELEASED]),
    epoch=st.integers(1, TARGET_EPOCH - 1),
)
def test_nothing_is_taken_from_others_and_epochs_never_pass_the_target(
    assigned: TopicIdPartitions,
    revoking: TopicIdPartitions,
    target: TopicIdPartitions,
    owned: TopicIdPartitions | None,
    others: TopicIdPartitions,
    state: MemberState,
    epoch: int,
) -> None:
    revoking = revoking - assigned if state is UNREVOKED else NO_PARTITIONS
    before = member(state, assigned, revoking, epoch)
    others -= before.holds
    after = step(before, target, owned, held_by_others=others)
    assert not after.holds & others
    assert epoch <= after.epoch <= TARGET_EPOCH
    assert after.assigned <= target | assigned
    freed = before.holds - after.holds
    assert owned is not None or not freed, "nothing is free before the member has said so"
    assert owned is None or not freed & owned
