from pathlib import Path
from typing import Any

import pytest

from distributedlog.broker.handlers import _fetch_reading
from distributedlog.broker.net.pending import PendingResponse
from distributedlog.broker.peers.authentication import BrokerIdentity
from distributedlog.broker.replicas.fetch_sessions import FetchSpec
from distributedlog.broker.replicas.healing import CORRUPT_TAG
from distributedlog.controller.image import ResourceType
from distributedlog.model.config import KIB, LogConfig
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import ClusterAuthorizationError, StorageError
from distributedlog.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from distributedlog.protocol.messages.produce import ProduceResponse
from distributedlog.replication.contract import ACKS_ALL, PartitionRead
from distributedlog.replication.partition import Partition
from distributedlog.storage.append import Origin
from distributedlog.storage.segment import TAIL_BATCHES
from tests.unit.broker.handlers.admin_stage import registration_of, versions_of
from tests.unit.broker.handlers.data_requests import MUCH, fetch_request, only, values, wanted
from tests.unit.broker.handlers.data_stage import (
    TOPIC,
    TOPIC_NUMBER,
    DataBroker,
    data_broker,
    produce_request,
)
from tests.unit.broker.partition_stage import ME, OTHER, topic_id
from tests.unit.replication.support import produce_data
from tests.unit.storage.support import NOW_MS, batch_of, marker_of, value_of

BATCH_BYTES = len(batch_of([value_of(1)]))
OPENING = 0
"""The epoch of a fetch that wants a session."""


def fetch(broker: DataBroker, request: FetchRequest, version: int = 12) -> FetchResponse:
    return broker.ask(request, version, FetchResponse)


def batch_count(data: PartitionData) -> int:
    assert data.records is not None
    return len(data.records) // BATCH_BYTES


# --- reading -----------------------------------------------------------------------------------


def test_every_version_reads_what_was_written(tmp_path: Path) -> None:
    versions = versions_of(FetchRequest)
    assert versions == range(4, 19)
    with data_broker(tmp_path) as broker:
        broker.fill(0, 1, 2)
        for version in versions:
            response = fetch(broker, fetch_request(wanted(1)), version)
            data = only(response)
            assert values(data) == [value_of(1), value_of(2)]
            assert (data.partition_index, data.error_code) == (0, ErrorCode.NONE)
            assert (data.high_watermark, data.last_stable_offset) == (3, 3)
            assert data.log_start_offset == (0 if version >= 5 else -1)
            assert (data.aborted_transactions, data.preferred_read_replica) == (None, -1)
            assert (data.diverging_epoch, data.current_leader, response.session_id) == (None, None, 0)
            (topic,) = response.responses
            if version >= 13:
                assert topic.topic_id == topic_id(TOPIC_NUMBER)
            else:
                assert topic.topic == TOPIC


def test_records_are_sent_from_their_file(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.fill(0, 1)
        answer = broker.begin(fetch_request(wanted(0)), 12)
        assert isinstance(answer, FetchResponse)
        assert broker.regions_held == 1
        broker.finish(answer, 12, FetchResponse)
        assert broker.regions_held == 0


def test_a_read_from_the_middle_of_a_batch_returns_all_of_it(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.produce(batch_of([value_of(0), value_of(1), value_of(2)]))
        broker.settle()
        assert values(only(fetch(broker, fetch_request(wanted(2))))) == [value_of(n) for n in range(3)]


def test_what_is_not_committed_is_not_read(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.fill(0)
        broker.produce(batch_of([value_of(1)]))
        data = only(fetch(broker, fetch_request(wanted(0))))
        assert (values(data), data.high_watermark) == ([value_of(0)], 1)
        assert values(only(fetch(broker, fetch_request(wanted(1))))) == []
        broker.settle()
        assert values(only(fetch(broker, fetch_request(wanted(1))))) == [value_of(1)]


def test_reading_committed_ends_at_an_open_transaction_and_names_aborted_ones(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.fill(0)
        open_batch = batch_of(
            [value_of(1)], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        produce_data(broker.partition, open_batch)
        broker.fill(2)
        data = only(fetch(broker, fetch_request(wanted(0), isolation=1)))
        assert (values(data), data.aborted_transactions) == ([value_of(0)], [])
        assert (data.last_stable_offset, data.high_watermark) == (1, 3)
        assert len(values(only(fetch(broker, fetch_request(wanted(0)))))) == 3
        produce_data(broker.partition, marker_of(7, commit=False), Origin.COORDINATOR)
        broker.settle()
        data = only(fetch(broker, fetch_request(wanted(0), isolation=1)))
        assert len(values(data)) == 3
        assert data.aborted_transactions is not None
        assert [(each.producer_id, each.first_offset) for each in data.aborted_transactions] == [(7, 1)]
        assert only(fetch(broker, fetch_request(wanted(0)))).aborted_transactions is None


@pytest.mark.parametrize("offset", [-1, 3, 2**62])
def test_an_offset_outside_the_log_is_an_error_and_nothing_else(tmp_path: Path, offset: int) -> None:
    with data_broker(tmp_path) as broker:
        broker.fill(0, 1)
        data = only(fetch(broker, fetch_request(wanted(offset), max_wait_ms=60_000)))
        assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (data.high_watermark, data.last_stable_offset, data.log_start_offset) == (-1, -1, -1)
        assert data.records is not None
        assert len(data.records) == 0


# --- limits ------------------------------------------------------------------------------------


def test_a_partition_gives_as_much_as_it_is_asked_for(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.fill(*range(10))
        data = only(fetch(broker, fetch_request(wanted(0, max_bytes=3 * BATCH_BYTES))))
        assert batch_count(data) == 3


@pytest.mark.parametrize("max_bytes", [0, 1, -5, BATCH_BYTES - 1])
def test_a_first_batch_that_is_too_large_is_returned_whole(tmp_path: Path, max_bytes: int) -> None:
    with data_broker(tmp_path) as broker:
        broker.fill(0, 1)
        assert batch_count(only(fetch(broker, fetch_request(wanted(0, max_bytes=max_bytes))))) == 1
        assert batch_count(only(fetch(broker, fetch_request(wanted(0), max_bytes=max_bytes)))) == 1


def test_only_the_first_partition_with_something_may_exceed_the_limits(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        make_partitions(broker, 4, empty=(0,))
        small = [wanted(0, partition=each, max_bytes=10) for each in range(4)]
        response = fetch(broker, fetch_request(*small, topic="many", number=2))
        assert [batch_count(data) for data in response.responses[0].partitions] == [0, 1, 0, 0]
        some = [wanted(0, partition=each) for each in range(4)]
        response = fetch(broker, fetch_request(*some, topic="many", number=2, max_bytes=2 * BATCH_BYTES + 10))
        sizes = [len(data.records or b"") for data in response.responses[0].partitions]
        assert sizes == [0, BATCH_BYTES, BATCH_BYTES, 0], "a batch that would be cut is not begun"
        assert {data.high_watermark for data in response.responses[0].partitions[1:]} == {1}


def make_partitions(broker: DataBroker, count: int, *, empty: tuple[int, ...] = ()) -> None:
    """The topic `many`, with one batch in each partition but the empty ones."""
    broker.metadata.create("many", 2, count)
    broker.follow()
    for each in range(count):
        if each not in empty:
            broker.stage.partitions.require("many", each).append(
                batch_of([value_of(each)]), 1, broker.clock.wall_ms()
            )
    broker.settle()


def test_the_broker_s_own_limit_counts_too(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        for _ in range(3):
            broker.produce(batch_of([bytes(900)]))
        broker.settle()
        limited = type(broker.services.settings)(node_id=ME, data_dir=broker.stage.root, fetch_bytes_max=KIB)
        broker.services.settings = limited
        data = only(fetch(broker, fetch_request(wanted(0), min_bytes=5 * KIB, max_wait_ms=0)))
        assert data.records is not None
        assert len(data.records) == KIB


def test_an_answer_holds_few_files_open_however_many_partitions_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_fetch_reading, "REGIONS_MAX", 3)
    with data_broker(tmp_path) as broker:
        make_partitions(broker, 8)
        all_of_them = [wanted(0, partition=each) for each in range(8)]
        answer = broker.begin(fetch_request(*all_of_them, topic="many", number=2), 12)
        assert broker.regions_held == 3
        response = broker.finish(answer, 12, FetchResponse)
        assert [values(data) for data in response.responses[0].partitions] == [
            [value_of(each)] for each in range(8)
        ]


def test_a_large_region_beyond_those_that_may_be_held_is_left_for_the_next_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_fetch_reading, "REGIONS_MAX", 1)
    with data_broker(tmp_path) as broker:
        make_partitions(broker, 1)
        for _ in range(3):
            broker.produce(batch_of([bytes(30 * KIB)]))
        broker.settle()
        request = fetch_request(wanted(0), topic="many", number=2)
        request.topics.append(FetchTopic(topic=TOPIC, partitions=[wanted(0)]))
        response = fetch(broker, request)
        assert [len(topic.partitions[0].records or b"") for topic in response.responses] == [BATCH_BYTES, 0]


# --- waiting -----------------------------------------------------------------------------------


def test_a_fetch_at_the_end_waits_for_the_commit_of_what_comes(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.fill(0)
        pending = broker.begin(fetch_request(wanted(1), max_wait_ms=500), 12)
        assert broker.delayed_count == 1
        broker.produce(batch_of([value_of(1)]))
        assert broker.delayed_count == 1, "it is not committed yet"
        broker.settle()
        assert values(only(broker.finish(pending, 12, FetchResponse))) == [value_of(1)]


def test_a_fetch_waits_no_longer_than_it_wants(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.fill(0)
        pending = broker.begin(fetch_request(wanted(0), min_bytes=1000, max_wait_ms=500), 12)
        assert broker.regions_held == 0, "nothing is held open meanwhile"
        broker.stage.scheduler.advance(490)
        assert broker.delayed_count == 1
        broker.stage.scheduler.advance(20)
        assert values(only(broker.finish(pending, 12, FetchResponse))) == [value_of(0)]


def test_a_fetch_waits_until_there_are_as_many_bytes_as_it_wants(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.fill(0)
        pending = broker.begin(fetch_request(wanted(0), min_bytes=3 * BATCH_BYTES, max_wait_ms=500), 12)
        broker.fill(1)
        assert broker.delayed_count == 1
        broker.fill(2)
        assert batch_count(only(broker.finish(pending, 12, FetchResponse))) == 3


def test_nothing_is_waited_for_when_there_is_something_to_say(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.fill(0)
        assert fetch(broker, fetch_request(max_wait_ms=60_000)).responses == []
        some = fetch_request(wanted(1), wanted(0, partition=9), max_wait_ms=60_000)
        assert [data.error_code for data in fetch(broker, some).responses[0].partitions] == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert values(only(fetch(broker, fetch_request(wanted(1), min_bytes=0, max_wait_ms=60_000)))) == []


def test_whoever_waits_when_the_leader_changes_hears_of_it(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.fill(0)
        pending = broker.begin(fetch_request(wanted(1), max_wait_ms=60_000), 10)
        broker.hand_over()
        data = only(broker.finish(pending, 10, FetchResponse))
        assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_client_that_goes_while_it_waits_leaves_nothing_behind(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.fill(0)
        pending = broker.begin(fetch_request(wanted(0), min_bytes=1000, max_wait_ms=60_000), 12)
        assert broker.delayed_count == 1
        pending.cancel()  # type: ignore[union-attr]
        assert broker.delayed_count == 0
        broker.fill(*range(30))
        assert broker.regions_held == 0


def test_a_failure_while_reading_closes_what_was_read_and_reaches_the_asker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with data_broker(tmp_path) as broker:
        make_partitions(broker, 2)
        both = [wanted(0, partition=each) for each in range(2)]
        request = fetch_request(*both, topic="many", number=2)
        waiting = fetch_request(*both, topic="many", number=2, min_bytes=500, max_wait_ms=100)
        pending = broker.begin(waiting, 12)
        read = Partition.read

        def read_wrong(partition: Partition, offset: int, max_bytes: int, **more: Any) -> PartitionRead:
            if partition.partition_id == 1:
                raise ZeroDivisionError
            return read(partition, offset, max_bytes, **more)

        monkeypatch.setattr(Partition, "read", read_wrong)
        with pytest.raises(ZeroDivisionError):
            broker.begin(request, 12)
        assert broker.regions_held == 0
        broker.stage.scheduler.advance(200)
        assert isinstance(pending, PendingResponse)
        assert isinstance(pending.error, ZeroDivisionError)


# --- epochs and leaders ------------------------------------------------------------------------


def test_a_reader_of_another_epoch_is_told_apart(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.fill(0)
        epoch = broker.partition.leader_epoch
        for told in (-2, -1, epoch):
            data = only(fetch(broker, fetch_request(wanted(0, current_leader_epoch=told))))
            assert data.error_code == ErrorCode.NONE, "below 0 is no epoch"
        data = only(fetch(broker, fetch_request(wanted(0, current_leader_epoch=epoch + 1))))
        assert data.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        broker.hand_over()
        broker.hand_over(ME)
        data = only(fetch(broker, fetch_request(wanted(0, current_leader_epoch=epoch)), 17))
        assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert data.current_leader is not None
        assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (
            ME,
            broker.partition.leader_epoch,
        )


def test_a_reader_whose_history_parted_from_ours_is_told_where(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.fill(0, 1)
        for _ in range(2):
            broker.hand_over()
            broker.hand_over(ME)
        broker.fill(2)
        epoch = broker.partition.leader_epoch
        told = only(fetch(broker, fetch_request(wanted(3, last_fetched_epoch=0), max_wait_ms=60_000)))
        assert told.diverging_epoch is not None
        assert (told.diverging_epoch.epoch, told.diverging_epoch.end_offset) == (0, 2)
        assert len(told.records or b"") == 0
        for told_epoch in (epoch, -1, -2):
            data = only(fetch(broker, fetch_request(wanted(3, last_fetched_epoch=told_epoch))))
            assert data.diverging_epoch is None


def test_from_version_16_on_a_partition_that_moved_says_where_to(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.metadata.create("elsewhere", 5, replicas=(OTHER,), leader=OTHER, epoch=3)
        broker.register(OTHER, 9_002)
        broker.follow()
        for version in (12, 15, 16, 17):
            response = fetch(broker, fetch_request(wanted(0), topic="elsewhere", number=5), version)
            data = only(response)
            assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            if version < 16:
                assert (data.current_leader, response.node_endpoints) == (None, [])
                continue
            assert data.current_leader is not None
            assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (OTHER, 3)
            (node,) = response.node_endpoints
            assert (node.node_id, node.host, node.port) == (OTHER, "host", 9_002)


def test_from_version_11_on_a_consumer_may_read_from_a_follower(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.fill(0)
        broker.hand_over()
        assert (
            only(fetch(broker, fetch_request(wanted(0)), 10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        )
        assert values(only(fetch(broker, fetch_request(wanted(0)), 11))) == [value_of(0)]


def test_an_unknown_topic_is_named_by_its_own_error(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        request = fetch_request(wanted(0), topic="absent", number=66)
        for version, code in ((12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (13, ErrorCode.UNKNOWN_TOPIC_ID)):
            data = only(fetch(broker, request, version))
            assert (data.error_code, data.aborted_transactions) == (code, [])


def test_old_clients_are_sent_away_from_a_failed_disk(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.partition.fail(StorageError("the disk is gone"))
        codes = {v: only(fetch(broker, fetch_request(wanted(0)), v)).error_code for v in (4, 5, 6, 12)}
        assert codes == {
            4: ErrorCode.NOT_LEADER_OR_FOLLOWER,
            5: ErrorCode.NOT_LEADER_OR_FOLLOWER,
            6: ErrorCode.KAFKA_STORAGE_ERROR,
            12: ErrorCode.KAFKA_STORAGE_ERROR,
        }


def test_a_topic_of_zstd_is_not_for_clients_that_do_not_know_it(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.metadata.configure(ResourceType.TOPIC, TOPIC, "compression.type", "zstd")
        broker.follow()
        assert only(fetch(broker, fetch_request(wanted(0)), 9)).error_code == (
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        )
        assert only(fetch(broker, fetch_request(wanted(0)), 10)).error_code == ErrorCode.NONE


# --- followers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions_of(FetchRequest))
@pytest.mark.parametrize("replica_id", [0, ME, OTHER, 9])
def test_nobody_is_believed_to_be_a_follower(tmp_path: Path, version: int, replica_id: int) -> None:
    with data_broker(tmp_path) as broker:
        broker.metadata.change(TOPIC_NUMBER, replicas=[ME, OTHER], isr=[ME, OTHER])
        broker.follow()
        produced = broker.begin(produce_request(batch_of([value_of(0)]), acks=ACKS_ALL), 9)
        broker.settle()
        for offset in (0, 1):
            request = fetch_request(wanted(offset), replica_id=replica_id, session=(0, OPENING))
            with pytest.raises(ClusterAuthorizationError):
                broker.begin(request, version)
        assert broker.partition.high_watermark == 0
        assert isinstance(produced, PendingResponse)
        assert not produced.is_decided, "nobody else has the record"
        assert len(broker.services.fetch_sessions) == 0
        broker.partition.read_for_replica(OTHER, 1, 1, broker.clock.monotonic_ms())


def test_a_follower_reads_to_the_end_and_commits_what_it_has(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.metadata.change(TOPIC_NUMBER, replicas=[ME, OTHER], isr=[ME, OTHER])
        broker.follow()
        produced = broker.begin(produce_request(batch_of([value_of(0)]), acks=ACKS_ALL), 9)
        broker.settle()
        assert broker.partition.high_watermark == 0
        reading = read_as(broker, OTHER, offset=0)
        assert (reading.read_bytes, reading.get((TOPIC, 0)).high_watermark) == (BATCH_BYTES, 0)
        reading.close()
        reading = read_as(broker, OTHER, offset=1)
        assert broker.partition.high_watermark == 1
        assert broker.finish(produced, 9, ProduceResponse).responses[0].partition_responses[0].error_code == 0
        reading.close()


def test_a_broker_without_a_replica_is_no_follower(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.fill(0)
        reading = read_as(broker, 9, offset=0)
        assert reading.get((TOPIC, 0)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert broker.regions_held == 0


@pytest.mark.parametrize("is_proved", [True, False])
def test_what_a_follower_says_is_corrupt_is_looked_into_if_it_is_one(tmp_path: Path, is_proved: bool) -> None:
    with data_broker(tmp_path) as broker:
        broker.register(OTHER, 9_002)
        broker.metadata.change(TOPIC_NUMBER, replicas=[ME, OTHER], isr=[ME, OTHER])
        broker.follow()
        suspected: list[tuple[object, int]] = []
        broker.services.partitions.suspect = lambda partition, offset: suspected.append((partition, offset))
        asked = fetch_request(wanted(0))
        if is_proved:
            broker.session.broker = BrokerIdentity(OTHER, OTHER)
            asked.replica_state = ReplicaState(replica_id=OTHER, replica_epoch=OTHER)
        fetch(broker, asked, 18)
        assert suspected == []
        asked.topics[0].partitions[0].unknown_tags = ((CORRUPT_TAG, b""),)
        fetch(broker, asked, 18)
        assert suspected == ([(broker.partition, 0)] if is_proved else [])


def test_what_cannot_be_read_is_looked_into(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        for number in range(2 * TAIL_BATCHES + 1):  # the last are found without being looked at
            broker.partition.append(batch_of([value_of(number)]), 1, NOW_MS)
        broker.settle()
        suspected: list[int] = []
        broker.services.partitions.suspect = lambda partition, offset: suspected.append(offset)
        path = Path(broker.partition.log.segments.active.log.path)
        content = bytearray(path.read_bytes())
        content[16] ^= 0xFF  # the format's version
        path.write_bytes(content)
        response = fetch(broker, fetch_request(wanted(0)))
        assert response.responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert suspected == [0]


def read_as(broker: DataBroker, replica_id: int, *, offset: int) -> _fetch_reading.Reading:
    """What a replica reads that has proved which one it is."""
    reader = _fetch_reading.Reader(replica_id, -1, 0, 12)
    return _fetch_reading.read_partitions(
        broker.services, reader, {(TOPIC, 0): FetchSpec(offset, MUCH, -1, -1, -1)}, MUCH
    )


# --- sessions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [7, 12, 13, 18])
def test_a_session_is_told_only_what_is_new(tmp_path: Path, version: int) -> None:
    with data_broker(tmp_path) as broker:
        make_partitions(broker, 3)

        def ask(*partitions: FetchPartition, epoch: int, forgotten: tuple[int, ...] = ()) -> FetchResponse:
            return fetch(
                broker,
                fetch_request(
                    *partitions, topic="many", number=2, session=(session_id, epoch), forgotten=forgotten
                ),
                version,
            )

        session_id = 0
        opened = ask(*(wanted(0, partition=each) for each in range(3)), epoch=OPENING)
        session_id = opened.session_id
        assert session_id > 0
        assert [len(topic.partitions) for topic in opened.responses] == [3]
        moved_on = ask(*(wanted(1, partition=each) for each in range(3)), epoch=1)
        assert (moved_on.session_id, moved_on.responses) == (session_id, [])
        broker.stage.partitions.require("many", 1).append(batch_of([value_of(9)]), 1, broker.clock.wall_ms())
        broker.settle()
        news = ask(epoch=2)
        assert [(data.partition_index, values(data)) for data in news.responses[0].partitions] == [
            (1, [value_of(9)])
        ]
        news = ask(epoch=3, forgotten=(1,))
        assert news.responses == [], "its records are no longer asked for"


def test_a_session_that_is_not_there_or_out_of_step_is_an_error_of_the_whole(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.fill(0)
        session_id = fetch(broker, fetch_request(wanted(0), session=(0, OPENING))).session_id
        for session, version, code in (
            ((session_id + 1, 1), 12, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
            ((session_id, 2), 12, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
            ((session_id, 1), 13, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
        ):
            response = fetch(broker, fetch_request(session=session), version)
            assert (response.error_code, response.session_id, response.responses) == (code, 0, [])
        assert values(only(fetch(broker, fetch_request(session=(session_id, 1))))) == [value_of(0)]


def test_a_fetch_that_a_later_one_overtook_says_so_and_closes_what_it_read(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.fill(0)
        session_id = fetch(broker, fetch_request(wanted(1), session=(0, OPENING))).session_id
        first = broker.begin(fetch_request(session=(session_id, 1), max_wait_ms=1_000), 12)
        second = broker.begin(fetch_request(session=(session_id, 2), max_wait_ms=1_000), 12)
        assert broker.delayed_count == 1, "the first is answered at once"
        broker.fill(1)
        assert broker.regions_held == 1, "of the second"
        overtaken = broker.finish(first, 12, FetchResponse)
        assert (overtaken.error_code, overtaken.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
        assert values(only(broker.finish(second, 12, FetchResponse))) == [value_of(1)]


# --- as a whole --------------------------------------------------------------------------------


def test_bytes_that_are_sent_are_counted(tmp_path: Path) -> None:
    with data_broker(tmp_path, log=LogConfig(segment_bytes=1024)) as broker:
        broker.fill(0, 1)
        fetch(broker, fetch_request(wanted(0)))
        fetch(broker, fetch_request(wanted(2)))
        (counted,) = (each for each in broker.metrics.families() if each.name == "dlog_topic_bytes_out")
        assert [sample.value for sample in counted.samples] == [2 * BATCH_BYTES]


@pytest.mark.parametrize("version", [4, 7, 12, 13])
def test_a_request_that_fails_as_a_whole_says_so_in_the_words_of_its_version(
    tmp_path: Path, version: int
) -> None:
    with data_broker(tmp_path) as broker:
        refuse = registration_of(FetchRequest).error_response
        assert refuse is not None
        context: object = type("Context", (), {"api_version": version})
        response = refuse(fetch_request(wanted(0)), context, ErrorCode.REQUEST_TIMED_OUT, "")  # type: ignore[arg-type]
        read = broker.finish(response, version, FetchResponse)
        codes = [data.error_code for topic in read.responses for data in topic.partitions]
        assert codes == ([ErrorCode.REQUEST_TIMED_OUT] if version < 13 else [])
        assert read.error_code == (ErrorCode.REQUEST_TIMED_OUT if version >= 7 else ErrorCode.NONE)
