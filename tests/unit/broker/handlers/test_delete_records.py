import asyncio
from pathlib import Path

import pytest

from distributedlog.broker.net.error_responses import derive_error_response
from distributedlog.controller.image import ResourceType
from distributedlog.model.config import LogConfig
from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
)
from tests.simulation.disk import SimDisk
from tests.unit.broker.handlers.admin_stage import versions_of
from tests.unit.broker.handlers.data_requests import deletion_request
from tests.unit.broker.handlers.data_stage import TOPIC_NUMBER, DataBroker, data_broker
from tests.unit.broker.partition_stage import ME, OTHER
from tests.unit.storage.support import batch_of, value_of

SMALL = LogConfig(segment_bytes=1024, file_delete_delay_ms=0)


def delete(
    broker: DataBroker, request: DeleteRecordsRequest, version: int = 2
) -> DeleteRecordsPartitionResult:
    pending = broker.begin(request, version)
    settle(broker, pending)
    response = broker.finish(pending, version, DeleteRecordsResponse)
    ((answer,),) = (topic.partitions for topic in response.topics)
    return answer


def settle(broker: DataBroker, pending: object) -> None:
    """Turns of the loop, and what the disk was asked for, until there is an answer."""
    assert isinstance(pending, asyncio.Future)
    for _ in range(20):
        broker.runner.run(asyncio.sleep(0))
        broker.settle()


def test_every_version_moves_the_start_and_the_records_before_it_are_gone(tmp_path: Path) -> None:
    versions = versions_of(DeleteRecordsRequest)
    assert versions == range(3)
    with data_broker(tmp_path, log=SMALL) as broker:
        for _ in range(8):
            broker.produce(batch_of([bytes(400)]))  # two of which fit a segment
        broker.settle()
        for version in versions:
            answer = delete(broker, deletion_request(2 * version + 1), version)
            assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, 2 * version + 1)
        assert broker.partition.log_start_offset == 5
        assert len(list(broker.partition.log.segments)) == 2


def test_it_is_answered_when_a_crash_would_not_bring_the_records_back(tmp_path: Path) -> None:
    disk = SimDisk()
    with data_broker(tmp_path, disk=disk) as broker:
        broker.fill(*range(4))
        pending = broker.begin(deletion_request(3), 2)
        broker.runner.run(asyncio.sleep(0))
        assert isinstance(pending, asyncio.Future)
        assert not pending.done()
        settle(broker, pending)
        broker.finish(pending, 2, DeleteRecordsResponse)
        broker.stage.restart()
        broker.services.partitions = broker.stage.partitions
        broker.follow()
        assert broker.partition.log_start_offset == 3


def test_minus_one_stands_for_the_high_watermark(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.fill(0, 1)
        broker.metadata.change(TOPIC_NUMBER, replicas=[ME, OTHER], isr=[ME, OTHER])
        broker.follow()
        broker.produce(batch_of([value_of(2)]))
        follower_fetches(broker, log_start=2)
        answer = delete(broker, deletion_request(-1))
        assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, 2)


def follower_fetches(broker: DataBroker, *, log_start: int) -> None:
    """The other replica asks for more, with this log start."""
    now_ms = broker.clock.monotonic_ms()
    read = broker.partition.read_for_replica(OTHER, 2, 1000, now_ms, follower_log_start=log_start)
    if read.region is not None:
        read.region.close()


def test_it_is_answered_when_a_failover_would_not_bring_the_records_back(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.fill(0, 1)
        broker.metadata.change(TOPIC_NUMBER, replicas=[ME, OTHER], isr=[ME, OTHER])
        broker.follow()
        follower_fetches(broker, log_start=0)
        pending = broker.begin(deletion_request(2), 2)
        settle(broker, pending)
        assert not pending.done()  # type: ignore[union-attr]
        follower_fetches(broker, log_start=2)
        settle(broker, pending)
        response = broker.finish(pending, 2, DeleteRecordsResponse)
        assert response.topics[0].partitions[0].low_watermark == 2


def test_what_is_gone_already_changes_nothing(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.fill(0, 1, 2)
        assert delete(broker, deletion_request(2)).low_watermark == 2
        assert delete(broker, deletion_request(1)).low_watermark == 2


@pytest.mark.parametrize("offset", [4, 2**62, -2])
def test_what_is_not_committed_cannot_be_deleted(tmp_path: Path, offset: int) -> None:
    with data_broker(tmp_path) as broker:
        broker.fill(0, 1, 2)
        answer = delete(broker, deletion_request(offset))
        assert (answer.error_code, answer.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert broker.partition.log_start_offset == 0


def test_what_cannot_be_asked_is_an_error_of_the_partition(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.metadata.create("__consumer_offsets", 3)
        broker.metadata.create("compacted", 4)
        broker.metadata.configure(ResourceType.TOPIC, "compacted", "cleanup.policy", "compact")
        broker.follow()
        for request, code in (
            (deletion_request(0, topic="absent"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (deletion_request(0, partition=9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (deletion_request(0, topic="__consumer_offsets"), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (deletion_request(0, topic="compacted"), ErrorCode.POLICY_VIOLATION),
        ):
            answer = delete(broker, request)
            assert (answer.error_code, answer.low_watermark) == (code, -1)
        broker.hand_over()
        assert delete(broker, deletion_request(0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_topic_of_which_no_partition_is_named_is_left_out(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        request = deletion_request(0)
        request.topics[0].partitions = []
        pending = broker.begin(request, 2)
        settle(broker, pending)
        assert broker.finish(pending, 2, DeleteRecordsResponse).topics == []


def test_a_start_that_cannot_be_written_down_is_an_error(tmp_path: Path) -> None:
    disk = SimDisk()
    with data_broker(tmp_path, disk=disk) as broker:
        broker.fill(*range(4))
        disk.capacity_bytes = disk.used_bytes
        answer = delete(broker, deletion_request(3))
        assert (answer.error_code, answer.low_watermark) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        disk.capacity_bytes = None


@pytest.mark.parametrize("version", [0, 2])
def test_a_request_that_fails_as_a_whole_fails_for_each_partition(tmp_path: Path, version: int) -> None:
    with data_broker(tmp_path) as broker:
        response = derive_error_response(deletion_request(0), version, ErrorCode.REQUEST_TIMED_OUT, "")
        assert response is not None
        read = broker.finish(response, version, DeleteRecordsResponse)
        assert read.topics[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT


def test_what_was_acknowledged_can_be_deleted_at_once(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        for number in range(2):
            broker.produce(batch_of([value_of(number)]))
        assert broker.partition.high_watermark == 0
        answer = delete(broker, deletion_request(2))
        assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, 2)
