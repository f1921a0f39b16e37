"""Every way that a small group can go: a few members at most, of which one may be static, and all that can
happen to them, in any order.

From each situation everything is tried once; a situation that was seen before is not followed again.  What
makes two situations the same is what decides how the group goes on: its state, and of each member whether it
is static, leads, is new, waits to be joined or synced; ids that were given out; deadlines that are set.
Times, names, the numbers of generations and what members offer are left out.  Any deadline may come next,
whatever its time: so what is found here includes everything that clocks can do.

There are finitely many situations, and the search ends by itself: what did not happen in it cannot happen to
a group of this size.
"""

import copy
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from distributedlog.groups.classic.group import (
    ClassicGroup,
    GroupEvent,
    GroupState,
    make_group_metadata_record,
)
from distributedlog.groups.config import GroupConfig
from distributedlog.groups.requests import DeleteGroupRequest, SupportedProtocol
from distributedlog.groups.turn import Timer, TimerKey
from tests.unit.groups.stage import GROUP, RANGE, Stage, subscription

INSTANCE = "i0"
Pair = tuple[GroupState, GroupEvent]
Step = tuple[str, Callable[[Stage], None]]


class Exploration(NamedTuple):
    pairs: dict[Pair, str]
    """What happened, and the steps that first led to it."""
    situations: int
    states: set[GroupState]


def explore(config: GroupConfig, members_max: int, situations_max: int) -> Exploration:
    """All of it; an AssertionError if that is more than `situations_max`."""
    pairs: dict[Pair, str] = {}
    states: set[GroupState] = set()
    start = Stage(config)
    seen = {situation(start)}
    waiting = deque([(start, "")])
    while waiting:
        stage, story = waiting.popleft()
        for name, step in steps(stage, members_max):
            after = copy.deepcopy(stage)
            told = f"{story}, {name}" if story else name
            with _noting(pairs, told):
                step(after)
            check(after, told)
            group = after.machine.groups.get(GROUP)
            states.add(GroupState.DEAD if group is None else group.state)
            key = situation(after)
            if key not in seen:
                seen.add(key)
                assert len(seen) <= situations_max, "there is no end to it"
                _forget_answers(after)
                waiting.append((after, told))
    return Exploration(pairs, len(seen), states)


class _noting:  # noqa: N801 - reads as a verb
    """Writes down which transitions are made meanwhile."""

    def __init__(self, pairs: dict[Pair, str], story: str) -> None:
        self._pairs, self._story = pairs, story
        self._move = ClassicGroup.move

    def __enter__(self) -> None:
        move, pairs, story = self._move, self._pairs, self._story

        def noted(group: ClassicGroup, event: GroupEvent, wall_ms: int) -> None:
            pairs.setdefault((group.state, event), story)
            move(group, event, wall_ms)

        ClassicGroup.move = noted  # type: ignore[method-assign, assignment]

    def __exit__(self, *_: object) -> None:
        ClassicGroup.move = self._move  # type: ignore[method-assign]


def _forget_answers(stage: Stage) -> None:
    """They were given: nothing follows from them here."""
    stage.answers.clear()
    for waiter in [number for number, each in stage.waiting.items() if each.is_answered]:
        del stage.waiting[waiter]


# --- what can happen ---------------------------------------------------------------------------


def steps(stage: Stage, members_max: int) -> Iterator[Step]:
    group = stage.machine.groups.get(GROUP)
    members = [] if group is None else list(group.members.values())
    pending = [] if group is None else sorted(group.pending)
    is_static_here = any(each.instance_id is not None for each in members)
    if len(members) + len(pending) < members_max:
        yield "one comes", lambda stage: _quietly(stage.join)
        yield "one asks for an id", lambda stage: _quietly(stage.join, must_know_id=True)
    if len(members) + len(pending) < members_max or is_static_here:
        yield f"{INSTANCE} comes", lambda stage: _come_static(stage, RANGE)
        yield f"{INSTANCE} comes with other topics", lambda stage: _come_static(stage, new_offers(stage))
    for member_id in pending:
        yield "the id is used", lambda stage, at=member_id: _quietly(stage.join, at)  # type: ignore[misc]
        yield "the id is given back", lambda stage, at=member_id: _leave(stage, at)  # type: ignore[misc]
    for number, member in enumerate(members):
        yield from _steps_of(number, member.member_id, member.instance_id)
    yield "it is deleted", lambda stage: _quietly(stage.code_of, DeleteGroupRequest(GROUP))
    yield "another coordinates", lambda stage: stage.failover()
    for key in deadlines(stage):
        yield f"{key.timer.name} is over", lambda stage, due=key: _due(stage, due)  # type: ignore[misc]


def _steps_of(number: int, member_id: str, instance: str | None) -> Iterator[Step]:
    def join(stage: Stage) -> None:
        protocols = stage.machine.groups[GROUP].members[member_id].protocols
        stage.join(member_id, instance=instance, protocols=protocols)

    def change(stage: Stage) -> None:
        stage.join(member_id, instance=instance, protocols=new_offers(stage))

    def sync(stage: Stage) -> None:
        group = stage.machine.groups[GROUP]
        given = {each: each.encode() for each in group.members}
        stage.sync(member_id, group.generation, given, instance=instance)

    yield f"{number} joins again", join
    yield f"{number} changes", change
    yield f"{number} syncs", sync
    yield f"{number} leaves", lambda stage: _leave(stage, member_id)


def new_offers(stage: Stage) -> tuple[SupportedProtocol, ...]:
    """Such as nobody has made yet."""
    return (SupportedProtocol("range", subscription(f"t{stage._waiter}")),)


def _come_static(stage: Stage, protocols: tuple[SupportedProtocol, ...]) -> None:
    """Comes with what it had before, if it is to be the same."""
    group = stage.machine.groups.get(GROUP)
    known = None if group is None else group.static.get(INSTANCE)
    if group is not None and known is not None and protocols is RANGE:
        protocols = group.members[known].protocols
    stage.join(instance=INSTANCE, protocols=protocols)


def _quietly(asked: Callable[..., object], *arguments: object, **named: object) -> None:
    """Whatever the answer is."""
    asked(*arguments, **named)


def _leave(stage: Stage, member_id: str) -> None:
    stage.leave(member_id)


def deadlines(stage: Stage) -> list[TimerKey]:
    return [key for key in stage.machine._timers._due_ms if key.timer is not Timer.EXPIRY]


def _due(stage: Stage, key: TimerKey) -> None:
    """This deadline comes next."""
    stage.machine._timers.set(key, stage.now_ms)
    # One that was due before is moved on, so that it is this one's turn.
    for other in stage.machine._timers._due_ms:
        if other != key and stage.machine._timers._due_ms[other] <= stage.now_ms:
            stage.machine._timers.set(other, stage.now_ms + 1)
    stage.runtime.tick(stage.now_ms)
    stage.settle()


# --- where it has come to ----------------------------------------------------------------------


def situation(stage: Stage) -> object:
    machine = stage.machine
    group = machine.groups.get(GROUP)
    stored = machine.stored.get(GROUP)
    durable = None if stored is None else bool(stored.members)
    if group is None:
        return durable
    members = tuple(
        (
            each.instance_id,
            each.member_id == group.leader_id,
            each.is_new,
            each.join_waiter is not None,
            each.sync_waiter is not None,
            each.member_id in group.unsynced,
        )
        for each in group.members.values()
    )
    timers = tuple(sorted(key.timer.name for key in deadlines(stage)))
    waits_for_more = group.initial_delay_left_ms is not None, group.has_newcomers
    return durable, group.state, group.generation > 0, members, len(group.pending), waits_for_more, timers


def check(stage: Stage, story: str) -> None:
    """What holds wherever a group has come to: it never waits for something that is not going to happen."""
    machine = stage.machine
    group = machine.groups.get(GROUP)
    if group is None:
        return
    timers = set(deadlines(stage))
    for member in group.members.values():
        assert TimerKey(Timer.SESSION, GROUP, member.member_id) in timers, story
    for member_id in group.pending:
        assert TimerKey(Timer.PENDING, GROUP, member_id) in timers, story
    assert (group.state is GroupState.PREPARING) == (TimerKey(Timer.JOIN, GROUP) in timers), story
    assert (TimerKey(Timer.SYNC, GROUP) in timers) == bool(group.unsynced), story
    assert (group.leader_id in group.members) == bool(group.members), story
    assert (group.state is GroupState.EMPTY) <= (not group.members), story
    assert set(group.static.values()) <= group.members.keys(), story
    assert len(timers) <= len(group.members) + len(group.pending) + 2, story
    if group.state is GroupState.STABLE or (group.state is GroupState.EMPTY and group.generation):
        assert make_group_metadata_record(group).value == machine.stored[GROUP], story
