"""What a scrape shows of groups, and that it is bounded."""

from distributedlog.broker.coordination.group_metrics import GroupMetrics
from distributedlog.broker.observability.metrics import OTHER
from distributedlog.groups.requests import CommitReply, JoinReply
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import NotCoordinatorError
from distributedlog.ports.executor import Outcome
from tests.unit.broker.group_stage import GroupStage
from tests.unit.groups.stage import GROUP, Stage

Shown = dict[tuple[str, ...], float]


def shown(metrics: GroupMetrics) -> dict[str, Shown]:
    found: dict[str, Shown] = {}
    for family in metrics.families():
        samples: Shown = {}
        for sample in family.samples:
            assert isinstance(sample.value, int | float)
            samples[tuple(sample.labels.values())] = sample.value
        found[family.name] = samples
    return found


def metrics_of(stage: Stage, groups_max: int = 1_000) -> GroupMetrics:
    return GroupMetrics(lambda: [stage.machine], lambda: 0, groups_max=groups_max)


def test_members_states_and_rebalances_are_those_of_the_groups() -> None:
    stage = Stage()
    leader, _ = stage.stable(None, None)
    stage.commit(3, group="alone")
    metrics = metrics_of(stage)
    now = shown(metrics)
    assert now["dlog_groups"] == {("classic", "Stable"): 1, ("classic", "Empty"): 1}
    assert now["dlog_group_members"] == {(GROUP,): 2, ("alone",): 0}
    assert now["dlog_group_rebalances"] == {(GROUP,): 2, ("alone",): 0}
    stage.join(leader)
    assert shown(metrics)["dlog_groups"] == {("classic", "PreparingRebalance"): 1, ("classic", "Empty"): 1}
    stage.failover()
    assert shown(metrics_of(stage))["dlog_group_rebalances"][(GROUP,)] == 2, "it goes on where it was"


def test_only_what_was_acknowledged_counts_as_committed() -> None:
    stage = Stage()
    stage.commit(3)
    metrics = metrics_of(stage)
    told: list[object] = []
    done = metrics.count_commits(GROUP, lambda outcome: told.append(outcome.error))
    done(Outcome(CommitReply((ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE))))
    done(Outcome(error=NotCoordinatorError("elsewhere")))
    assert len(told) == 2
    assert shown(metrics)["dlog_group_commits"] == {(GROUP,): 2}


def test_more_groups_than_have_room_are_shown_together_and_those_that_went_make_room() -> None:
    stage = Stage()
    for number in range(5):
        stage.commit(number, group=f"g{number}")
    metrics = metrics_of(stage, groups_max=2)
    for number in range(5):
        metrics.count_commits(f"g{number}", lambda _: None)(Outcome(CommitReply((ErrorCode.NONE,))))
    now = shown(metrics)
    assert now["dlog_group_commits"] == {("g0",): 1, ("g1",): 1, (OTHER,): 3}
    assert now["dlog_group_members"].keys() == {("g0",), ("g1",), (OTHER,)}
    assert now["dlog_groups"] == {("classic", "Empty"): 5}
    gone = GroupMetrics(list, lambda: 0, groups_max=2)
    gone._commits = dict(metrics._commits)
    assert shown(gone)["dlog_group_commits"] == {(OTHER,): 3}


def test_a_brokers_coordinators_count_by_themselves() -> None:
    stage = GroupStage()
    assert shown(stage.groups.metrics)["dlog_coordinators_loading"] in ({(): 0}, {(): 1})
    stage.settle()
    told = stage.commit(7, "alone")
    assert shown(stage.groups.metrics)["dlog_group_commits"] == {}, "it is not acknowledged yet"
    stage.settle()
    assert told.code is ErrorCode.NONE
    reply = stage.join().reply
    assert isinstance(reply, JoinReply)
    now = shown(stage.groups.metrics)
    assert now["dlog_group_commits"] == {("alone",): 1}
    assert now["dlog_groups"] == {("classic", "CompletingRebalance"): 1, ("classic", "Empty"): 1}
    assert now["dlog_coordinators_loading"] == {(): 0}
