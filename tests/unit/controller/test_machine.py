import pytest

from distributedlog.controller.brokers import ELECTION_PARTS
from distributedlog.controller.features import LEVEL_MAX
from distributedlog.controller.image import MetadataImage
from distributedlog.controller.machine import ControllerMachine
from distributedlog.controller.producer_ids import BLOCK_COUNT
from distributedlog.controller.records import NO_LEADER
from distributedlog.controller.requests import (
    AllocateProducerIdsRequest,
    AlterPartitionsRequest,
    CreateTopicsRequest,
    IsrChange,
    IsrMember,
    NewTopic,
    ProducerIdBlock,
    ReadImageRequest,
)
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import ConsensusError
from distributedlog.model.ids import Uuid
from tests.simulation.clock import SeededRandomness
from tests.unit.controller.stage import CLUSTER, SESSION_MS, Stage, config


def test_the_first_controller_of_a_cluster_opens_its_log() -> None:
    stage = Stage()
    assert len(stage.log.entries) == 1
    assert (stage.image.cluster_id, stage.image.level) == (CLUSTER, LEVEL_MAX)
    assert (stage.image.controller_id, stage.image.epoch) == (1, 1)


def test_every_controller_says_that_it_is_in_charge() -> None:
    stage = Stage()
    stage.failover(config(controller_id=3))
    assert (stage.image.controller_id, stage.image.epoch) == (3, 2)


def test_the_log_of_another_cluster_is_not_carried_on() -> None:
    stage = Stage()
    with pytest.raises(ConsensusError, match="cluster"):
        stage.failover(config(cluster_id="another"))


def test_a_new_controller_arrives_at_the_same_image_by_the_log_alone() -> None:
    stage = Stage()
    stage.start(1, 2, 3)
    stage.create("t", (1, 2, 3), (2, 3, 1), min_insync_replicas="2")
    stage.silence(1)
    before = stage.image
    stage.failover()
    assert stage.image.topics == before.topics
    assert stage.image.brokers == before.brokers
    assert stage.image.configs == before.configs


def test_a_restored_machine_is_the_one_that_was_saved() -> None:
    stage = Stage()
    stage.start(1)
    stage.create("t", (1,))
    machine = ControllerMachine(stage.config, SeededRandomness(1))
    machine.restore(stage.machine.snapshot(), stage.image.offset + 5)
    assert machine.image == stage.image
    with pytest.raises(ConsensusError, match="given for"):
        machine.restore(stage.machine.snapshot(), stage.image.offset - 1)


def test_a_broker_that_fell_silent_under_the_old_controller_is_fenced_by_the_new() -> None:
    stage = Stage()
    stage.start(1, 2)
    stage.create("t", (1, 2))
    stage.failover()
    stage.pass_time(SESSION_MS - SESSION_MS // ELECTION_PARTS - 1)
    stage.heartbeat(2)
    assert stage.partition("t").leader == 1
    stage.pass_time(1)
    assert stage.partition("t").leader == 2


def test_a_read_sees_what_is_committed_and_waits_for_the_rest() -> None:
    stage = Stage()
    stage.start(1)
    topic = NewTopic(name="t", num_partitions=1, replication_factor=1)
    stage.runtime.submit(CreateTopicsRequest((topic,)), stage.now_ms, 99_999)
    read = stage.runtime.submit(ReadImageRequest(), stage.now_ms, 99_999)
    assert stage.runtime.take().replies == []
    stage.commit()
    answers = {answer.ticket: answer for answer in stage.runtime.take().replies}
    image = answers[read].response
    assert isinstance(image, MetadataImage)
    assert "t" in image.topic_ids


def test_that_a_topic_exists_is_not_said_before_it_does() -> None:
    stage = Stage()
    stage.start(1)
    request = CreateTopicsRequest((NewTopic(name="t", num_partitions=1, replication_factor=1),))
    for _ in range(2):
        stage.runtime.submit(request, stage.now_ms, 99_999)
    assert stage.runtime.take().replies == []


def test_producer_ids_are_given_out_once_and_across_controllers() -> None:
    stage = Stage()
    stage.start(1)
    request = AllocateProducerIdsRequest(1, stage.epochs[1])
    assert stage.ask(request, ProducerIdBlock) == ProducerIdBlock(0, BLOCK_COUNT)
    stage.failover()
    assert stage.ask(request, ProducerIdBlock) == ProducerIdBlock(BLOCK_COUNT, BLOCK_COUNT)
    stale = AllocateProducerIdsRequest(1, stage.epochs[1] + 1)
    assert stage.refusal(stale) is ErrorCode.STALE_BROKER_EPOCH


def test_a_timer_always_moves_on() -> None:
    stage = Stage(config(leader_balance_interval_ms=50))
    stage.start(1, 2, 3)
    stage.create("t", (1, 2, 3))
    stage.pass_time(10 * SESSION_MS)
    assert all(broker.fenced for broker in stage.image.brokers.values())
    assert stage.partition("t").leader == NO_LEADER
    deadline_ms = stage.runtime.next_deadline_ms()
    assert deadline_ms is not None
    assert deadline_ms > stage.now_ms


def test_many_leaders_are_balanced_in_parts() -> None:
    stage = Stage(config(leader_balance_interval_ms=20_000, elections_per_balance_max=2))
    stage.start(1, 2)
    stage.create("t", *[(1, 2)] * 5)
    stage.silence(1)
    stage.heartbeat(1)
    assert {stage.partition("t", number).leader for number in range(5)} == {2}
    _let_back_in(stage, stage.image.topic_ids["t"], 5)
    led_by_one: list[int] = []
    while len(led_by_one) < 4:
        stage.heartbeat(1)
        stage.heartbeat(2)
        stage.pass_time(500)
        count = sum(stage.partition("t", number).leader == 1 for number in range(5))
        if count not in led_by_one:
            led_by_one.append(count)
    assert led_by_one == [0, 2, 4, 5]


def _let_back_in(stage: Stage, topic_id: Uuid, partitions: int) -> None:
    changes = tuple(
        IsrChange(
            topic_id=topic_id,
            partition_id=number,
            leader_epoch=stage.partition("t", number).leader_epoch,
            partition_epoch=stage.partition("t", number).partition_epoch,
            isr=(IsrMember(1, stage.epochs[1]), IsrMember(2, stage.epochs[2])),
        )
        for number in range(partitions)
    )
    stage.ask(AlterPartitionsRequest(2, stage.epochs[2], changes), object)
