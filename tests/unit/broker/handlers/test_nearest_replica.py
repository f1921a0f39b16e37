"""A consumer that says where it stands is sent to a replica there, and that replica serves it."""

from pathlib import Path

import pytest

from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from tests.unit.broker.handlers.admin_stage import versions_of
from tests.unit.broker.handlers.data_requests import fetch_request, only, values, wanted
from tests.unit.broker.handlers.data_stage import TOPIC_NUMBER, DataBroker, data_broker
from tests.unit.broker.partition_stage import ME, OTHER
from tests.unit.storage.support import batch_of, value_of

THIRD = 3
NOWHERE = -1
WITH_RACK = [each for each in versions_of(FetchRequest) if each >= 11]


def fetch(broker: DataBroker, offset: int, rack: str, version: int = 12, **options: int) -> PartitionData:
    request = fetch_request(wanted(offset), **options)  # type: ignore[arg-type]
    request.rack_id = rack
    return only(broker.ask(request, version, FetchResponse))


def size_of(data: PartitionData) -> int:
    assert data.records is not None
    return len(data.records)


def catch_up(broker: DataBroker, follower: int, offset: int, start: int = 0) -> None:
    read = broker.partition.read_for_replica(
        follower, offset, 1, broker.clock.monotonic_ms(), follower_log_start=start
    )
    if read.region is not None:
        read.region.close()


def replicate(broker: DataBroker) -> None:
    """Three records are committed on three brokers, of which this one leads; each has a rack of its own."""
    for broker_id in (ME, OTHER, THIRD):
        broker.register(broker_id, 9_000 + broker_id)
    broker.metadata.change(TOPIC_NUMBER, replicas=[ME, OTHER, THIRD], isr=[ME, OTHER, THIRD])
    broker.follow()
    assert broker.produce(batch_of([value_of(each) for each in range(3)])).error_code == 0
    broker.settle()
    for follower in (OTHER, THIRD):
        catch_up(broker, follower, 3)
    assert broker.partition.high_watermark == 3


@pytest.mark.parametrize("version", WITH_RACK)
def test_the_leader_names_the_follower_in_the_consumers_rack_and_does_not_wait(
    tmp_path: Path, version: int
) -> None:
    with data_broker(tmp_path) as broker:
        replicate(broker)
        for rack, follower in (("rack-2", OTHER), ("rack-3", THIRD)):
            data = fetch(broker, 0, rack, version, max_wait_ms=10_000, min_bytes=1)
            assert (data.preferred_read_replica, data.error_code) == (follower, ErrorCode.NONE)
            assert (size_of(data), data.high_watermark) == (0, 3)
        assert fetch(broker, 3, "rack-2", version, max_wait_ms=10_000).preferred_read_replica == OTHER


def test_without_a_rack_or_with_one_where_nobody_is_the_leader_serves(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        replicate(broker)
        for rack in ("", "rack-9", "RACK-2"):
            data = fetch(broker, 0, rack)
            assert (data.preferred_read_replica, len(values(data))) == (NOWHERE, 3)


def test_a_follower_that_lacks_the_offset_is_not_named(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        replicate(broker)
        assert broker.produce(batch_of([value_of(3)])).error_code == 0
        broker.settle()
        catch_up(broker, THIRD, 4)
        assert fetch(broker, 4, "rack-2").preferred_read_replica == NOWHERE
        assert fetch(broker, 4, "rack-3").preferred_read_replica == THIRD
        catch_up(broker, OTHER, 4, start=2)
        assert fetch(broker, 1, "rack-2").preferred_read_replica == NOWHERE
        assert fetch(broker, 2, "rack-2").preferred_read_replica == OTHER


def test_a_follower_that_is_not_in_sync_or_fenced_is_not_named(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        replicate(broker)
        broker.metadata.change(TOPIC_NUMBER, isr=[ME, THIRD])
        broker.register(THIRD, 9_003, fenced=True)
        broker.follow()
        for rack in ("rack-2", "rack-3"):
            assert fetch(broker, 0, rack).preferred_read_replica == NOWHERE


def test_an_incremental_session_names_it_again_as_long_as_the_partition_is_asked_for(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        replicate(broker)
        request = fetch_request(wanted(0), session=(0, 0))
        request.rack_id = "rack-2"
        first = broker.ask(request, 12, FetchResponse)
        assert only(first).preferred_read_replica == OTHER
        again = fetch_request(session=(first.session_id, 1), max_wait_ms=10_000)
        again.rack_id = "rack-2"
        assert only(broker.ask(again, 12, FetchResponse)).preferred_read_replica == OTHER


@pytest.mark.parametrize("isolation", [0, 1])
def test_a_follower_serves_up_to_its_own_high_watermark(tmp_path: Path, isolation: int) -> None:
    with data_broker(tmp_path) as broker:
        broker.fill(0, 1)
        broker.hand_over()
        partition = broker.partition
        batch = bytearray(batch_of([value_of(2)], base_offset=2))
        partition.append_as_follower(
            bytes(batch), leader_epoch=partition.leader_epoch, leader_high_watermark=2, now_ms=0
        )
        broker.settle()
        assert (partition.high_watermark, partition.log_end_offset) == (2, 3)
        data = fetch(broker, 0, f"rack-{ME}", isolation=isolation)
        assert values(data) == [value_of(0), value_of(1)]
        assert (data.high_watermark, data.preferred_read_replica) == (2, NOWHERE)
        behind = fetch(broker, 3, f"rack-{ME}", isolation=isolation)
        assert (behind.error_code, size_of(behind)) == (ErrorCode.NONE, 0)
        assert fetch(broker, 4, "rack-1").error_code == ErrorCode.OFFSET_OUT_OF_RANGE
