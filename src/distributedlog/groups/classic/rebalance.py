"""The barrier between two generations: who starts it, when it closes, and what closing it does.

    prepare   somebody came, left or changed: everybody has to join again, for as long as the slowest may take
    close     those who joined are the next generation, and each gets its response; dynamic members who
              did not join are removed; static ones stay until their session ends, so that a restart disturbs
              nobody

The first generation of an empty group waits an initial delay for more members, and again as long as new ones
come, up to the rebalance timeout; with no delay it closes as soon as all known members have joined.  When
only static members that did not join are left, the barrier stays open: there is nobody who could lead.

A session is a deadline that every sign of life moves on.  Members that wait at the barrier, or for their
assignment, are alive as long as they wait; a new one may have gone while it waited, so it has a longer but
fixed deadline.  A deadline that is looked at late says that the coordinator itself stood still: the member
gets that time back, since its heartbeats may be waiting to be read.
"""

from typing import Final

from distributedlog.groups.classic.group import (
    ClassicGroup,
    GroupEvent,
    GroupState,
    Member,
    make_group_metadata_record,
)
from distributedlog.groups.member_bytes import MEMBER_OVERHEAD_BYTES, Holder, Holding
from distributedlog.groups.requests import NO_MEMBER, JoinReply, JoinRequest, SyncReply
from distributedlog.groups.turn import Timer, TimerKey, Turn
from distributedlog.model.config import SECOND_MS
from distributedlog.model.error_codes import ErrorCode

STALL_MS: Final = 1 * SECOND_MS


# --- sessions ----------------------------------------------------------------------------------


def session_key(group: ClassicGroup, member: Member) -> TimerKey:
    return TimerKey(Timer.SESSION, group.group_id, member.member_id)


def keep_alive(group: ClassicGroup, member: Member, turn: Turn) -> None:
    timeout_ms = member.session_timeout_ms
    if member.is_new and member.join_waiter is not None:
        timeout_ms = turn.config.new_member_timeout_ms
    turn.timers.set(session_key(group, member), turn.now_ms + timeout_ms)


def expire_session(group: ClassicGroup, member_id: str, due_ms: int, turn: Turn) -> None:
    member = group.members[member_id]
    late_ms = turn.now_ms - due_ms
    if late_ms >= STALL_MS:
        excused_ms = min(late_ms, member.session_timeout_ms)
        turn.timers.set(session_key(group, member), turn.now_ms + excused_ms)
        return
    waits = member.sync_waiter is not None or (member.join_waiter is not None and not member.is_new)
    if waits:
        keep_alive(group, member, turn)
        return
    remove(group, member_id, turn)
    rebalance(group, turn)


def expire_pending(group: ClassicGroup, member_id: str, turn: Turn) -> None:
    """An id was given out and nobody came with it."""
    forget_pending(group, member_id, turn)
    close_if_all_joined(group, turn)


def remove(
    group: ClassicGroup, member_id: str, turn: Turn, error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID
) -> None:
    """Removes a member, and completes its request with the error if it waits.  The others: see
    `rebalance`."""
    member = group.remove(member_id)
    turn.timers.cancel(session_key(group, member))
    discharge(group, member_id, turn)
    release(member, turn, error)


def release(member: Member, turn: Turn, error: ErrorCode) -> None:
    """Whatever the member waits for, it waits no longer."""
    if member.join_waiter is not None:
        turn.complete(member.join_waiter, JoinReply(member.member_id, error))
        member.join_waiter = None
    release_sync(member, turn, error)


def release_sync(member: Member, turn: Turn, error: ErrorCode) -> None:
    if member.sync_waiter is not None:
        turn.complete(member.sync_waiter, SyncReply(error))
        member.sync_waiter = None


# --- memory ------------------------------------------------------------------------------------


def _holder(group: ClassicGroup, member_id: str) -> Holder:
    return Holder(Holding.CLASSIC, group.group_id, member_id)


def charge(group: ClassicGroup, member: Member, turn: Turn) -> None:
    """Counts what the member holds now, in the place of what it held."""
    turn.member_bytes.charge(_holder(group, member.member_id), member.client_host, member.size)


def discharge(group: ClassicGroup, member_id: str, turn: Turn) -> None:
    turn.member_bytes.release(_holder(group, member_id))


def add_pending(group: ClassicGroup, member_id: str, request: JoinRequest, turn: Turn) -> None:
    """An id is given out: for as long as a session, somebody may join with it."""
    size = MEMBER_OVERHEAD_BYTES + len(group.group_id) + len(member_id)
    turn.member_bytes.check(group.group_id, request.client_host, size, turn.config)
    holder = Holder(Holding.PENDING, group.group_id, member_id)
    turn.member_bytes.charge(holder, request.client_host, size)
    group.pending.add(member_id)
    key = TimerKey(Timer.PENDING, group.group_id, member_id)
    turn.timers.set(key, turn.now_ms + request.session_timeout_ms)


def forget_pending(group: ClassicGroup, member_id: str, turn: Turn) -> None:
    group.pending.discard(member_id)
    turn.timers.cancel(TimerKey(Timer.PENDING, group.group_id, member_id))
    turn.member_bytes.release(Holder(Holding.PENDING, group.group_id, member_id))


# --- the barrier -------------------------------------------------------------------------------


def _barrier(group: ClassicGroup) -> TimerKey:
    return TimerKey(Timer.JOIN, group.group_id)


def _sync_timer(group: ClassicGroup) -> TimerKey:
    return TimerKey(Timer.SYNC, group.group_id)


def rebalance(group: ClassicGroup, turn: Turn) -> None:
    """The members, or what they offer, are others than before."""
    if group.state is not GroupState.PREPARING:
        prepare(group, turn)
    close_if_all_joined(group, turn)


def prepare(group: ClassicGroup, turn: Turn) -> None:
    wait_ms = group.rebalance_timeout_ms
    if group.state is GroupState.EMPTY:
        delay_ms = min(turn.config.initial_rebalance_delay_ms, wait_ms)
        group.initial_delay_left_ms = wait_ms - delay_ms if delay_ms else None
        group.has_newcomers = False
        wait_ms = delay_ms or wait_ms
    if group.state is GroupState.COMPLETING:
        for member in group.members.values():
            member.assignment = b""
            charge(group, member, turn)
            release_sync(member, turn, ErrorCode.REBALANCE_IN_PROGRESS)
    group.unsynced.clear()
    turn.timers.cancel(_sync_timer(group))
    turn.timers.set(_barrier(group), turn.now_ms + wait_ms)
    group.move(GroupEvent.REBALANCE, turn.wall_ms)


def close_if_all_joined(group: ClassicGroup, turn: Turn) -> None:
    if group.state is GroupState.PREPARING and group.initial_delay_left_ms is None and group.all_joined:
        _close(group, turn)


def end_join_phase(group: ClassicGroup, turn: Turn) -> None:
    """The time to join is over, or the initial delay is."""
    left_ms = group.initial_delay_left_ms
    if left_ms is not None and left_ms > 0 and group.has_newcomers:
        delay_ms = min(turn.config.initial_rebalance_delay_ms, left_ms)
        group.initial_delay_left_ms = left_ms - delay_ms
        group.has_newcomers = False
        turn.timers.set(_barrier(group), turn.now_ms + delay_ms)
        return
    _close(group, turn)


def _close(group: ClassicGroup, turn: Turn) -> None:
    group.initial_delay_left_ms = None
    for member in list(group.members.values()):
        if member.join_waiter is None and member.instance_id is None:
            remove(group, member.member_id, turn)
    joined = [each for each in group.members.values() if each.join_waiter is not None]
    if group.members and not joined:
        turn.timers.set(_barrier(group), turn.now_ms + group.rebalance_timeout_ms)
        return
    turn.timers.cancel(_barrier(group))
    group.generation += 1
    if joined:
        _begin_generation(group, joined, turn)
    else:
        group.protocol = None
        group.leader_id = None
        group.move(GroupEvent.NOBODY, turn.wall_ms)
        turn.write(make_group_metadata_record(group))


def _begin_generation(group: ClassicGroup, joined: list[Member], turn: Turn) -> None:
    if all(each.member_id != group.leader_id for each in joined):
        group.leader_id = joined[0].member_id
    group.protocol = group.select_protocol()
    group.move(GroupEvent.JOINED, turn.wall_ms)
    for member in joined:
        assert member.join_waiter is not None
        turn.complete(member.join_waiter, make_join_reply(group, member))
        member.join_waiter = None
        member.is_new = False
        keep_alive(group, member, turn)
    group.unsynced = set(group.members)
    turn.timers.set(_sync_timer(group), turn.now_ms + group.rebalance_timeout_ms)


def make_join_reply(group: ClassicGroup, member: Member) -> JoinReply:
    """Makes the response to JoinGroup of a member of this generation."""
    leads = member.member_id == group.leader_id
    return JoinReply(
        member_id=member.member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader_id=group.leader_id or NO_MEMBER,
        members=group.joined_members() if leads else (),
    )


# --- assignments -------------------------------------------------------------------------------


def mark_synced(group: ClassicGroup, member: Member, turn: Turn) -> None:
    """Notes that the member has sent SyncGroup."""
    group.unsynced.discard(member.member_id)
    if not group.unsynced:
        turn.timers.cancel(_sync_timer(group))


def expire_sync(group: ClassicGroup, turn: Turn) -> None:
    """Removes members that did not send SyncGroup within the rebalance timeout."""
    if group.state not in (GroupState.COMPLETING, GroupState.STABLE) or not group.unsynced:
        return
    for member_id in [each for each in group.members if each in group.unsynced]:
        remove(group, member_id, turn)
    group.unsynced.clear()
    rebalance(group, turn)
