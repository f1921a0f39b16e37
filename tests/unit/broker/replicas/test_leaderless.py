"""What a broker tells of replicas that nobody leads."""

from distributedlog.broker.replicas.leaderless import LeaderlessReplicas
from distributedlog.controller.records import NO_LEADER
from distributedlog.controller.sessions.log_ends import ReplicaLogEnd
from tests.unit.broker.partition_stage import ME, OTHER, Stage, topic_id
from tests.unit.replication.support import produce_data
from tests.unit.storage.support import batch_of, value_of


def test_partitions_that_lose_their_leader_are_told_together_and_again_when_one_has_another() -> None:
    stage = Stage()
    told: list[tuple[ReplicaLogEnd, ...]] = []
    leaderless = LeaderlessReplicas(stage.partitions.signals, stage.scheduler)
    leaderless.on_change(told.append)
    for number in (1, 2, 3):
        stage.metadata.create(f"t{number}", number, replicas=(ME, OTHER))
    stage.apply()
    produce_data(stage["t1"], batch_of([value_of(1), value_of(2)]))
    stage.settle()
    assert told == []
    for number in (1, 2):
        stage.metadata.change(number, isr=[], leader=NO_LEADER)
    stage.apply()
    stage.settle()
    (both,) = told
    assert both == (ReplicaLogEnd(topic_id(1), 0, 1, 0, 2), ReplicaLogEnd(topic_id(2), 0, 1, -1, 0))
    stage.metadata.change(1, isr=[OTHER], leader=OTHER)
    stage.apply()
    stage.settle()
    assert told[1:] == [(ReplicaLogEnd(topic_id(2), 0, 1, -1, 0),)]


def test_who_asks_late_is_told_what_there_is() -> None:
    stage = Stage()
    leaderless = LeaderlessReplicas(stage.partitions.signals, stage.scheduler)
    stage.metadata.create("t", 1, replicas=(ME, OTHER))
    stage.metadata.change(1, isr=[], leader=NO_LEADER)
    stage.apply()
    told: list[tuple[ReplicaLogEnd, ...]] = []
    leaderless.on_change(told.append)
    stage.settle()
    assert [len(each) for each in told] == [1]
