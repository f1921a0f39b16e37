import asyncio
from pathlib import Path

import pytest

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.internal_topics import OFFSETS_TOPIC
from distributedlog.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    get_unreadable_records,
    is_corrupt,
)
from tests.simulation.disk import SimDisk
from tests.unit.broker.handlers.admin_stage import registration_of, versions_of
from tests.unit.broker.handlers.data_stage import TOPIC, DataBroker, data_broker

EVERY = versions_of(DescribeLogDirsRequest)


def test_the_versions_are_those_of_kafka() -> None:
    assert list(EVERY) == [1, 2, 3, 4]


def ask(
    broker: DataBroker, topics: dict[str, list[int]] | None = None, version: int = EVERY[-1]
) -> DescribeLogDirsResult:
    wanted = None
    if topics is not None:
        wanted = [DescribableLogDirTopic(topic=name, partitions=each) for name, each in topics.items()]
    pending = broker.begin(DescribeLogDirsRequest(topics=wanted), version)
    while not getattr(pending, "done", lambda: True)():
        broker.runner.run(asyncio.sleep(0))
    response = broker.finish(pending, version, DescribeLogDirsResponse)
    assert response.error_code == ErrorCode.NONE
    (result,) = response.results
    return result


def sizes(result: DescribeLogDirsResult) -> dict[tuple[str, int], int]:
    return {
        (topic.name, each.partition_index): each.partition_size
        for topic in result.topics
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", EVERY)
def test_every_version_tells_the_size_of_each_replica(tmp_path: Path, version: int) -> None:
    with data_broker(tmp_path) as broker:
        broker.fill(1, 2, 3)
        result = ask(broker, version=version)
        assert result.log_dir == str(tmp_path / "data")
        assert sizes(result) == {(TOPIC, 0): broker.partition.log.size_bytes}
        assert broker.partition.log.size_bytes > 0
        lags = [each.offset_lag for topic in result.topics for each in topic.partitions]
        assert lags == [0]
        if version >= 4:
            assert 0 < result.usable_bytes <= result.total_bytes
        else:
            assert (result.total_bytes, result.usable_bytes) == (-1, -1)
        assert not result.is_cordoned


def test_what_is_asked_for_is_told_once_and_what_is_not_here_is_left_out(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.metadata.create("u", 2)
        broker.follow()
        assert set(sizes(ask(broker))) == {(TOPIC, 0), ("u", 0)}
        assert set(sizes(ask(broker, {"u": [0, 0, 7], "nowhere": [0]}))) == {("u", 0)}
        assert sizes(ask(broker, {})) == {}


def test_the_lag_is_what_is_missing_of_what_is_committed(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.fill(1, 2, 3)
        broker.partition.log.high_watermark = 5
        ((partition,),) = (topic.partitions for topic in ask(broker).topics)
        assert partition.offset_lag == 2
        broker.partition.log.high_watermark = 3


def test_a_directory_that_failed_is_told_as_such() -> None:
    disk = SimDisk()
    disk.make_directory("/root")
    broker = DataBroker(Path("/root"), disk=disk)
    try:
        broker.fill(1)
        broker.stage.partitions.store.files.fail("it burns", OSError("smoke"))
        result = ask(broker)
        assert (result.error_code, result.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
    finally:
        broker.runner.close()


@pytest.mark.parametrize("version", EVERY)
def test_a_refusal_of_the_whole_is_told_in_the_form_of_each_version(version: int) -> None:
    from distributedlog.broker.net.context import ANONYMOUS, RequestContext

    registration = registration_of(DescribeLogDirsRequest)
    context = RequestContext(ANONYMOUS, "CLIENT", "c", "h", 1, version, 0, 1)
    request = DescribeLogDirsRequest(topics=None)
    refused = registration.make_error_response(request, context, ErrorCode.UNKNOWN_SERVER_ERROR, "")
    assert isinstance(refused, DescribeLogDirsResponse)
    codes = [each.error_code for each in refused.results]
    assert codes == ([ErrorCode.UNKNOWN_SERVER_ERROR] if version < 3 else [])
    assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("version", EVERY)
def test_records_that_a_coordinator_cannot_read_are_told_from_version_2_on(
    tmp_path: Path, version: int
) -> None:
    with data_broker(tmp_path) as broker:
        broker.metadata.create(OFFSETS_TOPIC, 9, partitions=2)
        broker.follow()
        broker.services.groups.unreadable = {0: 5}  # type: ignore[attr-defined]
        result = ask(broker, {OFFSETS_TOPIC: [0, 1], TOPIC: [0]}, version)
        told = {
            (topic.name, each.partition_index): get_unreadable_records(each)
            for topic in result.topics
            for each in topic.partitions
        }
        assert told == {(OFFSETS_TOPIC, 0): 5 if version >= 2 else 0, (OFFSETS_TOPIC, 1): 0, (TOPIC, 0): 0}


@pytest.mark.parametrize("version", EVERY)
def test_a_corrupt_replica_is_told_from_version_2_on(tmp_path: Path, version: int) -> None:
    with data_broker(tmp_path) as broker:
        broker.metadata.create("sound", 9)
        broker.follow()
        broker.partition.note_corruption(0, "a flipped bit")
        result = ask(broker, {TOPIC: [0], "sound": [0]}, version)
        told = {topic.name: is_corrupt(each) for topic in result.topics for each in topic.partitions}
        assert told == {TOPIC: version >= 2, "sound": False}
