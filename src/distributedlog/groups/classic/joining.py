"""JoinGroup: a member enters a classic group, or comes to its next generation.

| JoinGroup from                        | the response                                                     |
|---------------------------------------|------------------------------------------------------------------|
| no id yet, dynamic                    | MEMBER_ID_REQUIRED and an id; older clients join at once         |
| no id yet, an instance id not known   | joins at once: the instance id is what makes it known            |
| no id yet, a known instance id        | takes the other's place under a new id; the other is fenced      |
| an id that was given out              | joins                                                            |
| a member, group preparing             | waits with the others                                            |
| a member, completing, same protocols  | its generation again: the response was lost                      |
| a member, stable, same protocols, no  | its generation again                                             |
|   leader                              |                                                                  |
| any other member                      | a rebalance begins                                               |

A leader that joins a stable group again wants a rebalance: something it watches, as the number of partitions,
is another.  A static member that takes its own place in a stable group causes none, unless that changes the
protocol or what it subscribes to.
"""

from collections.abc import Callable

from distributedlog.groups.classic.group import (
    ClassicGroup,
    GroupState,
    Member,
    make_group_metadata_record,
    read_topics,
)
from distributedlog.groups.classic.rebalance import (
    add_pending,
    charge,
    discharge,
    forget_pending,
    keep_alive,
    make_join_reply,
    prepare,
    rebalance,
    release,
    session_key,
)
from distributedlog.groups.config import NAME_BYTES_MAX, PROTOCOLS_MAX
from distributedlog.groups.member_bytes import sum_protocol_bytes
from distributedlog.groups.records import utf8_bytes
from distributedlog.groups.requests import DEFERRED, NO_MEMBER, Deferred, JoinReply, JoinRequest
from distributedlog.groups.turn import Turn
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    GroupFullError,
    InconsistentProtocolError,
    InvalidRequestError,
    InvalidSessionTimeoutError,
    RecordTooLargeError,
    UnknownMemberError,
)

NewId = Callable[[str], str]
"""An id that nobody has, which begins with this text."""
ID_PREFIX_LENGTH_MAX = 255


def check_request(request: JoinRequest, turn: Turn) -> None:
    """Checks what can be checked without the group."""
    config = turn.config
    if not config.session_timeout_ms_min <= request.session_timeout_ms <= config.session_timeout_ms_max:
        raise InvalidSessionTimeoutError(
            f"a session of {request.session_timeout_ms} ms is not allowed: "
            f"{config.session_timeout_ms_min} to {config.session_timeout_ms_max} are"
        )
    if len(request.protocols) > PROTOCOLS_MAX:
        raise InvalidRequestError(f"{len(request.protocols)} protocols are more than {PROTOCOLS_MAX}")
    names = [
        request.protocol_type,
        request.instance_id or "",
        *(supported.name for supported in request.protocols),
    ]
    if any(utf8_bytes(name) > NAME_BYTES_MAX for name in names):
        raise InvalidRequestError(f"a name has more than {NAME_BYTES_MAX} bytes")
    if sum(len(supported.metadata) for supported in request.protocols) > config.entry_bytes_max:
        raise RecordTooLargeError(f"what a member says of itself must fit {config.entry_bytes_max} bytes")


def join(group: ClassicGroup, request: JoinRequest, turn: Turn, new_id: NewId) -> JoinReply | Deferred:
    besides = request.member_id or group.static.get(request.instance_id or "", NO_MEMBER)
    if not group.accepts(request.protocol_type, request.protocols, besides):
        raise InconsistentProtocolError(
            f"the member offers no protocol that the others of group {group.group_id!r} know"
        )
    if request.member_id:
        return _join_with_id(group, request, turn)
    if request.instance_id is not None:
        known = group.static.get(request.instance_id)
        if known is not None:
            return _replace(group, group.members[known], request, turn, new_id)
    _check_room(group, turn)
    member_id = new_id((request.instance_id or request.client_id)[:ID_PREFIX_LENGTH_MAX])
    if request.instance_id is None and request.must_know_id:
        add_pending(group, member_id, request, turn)
        return JoinReply(member_id, ErrorCode.MEMBER_ID_REQUIRED)
    return _enter(group, member_id, request, turn)


def _check_room(group: ClassicGroup, turn: Turn) -> None:
    if len(group.members) + len(group.pending) >= turn.config.members_max:
        raise GroupFullError(f"group {group.group_id!r} has as many members as it may: {len(group.members)}")


def _enter(group: ClassicGroup, member_id: str, request: JoinRequest, turn: Turn) -> Deferred:
    member = Member(
        member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocols=request.protocols,
    )
    turn.member_bytes.check(group.group_id, request.client_host, member.size, turn.config)
    forget_pending(group, member_id, turn)
    member.is_new = True
    member.join_waiter = request.waiter
    group.add(member, request.protocol_type)
    group.has_newcomers = True
    charge(group, member, turn)
    keep_alive(group, member, turn)
    rebalance(group, turn)
    return DEFERRED


def _join_with_id(group: ClassicGroup, request: JoinRequest, turn: Turn) -> JoinReply | Deferred:
    if request.member_id in group.pending and request.instance_id is None:
        return _enter(group, request.member_id, request, turn)
    member = group.check_identity(request.member_id, request.instance_id)
    is_same = member.protocols == request.protocols
    if group.state is GroupState.COMPLETING and is_same:
        keep_alive(group, member, turn)
        return make_join_reply(group, member)
    if group.state is GroupState.STABLE and is_same and member.member_id != group.leader_id:
        keep_alive(group, member, turn)
        return make_join_reply(group, member)
    if group.state is GroupState.EMPTY:
        raise UnknownMemberError(f"group {group.group_id!r} has no members")
    _check_growth(group, member, request, turn)
    _update(group, member, request, turn)
    rebalance(group, turn)
    return DEFERRED


def _check_growth(group: ClassicGroup, member: Member, request: JoinRequest, turn: Turn) -> None:
    """Checks that a member may hold what it says of itself now, before anything is changed."""
    more_bytes = sum_protocol_bytes(request.protocols) - sum_protocol_bytes(member.protocols)
    turn.member_bytes.check(group.group_id, request.client_host, more_bytes, turn.config)


def _update(group: ClassicGroup, member: Member, request: JoinRequest, turn: Turn) -> None:
    if member.join_waiter is not None:
        # It joins again on another connection: nobody reads this response any more.
        turn.complete(member.join_waiter, JoinReply(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS))
    member.join_waiter = request.waiter
    member.protocols = request.protocols
    member.client_id, member.client_host = request.client_id, request.client_host
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    charge(group, member, turn)
    keep_alive(group, member, turn)


# --- static members ----------------------------------------------------------------------------


def _replace(
    group: ClassicGroup, member: Member, request: JoinRequest, turn: Turn, new_id: NewId
) -> JoinReply | Deferred:
    """A static member is back: the process that was it before is fenced."""
    spare_bytes = ID_PREFIX_LENGTH_MAX + sum(len(supported.metadata) for supported in request.protocols)
    turn.check_fits([make_group_metadata_record(group)], spare_bytes)
    _check_growth(group, member, request, turn)
    old_id, old_leader_id = member.member_id, group.leader_id
    old_topics = read_topics(group.protocol_type, member.metadata(group.protocol))
    release(member, turn, ErrorCode.FENCED_INSTANCE_ID)
    turn.timers.cancel(session_key(group, member))
    discharge(group, old_id, turn)
    assert request.instance_id is not None
    group.rename(old_id, new_id(request.instance_id[:ID_PREFIX_LENGTH_MAX]))
    _update(group, member, request, turn)
    if group.state is GroupState.STABLE and _changes_nothing(group, member, old_topics):
        member.join_waiter = None
        turn.write(make_group_metadata_record(group))
        reply = make_join_reply(group, member)
        if request.may_skip_assignment:
            return reply._replace(skip_assignment=member.member_id == group.leader_id)
        # An older client that learned that it leads would assign anew; with the former id as leader it does
        # not.
        return reply._replace(leader_id=old_leader_id or NO_MEMBER, members=())
    if group.state is GroupState.COMPLETING:
        # The leader knows it by its old id, and would assign nothing to the new one.
        prepare(group, turn)
    rebalance(group, turn)
    return DEFERRED


def _changes_nothing(group: ClassicGroup, member: Member, old_topics: frozenset[str] | None) -> bool:
    if group.protocol not in group.candidates() or group.select_protocol() != group.protocol:
        return False
    return read_topics(group.protocol_type, member.metadata(group.protocol)) == old_topics
