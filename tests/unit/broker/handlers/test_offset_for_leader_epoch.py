from pathlib import Path

import pytest

from distributedlog.broker.net.error_responses import derive_error_response
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import StorageError
from distributedlog.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from tests.unit.broker.handlers.admin_stage import versions_of
from tests.unit.broker.handlers.data_requests import epoch_request
from tests.unit.broker.handlers.data_stage import DataBroker, data_broker
from tests.unit.broker.partition_stage import ME


def look_up(broker: DataBroker, request: OffsetForLeaderEpochRequest, version: int = 4) -> EpochEndOffset:
    response = broker.ask(request, version, OffsetForLeaderEpochResponse)
    ((answer,),) = (topic.partitions for topic in response.topics)
    return answer


def end_of(broker: DataBroker, epoch: int, version: int = 4) -> tuple[int, int]:
    answer = look_up(broker, epoch_request(epoch), version)
    assert answer.error_code == ErrorCode.NONE
    return answer.leader_epoch, answer.end_offset


def test_an_epoch_ends_where_the_next_begins(tmp_path: Path) -> None:
    versions = versions_of(OffsetForLeaderEpochRequest)
    assert versions == range(2, 5)
    with data_broker(tmp_path) as broker:
        broker.fill(0, 1)
        for _ in range(2):
            broker.hand_over()
            broker.hand_over(ME)
        last = broker.partition.leader_epoch
        broker.fill(2)
        for version in versions:
            assert end_of(broker, 0, version) == (0, 2)
            assert end_of(broker, 1, version) == (0, 2), "nothing was written in it"
            assert end_of(broker, last, version) == (last, 3)
            assert end_of(broker, last + 1, version) == (-1, -1)
            assert end_of(broker, -1, version) == (-1, -1)


def test_what_cannot_be_asked_is_an_error_of_the_partition(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        for request, code in (
            (epoch_request(0, topic="absent"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (epoch_request(0, partition=9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (epoch_request(0, current_leader_epoch=1), ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            answer = look_up(broker, request)
            assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (code, -1, -1)
        broker.hand_over()
        assert look_up(broker, epoch_request(0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        broker.hand_over(ME)
        stale = look_up(broker, epoch_request(0, current_leader_epoch=0))
        assert stale.error_code == ErrorCode.FENCED_LEADER_EPOCH
        broker.partition.fail(StorageError("the disk is gone"))
        assert look_up(broker, epoch_request(0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("version", [2, 4])
def test_a_request_that_fails_as_a_whole_fails_for_each_partition(tmp_path: Path, version: int) -> None:
    with data_broker(tmp_path) as broker:
        response = derive_error_response(epoch_request(0), version, ErrorCode.REQUEST_TIMED_OUT, "")
        assert response is not None
        read = broker.finish(response, version, OffsetForLeaderEpochResponse)
        assert read.topics[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT
