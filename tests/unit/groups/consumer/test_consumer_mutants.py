"""Seeded bugs: the checks of `test_consumer_model` see each of them, in a story that has it; with DLOG_SOAK=1
the model finds such a story by itself."""

from collections.abc import Callable, Iterable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from distributedlog.groups.config import MigrationPolicy
from distributedlog.groups.consumer import leaving, moving, planning, records
from distributedlog.groups.consumer.group import ConsumerGroup, Draft
from distributedlog.groups.consumer.member import Member
from distributedlog.groups.consumer.planning import TopicLookup, hash_topics
from distributedlog.groups.consumer.reconciliation import IsFree, reconcile
from distributedlog.groups.consumer.topics import NO_PARTITIONS, TopicIdPartitions, Topics
from tests.unit.groups.consumer.test_consumer_model import SOAK, ConsumerModel

Patch = Callable[[pytest.MonkeyPatch], None]
Story = Callable[[ConsumerModel], None]
NAMED: tuple[tuple[str, ...], str | None] = (("t",), None)
SEARCH = settings(
    max_examples=1_000,
    stateful_step_count=40,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


def gives_what_others_hold(patch: pytest.MonkeyPatch) -> None:
    def greedy(
        member: Member, target: TopicIdPartitions, epoch: int, owned: TopicIdPartitions | None, _: IsFree
    ) -> Member:
        return reconcile(member, target, epoch, owned, lambda tp: True)

    patch.setattr(planning, "reconcile", greedy)


def believes_that_all_was_given_up(patch: pytest.MonkeyPatch) -> None:
    def gullible(
        member: Member, target: TopicIdPartitions, epoch: int, _: TopicIdPartitions | None, is_free: IsFree
    ) -> Member:
        return reconcile(member, target, epoch, NO_PARTITIONS, is_free)

    patch.setattr(planning, "reconcile", gullible)


def does_not_see_that_topics_grow(patch: pytest.MonkeyPatch) -> None:
    def blind(group: ConsumerGroup, topics: Topics) -> int:
        return 1 if hash_topics(group, topics) else 0

    patch.setattr(planning, "hash_topics", blind)


def moves_members_over_with_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(moving, "_holds", lambda group, *_: dict.fromkeys(group.members, NO_PARTITIONS))


def leaves_the_old_group_in_the_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(moving, "make_tombstones", lambda group: [])


def forgets_to_raise_the_epoch_when_members_leave(patch: pytest.MonkeyPatch) -> None:
    def hushed(draft: Draft, member_ids: Iterable[str], lookup: TopicLookup) -> None:
        for member_id in member_ids:
            draft.write(*records.make_member_tombstones(draft.group_id, member_id))

    patch.setattr(leaving, "remove", hushed)


def _split(model: ConsumerModel) -> None:
    """One has all, another comes, and the first is slow to give up."""
    model.come(None, NAMED)
    model.come(None, NAMED)
    model.beat(0, lost=False, gives_up=False)
    model.live(1)


def _move_over(model: ConsumerModel) -> None:
    model.come_classic(is_cooperative=True)
    model.come(None, NAMED)


def _move_back(model: ConsumerModel) -> None:
    model.come(None, NAMED)
    model.come_classic(is_cooperative=True)
    model.go(0, "leaves")


def _grow(model: ConsumerModel) -> None:
    model.come(None, NAMED)
    model.grow(5)


def _leave(model: ConsumerModel) -> None:
    model.come(None, NAMED)
    model.come(None, NAMED)
    for at in (0, 1, 0, 1):
        model.live(at)
    model.go(1, "leaves")


MUTANTS: list[tuple[Patch, Story, str]] = [
    (gives_what_others_hold, _split, "two owners"),
    (believes_that_all_was_given_up, _split, "two owners"),
    (moves_members_over_with_nothing, _move_over, "two owners"),
    (leaves_the_old_group_in_the_log, _move_back, "two groups"),
    (does_not_see_that_topics_grow, _grow, "not all is read"),
    (forgets_to_raise_the_epoch_when_members_leave, _leave, "not all is read"),
]
NAMES = [mutant.__name__ for mutant, _, _ in MUTANTS]


def run(story: Story) -> None:
    model = ConsumerModel()
    model.begin(commits=True, policy=MigrationPolicy.BIDIRECTIONAL)
    story(model)
    model.nobody_reads_what_another_reads()
    model.what_is_held_is_held_by_one()
    model.the_durable_state_is_the_replay_of_the_log()
    model.teardown()


@pytest.mark.parametrize(("mutant", "story", "told"), MUTANTS, ids=NAMES)
def test_a_seeded_bug_is_seen(
    mutant: Patch, story: Story, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(story)
    mutant(monkeypatch)
    with pytest.raises(AssertionError, match=told):
        run(story)


if SOAK:

    @pytest.mark.parametrize("mutant", [mutant for mutant, _, _ in MUTANTS], ids=NAMES)
    def test_a_seeded_bug_is_found(mutant: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
        mutant(monkeypatch)
        with pytest.raises((AssertionError, KeyError)):
            run_state_machine_as_test(ConsumerModel, settings=SEARCH)
