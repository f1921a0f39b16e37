"""The deadlines of members.  SOFT STATE: a coordinator that takes over begins all of them anew.

| deadline         | begins                               | ends                          | when it is over |
|------------------|--------------------------------------|-------------------------------|-----------------|
| CONSUMER_SESSION | with each sign of life               | with the member               | it is removed   |
| REVOCATION       | when it has to give some up          | when it has, or holds no more | it is removed   |
| REJOIN           | when a classic one has to join again | when it joins                 | it is removed   |
| RESYNC           | when a classic one has joined        | when it sends SyncGroup       | it is removed   |

A deadline that is looked at late says that the coordinator itself stood still: the member gets that time
back.
"""

from typing import Final

from distributedlog.groups.config import GroupConfig
from distributedlog.groups.consumer.member import Member, MemberState
from distributedlog.groups.turn import Timer, TimerKey, Turn
from distributedlog.model.config import MINUTE_MS, SECOND_MS

STALL_MS: Final = 1 * SECOND_MS
REBALANCE_TIMEOUT_MS: Final = 5 * MINUTE_MS
"""The rebalance timeout of a member that did not say how long it takes."""
OF_A_MEMBER: Final = (Timer.CONSUMER_SESSION, Timer.REVOCATION, Timer.REJOIN, Timer.RESYNC)


def session_timeout_ms(member: Member, config: GroupConfig) -> int:
    if member.classic is not None:
        return member.classic.session_timeout_ms
    return config.consumer_session_timeout_ms


def rebalance_timeout_ms(member: Member) -> int:
    return REBALANCE_TIMEOUT_MS if member.rebalance_timeout_ms < 0 else member.rebalance_timeout_ms


def keep_alive(group_id: str, member: Member, turn: Turn) -> None:
    key = TimerKey(Timer.CONSUMER_SESSION, group_id, member.member_id)
    turn.timers.set(key, turn.now_ms + session_timeout_ms(member, turn.config))


def watch_revocation(group_id: str, before: Member | None, member: Member, turn: Turn) -> None:
    """A member that has to give up partitions may take its time for it, and no more."""
    key = TimerKey(Timer.REVOCATION, group_id, member.member_id)
    if member.state is not MemberState.UNREVOKED_PARTITIONS or member.classic is not None or member.is_away:
        turn.timers.cancel(key)
    elif key not in turn.timers or before is None or before.revoking != member.revoking:
        turn.timers.set(key, turn.now_ms + rebalance_timeout_ms(member))


def require_rejoin(group_id: str, member: Member, turn: Turn) -> None:
    key = TimerKey(Timer.REJOIN, group_id, member.member_id)
    if key not in turn.timers:
        turn.timers.set(key, turn.now_ms + rebalance_timeout_ms(member))


def mark_rejoined(group_id: str, member: Member, turn: Turn) -> None:
    turn.timers.cancel(TimerKey(Timer.REJOIN, group_id, member.member_id))
    turn.timers.set(
        TimerKey(Timer.RESYNC, group_id, member.member_id), turn.now_ms + rebalance_timeout_ms(member)
    )


def mark_synced(group_id: str, member: Member, turn: Turn) -> None:
    turn.timers.cancel(TimerKey(Timer.RESYNC, group_id, member.member_id))


def cancel_deadlines(group_id: str, member_id: str, turn: Turn) -> None:
    for timer in OF_A_MEMBER:
        turn.timers.cancel(TimerKey(timer, group_id, member_id))


def excuse_stall(key: TimerKey, due_ms: int, member: Member, turn: Turn) -> bool:
    """Returns whether the coordinator stood still while the deadline passed; then there is another one."""
    late_ms = turn.now_ms - due_ms
    if late_ms < STALL_MS:
        return False
    turn.timers.set(key, turn.now_ms + min(late_ms, session_timeout_ms(member, turn.config)))
    return True
