"""A member's next step from what it holds to what the target gives it.

    kept     = assigned ∩ target
    to go    = assigned − target         stays the member's until it says that it has given it up
    to come  = target − kept             those that nobody holds; the others when they are free

| found in this order                                   | epoch        | event       |
|-------------------------------------------------------|--------------|-------------|
| it has to give up some, and has not said it did       | its own      | MUST_REVOKE |
| (state UNREVOKED) it still has what it was to give up | its own      | STILL_HOLDS |
| something meant for it is still held by another       | the target's | MUST_WAIT   |
| nothing more is to come                               | the target's | COMPLETE    |

A member in UNREVOKED_PARTITIONS that has given up goes one epoch on before its next step is looked for: so it
never passes the target's, and what it said before that step is distinct from what it says after.

Invariant: a partition is given only when no member holds it, and a member holds it until it said otherwise or
is gone.  So it never has two owners.  It ends: each step either gives partitions up, which needs the member's
word (or its end: see `leaving`), or brings the member to the target's epoch.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Final

from distributedlog.groups.consumer.member import Member, MemberState
from distributedlog.groups.consumer.topics import NO_PARTITIONS, TopicIdPartition, TopicIdPartitions
from distributedlog.model.errors import FencedMemberEpochError

STABLE: Final = MemberState.STABLE
UNREVOKED: Final = MemberState.UNREVOKED_PARTITIONS
UNRELEASED: Final = MemberState.UNRELEASED_PARTITIONS


class MemberEvent(StrEnum):
    MUST_REVOKE = "it holds what is another's to be"
    STILL_HOLDS = "it has not given up what it has to"
    MUST_WAIT = "something meant for it is held by another"
    COMPLETE = "it has all that is meant for it"


TRANSITIONS: Final[Mapping[tuple[MemberState, MemberEvent], MemberState]] = {
    (STABLE, MemberEvent.MUST_REVOKE): UNREVOKED,
    (STABLE, MemberEvent.MUST_WAIT): UNRELEASED,
    (STABLE, MemberEvent.COMPLETE): STABLE,
    (UNREVOKED, MemberEvent.STILL_HOLDS): UNREVOKED,
    (UNREVOKED, MemberEvent.MUST_REVOKE): UNREVOKED,
    (UNREVOKED, MemberEvent.MUST_WAIT): UNRELEASED,
    (UNREVOKED, MemberEvent.COMPLETE): STABLE,
    (UNRELEASED, MemberEvent.MUST_REVOKE): UNREVOKED,
    (UNRELEASED, MemberEvent.MUST_WAIT): UNRELEASED,
    (UNRELEASED, MemberEvent.COMPLETE): STABLE,
}
"""A pair that is not here cannot happen: a KeyError is a defect."""

IsFree = Callable[[TopicIdPartition], bool]
"""Whether nobody holds the partition."""


def reconcile(
    member: Member,
    target: TopicIdPartitions,
    target_epoch: int,
    owned: TopicIdPartitions | None,
    is_free: IsFree,
) -> Member:
    """Reconciles a member; `owned` is what it says that it has now; None: it says nothing, so it may have
    everything."""
    if member.is_reconciled_to(target_epoch):
        return member
    if member.state is UNREVOKED:
        if _still_has(member.revoking, owned):
            assert TRANSITIONS[UNREVOKED, MemberEvent.STILL_HOLDS] is UNREVOKED
            return member
        return _next(member, member.epoch + 1, target, target_epoch, owned, is_free)
    if member.state is MemberState.UNKNOWN:
        if owned is None or owned:
            raise FencedMemberEpochError(
                f"member {member.member_id!r} was left in a state that is not known here: it has to come anew"
            )
        member = replace(member, state=STABLE)
    return _next(member, member.epoch, target, target_epoch, owned, is_free)


def _still_has(revoking: TopicIdPartitions, owned: TopicIdPartitions | None) -> bool:
    return bool(revoking) and (owned is None or not revoking.isdisjoint(owned))


def _next(
    member: Member,
    epoch: int,
    target: TopicIdPartitions,
    target_epoch: int,
    owned: TopicIdPartitions | None,
    is_free: IsFree,
) -> Member:
    kept = member.assigned & target
    to_go = member.assigned - kept
    if _still_has(to_go, owned):
        return _moved(member, MemberEvent.MUST_REVOKE, epoch, kept, to_go)
    to_come = target - kept
    # What it gives up in this very step is not in `to_come`: it is not in the target.
    free = frozenset(tp for tp in to_come if is_free(tp))
    event = MemberEvent.COMPLETE if len(free) == len(to_come) else MemberEvent.MUST_WAIT
    return _moved(member, event, target_epoch, kept | free, NO_PARTITIONS)


def _moved(
    member: Member, event: MemberEvent, epoch: int, assigned: TopicIdPartitions, revoking: TopicIdPartitions
) -> Member:
    return replace(
        member,
        state=TRANSITIONS[member.state, event],
        epoch=epoch,
        # Also where the epoch is the same: what a member said before this step counts no more.
        previous_epoch=member.epoch,
        assigned=assigned,
        revoking=revoking,
    )
