"""Who may commit offsets of a consumer group, and fetch them.

| the request is from                    | the group has members          | it has none           |
|----------------------------------------|--------------------------------|-----------------------|
| a member in its epoch                  | yes                            | -                     |
| a member in another epoch              | STALE_MEMBER_EPOCH: it has to  | -                     |
|                                        | learn of its own by heartbeat  |                       |
| a classic member in another generation | ILLEGAL_GENERATION             | -                     |
| somebody in no epoch (-1)              | commit: UNKNOWN_MEMBER_ID      | yes: an administrator |
|                                        | fetch: yes                     |                       |
| anybody else                           | UNKNOWN_MEMBER_ID              | UNKNOWN_MEMBER_ID     |

A request whose version knows no member epochs (OffsetCommit below 9) is refused to a member that has one.
"""

from distributedlog.groups.consumer.group import ConsumerGroup
from distributedlog.groups.consumer.heartbeat import check_static
from distributedlog.groups.consumer.member import Member
from distributedlog.groups.requests import CommitRequest, FetchOffsetsRequest
from distributedlog.model.errors import (
    IllegalGenerationError,
    StaleMemberEpochError,
    UnknownMemberError,
    UnsupportedVersionError,
)


def check_commit(group: ConsumerGroup, request: CommitRequest) -> None:
    if request.generation < 0 and not group.members:
        return
    member = group.members.get(request.member_id)
    if member is not None and member.classic is not None and request.instance_id is not None:
        check_static(group, request.member_id, request.instance_id)
    if member is None:
        raise UnknownMemberError(f"group {group.group_id!r} has no member {request.member_id!r}")
    if member.classic is None and not request.knows_epochs:
        raise UnsupportedVersionError(f"group {group.group_id!r} takes OffsetCommit from version 9 on")
    _check_epoch(member, request.generation)


def check_fetch(group: ConsumerGroup, request: FetchOffsetsRequest) -> None:
    if request.member_id is None and request.epoch < 0:
        return
    member = group.members.get(request.member_id or "")
    if member is None:
        raise UnknownMemberError(f"group {group.group_id!r} has no member {request.member_id!r}")
    _check_epoch(member, request.epoch)


def _check_epoch(member: Member, epoch: int) -> None:
    if epoch == member.epoch:
        return
    text = f"member {member.member_id!r} is in epoch {member.epoch}, not {epoch}"
    raise StaleMemberEpochError(text) if member.classic is None else IllegalGenerationError(text)
