"""Every pair of `TRANSITIONS` happens in a story; that no other does is shown by the model's runs."""

import pytest

from distributedlog.groups.classic.group import TRANSITIONS, ClassicGroup, GroupEvent, GroupState
from distributedlog.groups.requests import DeleteGroupRequest
from tests.unit.groups.stage import GROUP, REBALANCE_MS, SESSION_MS, Stage

Pair = tuple[GroupState, GroupEvent]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> set[Pair]:
    """The pairs that have happened."""
    pairs: set[Pair] = set()
    move = ClassicGroup.move

    def noted(group: ClassicGroup, event: GroupEvent, wall_ms: int) -> None:
        pairs.add((group.state, event))
        move(group, event, wall_ms)

    monkeypatch.setattr(ClassicGroup, "move", noted)
    return pairs


def test_a_group_is_born_lives_and_is_deleted(seen: set[Pair]) -> None:
    stage = Stage()
    leader, follower = stage.stable(None, None)  # empty, preparing, completing, again, stable
    joining = stage.join(leader)  # stable: a rebalance
    stage.join(follower)
    assert joining.joined.generation == 3
    stage.leave(leader, follower)  # completing: a rebalance; then nobody is there
    stage.ask(DeleteGroupRequest(GROUP))
    assert seen == set(TRANSITIONS)


def test_a_group_that_is_abandoned_in_any_state_becomes_empty(seen: set[Pair]) -> None:
    for until in (GroupState.PREPARING, GroupState.COMPLETING, GroupState.STABLE):
        stage = Stage()
        (member,) = stage.stable(None)
        group = stage.machine.groups[GROUP]
        if until is not GroupState.STABLE:
            newcomer = stage.join()
            if until is GroupState.COMPLETING:
                stage.join(member)
                assert newcomer.is_answered
        assert group.state is until
        stage.advance(REBALANCE_MS + 2 * SESSION_MS)
        assert stage.machine.groups[GROUP].state is GroupState.EMPTY
    assert (GroupState.COMPLETING, GroupEvent.REBALANCE) in seen


@pytest.mark.parametrize("state", GroupState)
@pytest.mark.parametrize("event", GroupEvent)
def test_what_is_not_in_the_table_is_a_defect(state: GroupState, event: GroupEvent) -> None:
    group = ClassicGroup(GROUP, 0)
    group.state = state
    if (state, event) in TRANSITIONS:
        group.move(event, 1)
        assert group.state is TRANSITIONS[state, event]
        return
    with pytest.raises(KeyError):
        group.move(event, 1)
