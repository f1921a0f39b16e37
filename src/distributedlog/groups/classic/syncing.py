"""SyncGroup and Heartbeat: a member of a generation gets its assignment, and says that it is there.

| state               | SyncGroup                                          | Heartbeat                     |
|---------------------|----------------------------------------------------|-------------------------------|
| Empty               | UNKNOWN_MEMBER_ID                                  | the same                      |
| PreparingRebalance  | REBALANCE_IN_PROGRESS                              | the same; the session goes on |
| CompletingRebalance | waits; the leader's makes the group Stable         | all is well                   |
| Stable              | the assignment, also again                         | all is well                   |

The assignments are one record with the group; no member gets its own before that record is committed.
"""

from distributedlog.groups.classic.group import (
    ClassicGroup,
    GroupEvent,
    GroupState,
    make_group_metadata_record,
)
from distributedlog.groups.classic.rebalance import charge, keep_alive, mark_synced
from distributedlog.groups.requests import DEFERRED, Deferred, HeartbeatRequest, SyncReply, SyncRequest
from distributedlog.groups.turn import Turn
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import InconsistentProtocolError, RebalanceInProgressError


def sync(group: ClassicGroup, request: SyncRequest, turn: Turn) -> SyncReply | Deferred:
    member = group.check_member(request.member_id, request.instance_id, request.generation)
    for claimed, actual in ((request.protocol_type, group.protocol_type), (request.protocol, group.protocol)):
        if claimed is not None and claimed != actual:
            raise InconsistentProtocolError(
                f"group {group.group_id!r} has the protocol {actual!r}, not {claimed!r}"
            )
    if group.state is GroupState.PREPARING:
        raise RebalanceInProgressError(f"group {group.group_id!r} is forming its next generation")
    if group.state is GroupState.STABLE:
        mark_synced(group, member, turn)
        keep_alive(group, member, turn)
        return SyncReply(ErrorCode.NONE, group.protocol_type, group.protocol, member.assignment)
    assert group.state is GroupState.COMPLETING, "an empty group has no members that could send it"
    leads = member.member_id == group.leader_id
    if leads:
        _check_assignments(group, request, turn)
    if member.sync_waiter is not None:
        turn.complete(member.sync_waiter, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_waiter = request.waiter
    mark_synced(group, member, turn)
    keep_alive(group, member, turn)
    if leads:
        _assign(group, request, turn)
    return DEFERRED


def _check_assignments(group: ClassicGroup, request: SyncRequest, turn: Turn) -> None:
    assigned_bytes = sum(len(data) for member_id, data in request.assignments if member_id in group.members)
    turn.check_fits([make_group_metadata_record(group)], assigned_bytes)
    host = group.members[request.member_id].client_host
    more_bytes = assigned_bytes - sum(len(each.assignment) for each in group.members.values())
    turn.member_bytes.check(group.group_id, host, more_bytes, turn.config)


def _assign(group: ClassicGroup, request: SyncRequest, turn: Turn) -> None:
    """The group is stable, and everybody who waits gets his part.  Who was given none has an empty one."""
    given = dict(request.assignments)
    for member in group.members.values():
        member.assignment = given.get(member.member_id, b"")
        charge(group, member, turn)
    group.move(GroupEvent.ASSIGNED, turn.wall_ms)
    turn.write(make_group_metadata_record(group))
    for member in group.members.values():
        if member.sync_waiter is not None:
            reply = SyncReply(ErrorCode.NONE, group.protocol_type, group.protocol, member.assignment)
            turn.complete(member.sync_waiter, reply)
            member.sync_waiter = None
            keep_alive(group, member, turn)


def heartbeat(group: ClassicGroup, request: HeartbeatRequest, turn: Turn) -> None:
    member = group.check_member(request.member_id, request.instance_id, request.generation)
    keep_alive(group, member, turn)
    if group.state is GroupState.PREPARING:
        raise RebalanceInProgressError(f"group {group.group_id!r} is forming its next generation")
