"""Every step of `TRANSITIONS` happens in a story; that no other does is shown by the model's runs."""

from distributedlog.groups.consumer.group import TRANSITIONS, ConsumerGroupState
from distributedlog.groups.requests import DeleteGroupRequest
from tests.unit.groups.consumer.stage import SESSION_MS, ConsumerStage, Topics, classic_offer, steps_of
from tests.unit.groups.consumer.test_moving import classic_group
from tests.unit.groups.stage import GROUP

Step = tuple[ConsumerGroupState, ConsumerGroupState]


def live_and_die() -> ConsumerStage:
    """One, two, a change that means nothing, a departure, many departures, deleted."""
    stage = ConsumerStage(Topics(t=6, u=1))
    first, second, third = (stage.member(f"m{at}") for at in range(3))
    stage.settle_members(first, second, third)
    first.assignor = "range"
    first.beat()
    second.leave()
    third.leave()
    first.beat()
    first.leave()
    stage.ask(DeleteGroupRequest(GROUP))
    return stage


def come_again_to_an_empty_group() -> ConsumerStage:
    """It is left while it is assigning, and while it reconciles."""
    stage = ConsumerStage()
    for _ in range(2):
        members = [stage.member(f"m{at}") for at in range(3)]
        stage.settle_members(*members)
        for member in members:
            member.leave()
    first, second = stage.member("m0"), stage.member("m1")
    second.leave()
    first.leave()
    first.forget()
    first.beat()
    second.forget()
    second.beat()
    for member in (first, second):
        member.beat(gives_up=False)
    second.leave()
    second.forget()
    second.beat()
    first.beat()
    return stage


def go_all_at_once() -> ConsumerStage:
    stage = ConsumerStage()
    first, second = stage.member("m0"), stage.member("m1")
    assert stage.describe().state == "Reconciling"
    stage.ask(second.request(epoch=-1)._replace(owned=None))
    second.forget()
    second.beat()
    first.beat()
    first.beat()
    first.leave()
    second.beat()
    assert stage.describe().state == "Stable"
    return stage


def go_from_a_reconciling_group() -> ConsumerStage:
    stage = ConsumerStage()
    static = stage.member("m0", instance="i0")
    static.leave(epoch=-2)
    assert stage.describe().state == "Reconciling"
    stage.advance(SESSION_MS)
    return stage


def move_over_and_back(state: str) -> ConsumerStage:
    """The last member of the new protocol leaves when the group is in this state."""
    stage = ConsumerStage()
    member_id, _ = classic_group(stage)
    last = stage.member("m0")
    if state != "Reconciling":
        stage.join(member_id, protocols=classic_offer(stage))
        last.beat()
    if state == "Assigning":
        other = stage.member("m1")
        other.leave()
    assert stage.describe().state == state
    last.leave()
    assert GROUP in stage.machine.groups
    return stage


def test_every_step_of_the_table_happens() -> None:
    seen: set[Step] = set()
    for stage in (
        live_and_die(),
        come_again_to_an_empty_group(),
        go_all_at_once(),
        go_from_a_reconciling_group(),
        *(move_over_and_back(state) for state in ("Reconciling", "Stable", "Assigning")),
    ):
        seen |= set(steps_of(stage))
    assert seen == {(before, after) for before, those in TRANSITIONS.items() for after in those}
