import asyncio
from pathlib import Path

import pytest

from distributedlog.broker.net.error_responses import derive_error_response
from distributedlog.model.config import LogConfig
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import ClusterAuthorizationError, StorageError
from distributedlog.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from distributedlog.storage.append import Origin
from tests.unit.broker.handlers.admin_stage import versions_of
from tests.unit.broker.handlers.data_requests import offsets_request
from tests.unit.broker.handlers.data_stage import TOPIC_NUMBER, DataBroker, data_broker
from tests.unit.broker.partition_stage import ME, OTHER
from tests.unit.replication.support import produce_data
from tests.unit.storage.support import NOW_MS, batch_of, marker_of, value_of

LATEST, EARLIEST, NEWEST, EARLIEST_LOCAL, LATEST_TIERED, PENDING = -1, -2, -3, -4, -5, -6
TOOL = -2


def look_up(
    broker: DataBroker, request: ListOffsetsRequest, version: int = 10
) -> ListOffsetsPartitionResponse:
    ((answer,),) = (topic.partitions for topic in broker.ask(request, version, ListOffsetsResponse).topics)
    return answer


def offset_of(broker: DataBroker, request: ListOffsetsRequest, version: int = 10) -> int:
    answer = look_up(broker, request, version)
    assert answer.error_code == ErrorCode.NONE
    return answer.offset


def fill(broker: DataBroker) -> None:
    """Offsets 0 to 4, the third of which is the newest."""
    for number, late_ms in enumerate((0, 10, 40, 20, 30)):
        produce_data(broker.partition, batch_of([value_of(number)], timestamp_ms=NOW_MS + late_ms))
    broker.settle()


def test_every_version_tells_the_ends(tmp_path: Path) -> None:
    versions = versions_of(ListOffsetsRequest)
    assert versions == range(1, 12)
    with data_broker(tmp_path) as broker:
        fill(broker)
        broker.partition.log.advance_start_offset(2, NOW_MS)
        for version in versions:
            latest = look_up(broker, offsets_request(LATEST), version)
            assert (latest.offset, latest.timestamp, latest.error_code) == (5, -1, ErrorCode.NONE)
            assert latest.leader_epoch == (0 if version >= 4 else -1)
            assert offset_of(broker, offsets_request(EARLIEST), version) == 2


def test_a_time_stands_for_the_first_record_at_or_after_it(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        fill(broker)
        told = [
            (answer.offset, answer.timestamp)
            for late_ms in (-5, 0, 1, 10, 11, 40)
            for answer in [look_up(broker, offsets_request(NOW_MS + late_ms))]
        ]
        assert told == [
            (0, NOW_MS),
            (0, NOW_MS),
            (1, NOW_MS + 10),
            (1, NOW_MS + 10),
            (2, NOW_MS + 40),
            (2, NOW_MS + 40),
        ]


def test_a_time_after_every_record_stands_for_none(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        fill(broker)
        answer = look_up(broker, offsets_request(NOW_MS + 41))
        assert (answer.error_code, answer.offset, answer.timestamp) == (ErrorCode.NONE, -1, -1)


def test_special_times_are_known_from_their_versions_on(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        fill(broker)
        for timestamp, since, offset in (
            (NEWEST, 7, 2),
            (EARLIEST_LOCAL, 8, 0),
            (LATEST_TIERED, 9, -1),
            (PENDING, 11, -1),
        ):
            unknown = look_up(broker, offsets_request(timestamp), since - 1)
            assert unknown.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert offset_of(broker, offsets_request(timestamp), since) == offset
        for timestamp in (-7, -(2**63)):
            answer = look_up(broker, offsets_request(timestamp), 11)
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_an_empty_log_has_ends_and_no_times(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        offsets = [offset_of(broker, offsets_request(each)) for each in (LATEST, EARLIEST, NEWEST, 5)]
        assert offsets == [0, 0, -1, -1]


def test_a_consumer_is_told_what_it_may_read_and_a_tool_all_there_is(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.fill(0)
        produce_data(
            broker.partition,
            batch_of([b"v"], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True),
        )
        broker.settle()
        broker.metadata.change(TOPIC_NUMBER, replicas=[ME, OTHER], isr=[ME, OTHER])
        broker.follow()
        produce_data(broker.partition, batch_of([value_of(2)]))
        told = [
            offset_of(broker, offsets_request(LATEST, isolation=1)),
            offset_of(broker, offsets_request(LATEST, isolation=0)),
            offset_of(broker, offsets_request(LATEST, replica_id=TOOL)),
        ]
        assert told == [1, 2, 3]
        broker.metadata.change(TOPIC_NUMBER, replicas=[ME], isr=[ME])
        broker.follow()
        produce_data(broker.partition, marker_of(7, commit=True), Origin.COORDINATOR)
        broker.settle()
        assert offset_of(broker, offsets_request(LATEST, isolation=1)) == 4


@pytest.mark.parametrize("version", versions_of(ListOffsetsRequest))
@pytest.mark.parametrize("replica_id", [0, ME, OTHER])
def test_nobody_is_believed_to_be_a_replica(tmp_path: Path, version: int, replica_id: int) -> None:
    with data_broker(tmp_path) as broker:
        produce_data(broker.partition, batch_of([value_of(0)]))
        request = offsets_request(LATEST, replica_id=replica_id)
        with pytest.raises(ClusterAuthorizationError):
            broker.begin(request, version)
        assert broker.partition.high_watermark == 0


@pytest.mark.parametrize("timestamp", [LATEST, NEWEST, NOW_MS])
def test_who_asks_for_an_end_hears_of_all_that_was_acknowledged(tmp_path: Path, timestamp: int) -> None:
    with data_broker(tmp_path) as broker:
        for number in range(2):  # a sync runs for the first; the second rests behind it
            produce_data(broker.partition, batch_of([value_of(number)], timestamp_ms=NOW_MS + number))
        assert broker.partition.high_watermark == 0
        pending = broker.begin(offsets_request(timestamp), 10)
        assert offset_of(broker, offsets_request(EARLIEST)) == 0
        assert isinstance(pending, asyncio.Future)
        broker.runner.run(asyncio.sleep(0))
        assert not pending.done()
        broker.stage.settle()
        for _ in range(3):
            broker.runner.run(asyncio.sleep(0))
        ((told,),) = (topic.partitions for topic in broker.finish(pending, 10, ListOffsetsResponse).topics)
        assert (told.error_code, told.offset) == (0, {LATEST: 2, NEWEST: 1, NOW_MS: 0}[timestamp])


def test_where_others_are_in_sync_an_end_is_told_at_once(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.metadata.change(TOPIC_NUMBER, replicas=[ME, OTHER], isr=[ME, OTHER])
        broker.follow()
        produce_data(broker.partition, batch_of([value_of(0)]))
        assert offset_of(broker, offsets_request(LATEST)) == 0


def test_a_new_leader_does_not_guess_what_is_committed(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.metadata.change(TOPIC_NUMBER, replicas=[ME, OTHER], isr=[ME, OTHER])
        broker.follow()
        produce_data(broker.partition, batch_of([value_of(0)]))
        broker.hand_over()
        broker.hand_over(ME)
        assert look_up(broker, offsets_request(LATEST), 5).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        assert look_up(broker, offsets_request(LATEST), 4).error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert offset_of(broker, offsets_request(EARLIEST)) == 0


def test_what_cannot_be_asked_is_an_error_of_the_partition(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        fill(broker)
        for request, code in (
            (offsets_request(LATEST, topic="absent"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (offsets_request(LATEST, partition=9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (offsets_request(LATEST, current_leader_epoch=1), ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            answer = look_up(broker, request)
            assert (answer.error_code, answer.offset, answer.timestamp) == (code, -1, -1)
        twice = broker.ask(offsets_request(LATEST, EARLIEST), 10, ListOffsetsResponse)
        assert [each.error_code for each in twice.topics[0].partitions] == [ErrorCode.INVALID_REQUEST]
        nothing = broker.ask(offsets_request(), 10, ListOffsetsResponse)
        assert nothing.topics == []
        broker.hand_over()
        assert look_up(broker, offsets_request(LATEST)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        broker.hand_over(ME)
        stale = look_up(broker, offsets_request(LATEST, current_leader_epoch=0))
        assert stale.error_code == ErrorCode.FENCED_LEADER_EPOCH
        broker.partition.fail(StorageError("the disk is gone"))
        assert look_up(broker, offsets_request(LATEST)).error_code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("version", [1, 10])
def test_a_request_that_fails_as_a_whole_fails_for_each_partition(tmp_path: Path, version: int) -> None:
    with data_broker(tmp_path, log=LogConfig()) as broker:
        response = derive_error_response(offsets_request(LATEST), version, ErrorCode.REQUEST_TIMED_OUT, "")
        assert response is not None
        read = broker.finish(response, version, ListOffsetsResponse)
        assert read.topics[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT
