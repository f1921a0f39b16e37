"""LeaveGroup: members leave.  Each has an error of its own; the group rebalances once for all that went.

an id that was given out and not used     is forgotten
an instance id alone                      whoever has it goes: an administrator removes a static member
both                                      the member, if the instance id is still its own
"""

from distributedlog.groups.classic.group import ClassicGroup, GroupState
from distributedlog.groups.classic.rebalance import close_if_all_joined, forget_pending, rebalance, remove
from distributedlog.groups.requests import NO_MEMBER, Leaver, LeaveReply, LeaveRequest
from distributedlog.groups.turn import Turn
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError


def leave(group: ClassicGroup, request: LeaveRequest, turn: Turn) -> LeaveReply:
    errors = []
    before = len(group.members)
    for leaver in request.leavers:
        try:
            _take_out(group, leaver, turn)
        except DlogError as error:
            errors.append(error.code)
        else:
            errors.append(ErrorCode.NONE)
    if len(group.members) != before:
        rebalance(group, turn)
    elif group.state is GroupState.PREPARING:
        close_if_all_joined(group, turn)
    return LeaveReply(tuple(errors))


def _take_out(group: ClassicGroup, leaver: Leaver, turn: Turn) -> None:
    if leaver.instance_id is None and leaver.member_id in group.pending:
        forget_pending(group, leaver.member_id, turn)
        return
    member_id = leaver.member_id
    if leaver.instance_id is not None and member_id == NO_MEMBER:
        member_id = group.static.get(leaver.instance_id, NO_MEMBER)
    member = group.check_identity(member_id, leaver.instance_id)
    remove(group, member.member_id, turn)
