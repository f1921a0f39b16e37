import gc
import struct
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import CloseConnectionError
from distributedlog.controller.image import ResourceType
from distributedlog.model.config import LogConfig
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import StorageError
from distributedlog.protocol.codec import encode_bytes
from distributedlog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from distributedlog.records.batch import read_header
from distributedlog.records.checksum import crc32c
from distributedlog.records.compression import Codec
from distributedlog.records.layout import (
    ATTRIBUTES_AT,
    CRC_AT,
    LAST_OFFSET_DELTA_AT,
    LOG_APPEND_TIME_BIT,
    RECORD_COUNT_AT,
)
from distributedlog.records.record import Record, decode_batch, encode_batch
from distributedlog.replication.partition import Partition
from tests.simulation.disk import SimDisk
from tests.unit.broker.handlers.admin_stage import versions_of
from tests.unit.broker.handlers.data_stage import (
    LARGE,
    TOPIC,
    TOPIC_NUMBER,
    DataBroker,
    data_broker,
    produce_request,
)
from tests.unit.broker.partition_stage import ME, OTHER, topic_id
from tests.unit.replication.support import values_of
from tests.unit.storage.support import NOW_MS, batch_of, marker_of, value_of


def stored(partition: Partition) -> list[bytes | None]:
    return values_of(partition.read(0, 1 << 20))


# --- being answered ----------------------------------------------------------------------------


def test_every_version_appends_and_is_told_where(tmp_path: Path) -> None:
    versions = versions_of(ProduceRequest)
    assert versions == range(3, 14)
    with data_broker(tmp_path) as broker:
        for at, version in enumerate(versions):
            answer = broker.produce(batch_of([value_of(at)]), version=version)
            assert (answer.index, answer.error_code, answer.base_offset) == (0, ErrorCode.NONE, at)
            assert answer.log_append_time_ms == -1
            assert answer.log_start_offset == (0 if version >= 5 else -1)
            assert (answer.record_errors, answer.error_message, answer.current_leader) == ([], None, None)
        broker.settle()
        assert stored(broker.partition) == [value_of(at) for at in range(len(versions))]


def test_produce_is_advertised_from_version_0_though_it_begins_at_3() -> None:
    from tests.unit.broker.handlers.admin_stage import registration_of

    assert registration_of(ProduceRequest).advertised_from == 0


def test_acks_1_is_answered_before_anything_is_synced(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        assert broker.produce(batch_of([value_of(1)]), acks=1).base_offset == 0
        assert broker.partition.high_watermark == 0
        broker.stage.scheduler.run_posted()
        assert broker.stage.executor.waiting == 1


def test_acks_all_is_answered_when_the_batch_is_synced_and_not_before(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        pending = broker.begin(produce_request(batch_of([value_of(1)]), acks=-1), 9)
        assert broker.delayed_count == 1
        broker.settle()
        answer = broker.finish(pending, 9, ProduceResponse).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
        assert broker.partition.high_watermark == 1


def test_acks_all_is_answered_at_once_where_the_topic_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.metadata.configure(ResourceType.TOPIC, "t", "flush.on.commit", "false")
        broker.follow()
        assert broker.produce(batch_of([value_of(1)]), acks=-1).base_offset == 0


def test_acks_0_is_not_answered(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        assert broker.begin(produce_request(batch_of([value_of(1)]), acks=0), 9) is None
        broker.settle()
        assert stored(broker.partition) == [value_of(1)]


@pytest.mark.parametrize("data", [b"", bytes(100), None])
def test_acks_0_that_is_refused_ends_the_connection(tmp_path: Path, data: bytes | None) -> None:
    with data_broker(tmp_path) as broker, pytest.raises(CloseConnectionError, match="acks 0"):
        broker.begin(produce_request(data, acks=0), 9)


@pytest.mark.parametrize("acks", [2, -2, 7, 32767])
def test_acks_that_mean_nothing_are_refused_and_nothing_is_appended(tmp_path: Path, acks: int) -> None:
    with data_broker(tmp_path) as broker:
        answer = broker.produce(batch_of([value_of(1)]), acks=acks)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
        assert broker.partition.log_end_offset == 0


def test_partitions_stand_for_themselves_and_are_answered_in_their_places(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.metadata.create("u", 2, 2)
        broker.follow()

        def data(index: int, good: bool) -> PartitionProduceData:
            return PartitionProduceData(index=index, records=batch_of([value_of(1)]) if good else bytes(70))

        topics = [
            TopicProduceData(name="u", partition_data=[data(1, True), data(0, False), data(9, True)]),
            TopicProduceData(name="absent", partition_data=[data(0, True)]),
            TopicProduceData(name="t", partition_data=[data(0, True)]),
        ]
        request = ProduceRequest(acks=1, timeout_ms=0, topic_data=topics)
        response = broker.ask(request, 9, ProduceResponse)
        told = [
            (topic.name, each.index, ErrorCode(each.error_code).name, each.base_offset)
            for topic in response.responses
            for each in topic.partition_responses
        ]
        assert told == [
            ("u", 1, "NONE", 0),
            ("u", 0, "INVALID_RECORD", -1),
            ("u", 9, "UNKNOWN_TOPIC_OR_PARTITION", -1),
            ("absent", 0, "UNKNOWN_TOPIC_OR_PARTITION", -1),
            ("t", 0, "NONE", 0),
        ]


def test_what_was_refused_is_said_beside_what_waits_for_the_disk(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        partitions = [
            PartitionProduceData(index=5, records=batch_of([value_of(1)])),
            PartitionProduceData(index=0, records=batch_of([value_of(1)])),
        ]
        request = ProduceRequest(
            acks=-1, timeout_ms=100, topic_data=[TopicProduceData(name=TOPIC, partition_data=partitions)]
        )
        pending = broker.begin(request, 9)
        broker.settle()
        (topic,) = broker.finish(pending, 9, ProduceResponse).responses
        assert [each.error_code for each in topic.partition_responses] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NONE,
        ]


# --- waiting -----------------------------------------------------------------------------------


def test_a_wait_that_is_over_says_so_and_where_the_batch_stands(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        pending = broker.begin(produce_request(batch_of([value_of(1)]), acks=-1, timeout_ms=250), 9)
        broker.stage.scheduler.advance(300)
        answer = broker.finish(pending, 9, ProduceResponse).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0)


def test_whoever_waits_when_the_leader_changes_is_told_who_leads_now(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        requests = {
            version: broker.begin(produce_request(batch_of([value_of(version)]), acks=-1), version)
            for version in (9, 10, 13)
        }
        broker.hand_over()
        for version, pending in requests.items():
            response = broker.finish(pending, version, ProduceResponse)
            answer = response.responses[0].partition_responses[0]
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            if version < 10:
                assert (answer.current_leader, response.node_endpoints) == (None, [])
                continue
            assert answer.current_leader is not None
            assert answer.current_leader.leader_id == OTHER
            assert answer.current_leader.leader_epoch == broker.partition.leader_epoch
            (node,) = response.node_endpoints
            assert (node.node_id, node.host, node.port, node.rack) == (OTHER, "host", 9_002, "rack-2")


def test_a_request_that_waits_holds_nothing_of_its_frame(tmp_path: Path) -> None:
    class Frame(bytearray):
        """One that can be watched."""

    with data_broker(tmp_path) as broker:
        frame = Frame(encode_bytes(produce_request(batch_of([bytes(1000)]), acks=-1), 9))
        watched = weakref.ref(frame)
        pending = broker.begin_frame(ProduceRequest, 9, frame)
        del frame
        gc.collect()
        assert watched() is None
        broker.settle()
        broker.finish(pending, 9, ProduceResponse)


def test_a_client_that_goes_gives_its_place_back(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        pending = broker.begin(produce_request(batch_of([value_of(1)]), acks=-1), 9)
        assert broker.delayed_count == 1
        pending.cancel()  # type: ignore[union-attr]
        assert broker.delayed_count == 0
        broker.settle()
        assert stored(broker.partition) == [value_of(1)]


# --- who may write -----------------------------------------------------------------------------


def test_a_broker_that_does_not_lead_says_who_does(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.hand_over()
        response = broker.ask(produce_request(batch_of([value_of(1)])), 12, ProduceResponse)
        answer = response.responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert answer.current_leader is not None
        assert answer.current_leader.leader_id == OTHER
        assert [node.node_id for node in response.node_endpoints] == [OTHER]
        broker.register(OTHER, 9_002, fenced=True)
        response = broker.ask(produce_request(batch_of([value_of(1)])), 12, ProduceResponse)
        assert response.node_endpoints == [], "nobody is sent to a broker that is fenced"


def test_an_isolated_broker_refuses_those_who_wait_and_names_nobody(tmp_path: Path) -> None:
    """Clients that are told of no leader ask others for metadata."""
    with data_broker(tmp_path) as broker:
        partition = broker.partition
        partition.become_leader(
            partition.leader_epoch, partition_epoch=1, replicas=(ME, OTHER), isr=(ME, OTHER), now_ms=0
        )
        pending = broker.begin(produce_request(batch_of([value_of(1)]), acks=-1), 12)
        partition.set_heard(())
        waited = broker.finish(pending, 12, ProduceResponse)
        refused = broker.ask(produce_request(batch_of([value_of(2)]), acks=-1), 12, ProduceResponse)
        for response in (waited, refused):
            answer = response.responses[0].partition_responses[0]
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert answer.current_leader is not None
            assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (-1, -1)
            assert response.node_endpoints == []


def test_a_partition_of_others_is_known_from_the_image(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.metadata.create("elsewhere", 5, replicas=(OTHER,), leader=OTHER, epoch=3)
        broker.follow()
        request = produce_request(batch_of([value_of(1)]), topic="elsewhere")
        response = broker.ask(request, 12, ProduceResponse)
        answer = response.responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert answer.current_leader is not None
        assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (OTHER, 3)


def test_a_topic_id_that_is_unknown_is_told_from_a_partition_that_is(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        partition_data = [PartitionProduceData(index=3, records=batch_of([value_of(1)]))]
        topics = [
            TopicProduceData(topic_id=topic_id(77), partition_data=partition_data),
            TopicProduceData(topic_id=topic_id(TOPIC_NUMBER), partition_data=partition_data),
        ]
        response = broker.ask(ProduceRequest(acks=1, timeout_ms=0, topic_data=topics), 13, ProduceResponse)
        assert [(each.topic_id, each.partition_responses[0].error_code) for each in response.responses] == [
            (topic_id(77), ErrorCode.UNKNOWN_TOPIC_ID),
            (topic_id(TOPIC_NUMBER), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]


def test_acks_all_is_refused_before_the_append_while_too_few_are_in_sync(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.metadata.configure(ResourceType.TOPIC, TOPIC, "min.insync.replicas", "2")
        broker.metadata.change(TOPIC_NUMBER, replicas=[ME, OTHER], isr=[ME])
        broker.follow()
        refused = broker.produce(batch_of([value_of(1)]), acks=-1)
        assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert broker.partition.log_end_offset == 0
        assert broker.produce(batch_of([value_of(1)]), acks=1).error_code == ErrorCode.NONE


def test_acks_all_that_waits_hears_that_too_few_are_in_sync_after_the_append(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.metadata.configure(ResourceType.TOPIC, TOPIC, "min.insync.replicas", "2")
        broker.metadata.change(TOPIC_NUMBER, replicas=[ME, OTHER], isr=[ME, OTHER])
        broker.follow()
        pending = broker.begin(produce_request(batch_of([value_of(1)]), acks=-1), 9)
        broker.settle()
        assert broker.delayed_count == 1
        broker.metadata.change(TOPIC_NUMBER, isr=[ME])
        broker.follow()
        answer = broker.finish(pending, 9, ProduceResponse).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert (broker.partition.high_watermark, broker.partition.log_end_offset) == (0, 1)


def test_no_client_writes_to_an_internal_topic_whatever_it_is_called(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.metadata.create("__consumer_offsets", 3)
        broker.follow()
        data = batch_of([value_of(1)], keys=[b"k"])
        refused = broker.produce(data, topic="__consumer_offsets")
        assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        refused = broker.produce(data, topic="__consumer_offsets", client_id="__admin_client")
        assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION, "anybody can call itself that"


# --- what is written ---------------------------------------------------------------------------


def damaged(at: int) -> bytearray:
    data = batch_of([value_of(1)])
    data[at] ^= 1
    return data


def claiming(at: int, number: int) -> bytearray:
    """Makes a batch whose header says something of its records that is not so, with a right checksum."""
    data = batch_of([value_of(1)])
    struct.pack_into(">i", data, at, number)
    struct.pack_into(">I", data, CRC_AT, crc32c(memoryview(data)[ATTRIBUTES_AT:]))
    return data


def of_magic(magic: int, size: int = 100) -> bytearray:
    data = bytearray(size)
    data[16] = magic
    return data


def zstd() -> bytearray:
    return encode_batch([Record(b"value", None, (), NOW_MS)], codec=Codec.ZSTD)


def transactional() -> bytearray:
    return batch_of([b"v"], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)


HOSTILE: list[tuple[str, Callable[[], bytes | bytearray | None], int, ErrorCode]] = [
    ("nothing", lambda: None, 9, ErrorCode.INVALID_RECORD),
    ("no bytes", lambda: b"", 9, ErrorCode.INVALID_RECORD),
    ("a few bytes", lambda: bytes(5), 9, ErrorCode.INVALID_RECORD),
    ("magic 0", lambda: of_magic(0), 9, ErrorCode.INVALID_RECORD),
    ("magic 1", lambda: of_magic(1), 3, ErrorCode.INVALID_RECORD),
    ("magic 1, short", lambda: of_magic(1, 34), 9, ErrorCode.INVALID_RECORD),
    ("magic 3", lambda: of_magic(3), 9, ErrorCode.CORRUPT_MESSAGE),
    ("a wrong checksum", lambda: damaged(17), 9, ErrorCode.CORRUPT_MESSAGE),
    ("a wrong value", lambda: damaged(-1), 9, ErrorCode.CORRUPT_MESSAGE),
    ("too many records claimed", lambda: claiming(RECORD_COUNT_AT, 2), 9, ErrorCode.INVALID_RECORD),
    ("a negative record count", lambda: claiming(RECORD_COUNT_AT, -1), 9, ErrorCode.INVALID_RECORD),
    ("a negative offset delta", lambda: claiming(LAST_OFFSET_DELTA_AT, -1), 9, ErrorCode.INVALID_RECORD),
    ("a damaged record count", lambda: damaged(RECORD_COUNT_AT), 9, ErrorCode.CORRUPT_MESSAGE),
    ("a cut batch", lambda: batch_of([value_of(1)])[:-1], 9, ErrorCode.INVALID_RECORD),
    ("a cut header", lambda: batch_of([value_of(1)])[:60], 9, ErrorCode.INVALID_RECORD),
    ("two batches", lambda: 2 * batch_of([value_of(1)]), 9, ErrorCode.INVALID_RECORD),
    ("bytes behind", lambda: batch_of([value_of(1)]) + b"x", 9, ErrorCode.INVALID_RECORD),
    ("too large", lambda: batch_of([bytes(3000)]), 9, ErrorCode.MESSAGE_TOO_LARGE),
    ("zstd too early", zstd, 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ("zstd", zstd, 7, ErrorCode.NONE),
    ("a transaction", transactional, 9, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ("a marker", lambda: marker_of(7, commit=True), 9, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
]


@pytest.mark.parametrize(
    ("data", "version", "code"), [row[1:] for row in HOSTILE], ids=[r[0] for r in HOSTILE]
)
def test_a_batch_that_cannot_be_is_refused_and_the_next_one_is_taken(
    tmp_path: Path, data: Callable[[], bytes | bytearray | None], version: int, code: ErrorCode
) -> None:
    with data_broker(tmp_path, log=LogConfig(max_message_bytes=2000)) as broker:
        answer = broker.produce(data(), version=version)
        assert ErrorCode(answer.error_code) is code
        taken = 1 if code is ErrorCode.NONE else 0
        assert broker.partition.log_end_offset == taken
        if code is not ErrorCode.NONE:
            assert answer.base_offset == -1
            assert bool(answer.error_message) is (version >= 8)
        assert broker.produce(batch_of([value_of(2)])).base_offset == taken


@given(data=st.one_of(st.binary(max_size=200), st.integers(0, 2**16).map(lambda seed: mutated(seed))))
@settings(max_examples=100, deadline=None)
def test_no_bytes_do_anything_but_be_appended_whole_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    broker = shared_broker(tmp_path_factory)
    before = broker.partition.log_end_offset
    answer = broker.produce(data)
    grown = broker.partition.log_end_offset - before
    if answer.error_code:
        assert grown == 0
    else:
        assert answer.base_offset == before
        assert grown == 3


def mutated(seed: int) -> bytes:
    """A sound batch with one byte changed, somewhere."""
    data = batch_of([value_of(each) for each in range(3)])
    at, value = divmod(seed, 256)
    data[at % len(data)] = value
    return bytes(data)


_SHARED: list[DataBroker] = []


def shared_broker(factory: pytest.TempPathFactory) -> DataBroker:
    if not _SHARED:
        _SHARED.append(DataBroker(factory.mktemp("produce")))
    return _SHARED[0]


@pytest.fixture(scope="module", autouse=True)
def _close_shared() -> object:
    yield
    while _SHARED:
        _SHARED.pop().close()


def test_a_compacted_topic_names_the_records_that_have_no_key(tmp_path: Path) -> None:
    with data_broker(tmp_path, log=LogConfig(cleanup_policy=("compact",))) as broker:
        records = [Record(b"v", key, (), NOW_MS) for key in (b"a", None, b"b", None)]
        answer = broker.produce(encode_batch(records), version=8)
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert [each.batch_index for each in answer.record_errors] == [1, 3]
        assert all(each.batch_index_error_message for each in answer.record_errors)
        assert broker.partition.log_end_offset == 0
        assert broker.produce(encode_batch(records), version=7).record_errors == []
        assert broker.produce(encode_batch(records[::2])).error_code == ErrorCode.NONE


def test_a_topic_that_stamps_records_says_with_what_and_again_for_a_retry(tmp_path: Path) -> None:
    with data_broker(tmp_path, log=LogConfig(message_timestamp_type="LogAppendTime")) as broker:
        batch = batch_of([b"v"], timestamp_ms=5, producer_id=7, producer_epoch=0, base_sequence=0)
        stamped_ms = broker.clock.wall_ms()
        assert broker.produce(bytes(batch)).log_append_time_ms == stamped_ms
        broker.clock.advance(1_000)
        retried = broker.produce(bytes(batch))
        assert (retried.base_offset, retried.log_append_time_ms) == (0, stamped_ms)


def test_a_retry_is_answered_with_the_first_offset_and_waits_like_the_first(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.fill(1, 2)
        batch = batch_of([value_of(3)], producer_id=7, producer_epoch=0, base_sequence=0)
        first = broker.begin(produce_request(bytes(batch), acks=-1), 9)
        retry = broker.begin(produce_request(bytes(batch), acks=-1), 9)
        assert broker.delayed_count == 2, "the first writing is not committed yet"
        broker.settle()
        for pending in (first, retry):
            answer = broker.finish(pending, 9, ProduceResponse).responses[0].partition_responses[0]
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 2)
        assert broker.partition.log_end_offset == 3
        gap = batch_of([value_of(9)], producer_id=7, producer_epoch=0, base_sequence=5)
        refused = broker.produce(gap)
        assert refused.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert (refused.base_offset, refused.log_start_offset) == (-1, 0)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_timestamp_that_the_topic_does_not_take_is_refused_and_its_records_are_named(
    tmp_path: Path, codec: Codec
) -> None:
    config = LogConfig(message_timestamp_after_max_ms=1_000, message_timestamp_before_max_ms=1_000)
    with data_broker(tmp_path, log=config) as broker:
        now_ms = broker.clock.wall_ms()
        times = (now_ms, now_ms + 5_000, now_ms - 900, now_ms - 5_000)
        wrong = encode_batch([Record(b"v", None, (), each) for each in times], codec=codec)
        refused = broker.produce(wrong)
        assert refused.error_code == ErrorCode.INVALID_TIMESTAMP
        assert [each.batch_index for each in refused.record_errors] == [1, 3]
        assert all(each.batch_index_error_message for each in refused.record_errors)
        many = encode_batch([Record(b"v", None, (), now_ms + 5_000)] * 200, codec=codec)
        refused = broker.produce(many)
        assert (refused.error_code, refused.record_errors) == (ErrorCode.INVALID_TIMESTAMP, [])


def test_only_the_topic_says_that_times_are_those_of_the_append(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        claimed = batch_of([b"v"], timestamp_ms=NOW_MS)
        claimed[ATTRIBUTES_AT + 1] |= LOG_APPEND_TIME_BIT
        struct.pack_into(">I", claimed, CRC_AT, crc32c(memoryview(claimed)[ATTRIBUTES_AT:]))
        assert broker.produce(claimed).error_code == ErrorCode.NONE
        region = broker.partition.log.read(0, 1_000).region
        assert region is not None
        with region:
            stored = region.read()
        assert not read_header(stored).is_log_append_time
        assert [record.timestamp_ms for record in decode_batch(stored)] == [NOW_MS]


def test_a_full_disk_refuses_and_takes_again_when_there_is_room(tmp_path: Path) -> None:
    disk = SimDisk()
    with data_broker(tmp_path, disk=disk) as broker:
        disk.capacity_bytes = disk.used_bytes
        refused = broker.produce(batch_of([value_of(1)]), acks=-1)
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        disk.capacity_bytes = None
        assert broker.produce(batch_of([value_of(1)])).base_offset == 0


def test_a_failed_disk_refuses_for_good(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.partition.fail(StorageError("the disk is gone"))
        answer = broker.produce(batch_of([value_of(1)]))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert answer.error_message == "the disk is gone"


def test_the_frame_s_own_bytes_are_what_is_written(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        data = batch_of([value_of(1), value_of(2)])
        broker.produce(data)
        broker.settle()
        read = broker.partition.read(0, 1 << 20)
        assert read.region is not None
        with read.region as region:
            written = region.read()
        assert written[21:] == data[21:]


def test_records_and_bytes_are_counted_once(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        data = batch_of([b"a", b"b"], producer_id=7, producer_epoch=0, base_sequence=0)
        broker.produce(bytes(data))
        broker.produce(bytes(data))
        counted = {
            family.name: [sample.value for sample in family.samples]
            for family in broker.metrics.families()
            if family.name in ("dlog_topic_records_in", "dlog_topic_bytes_in")
        }
        assert counted == {"dlog_topic_records_in": [2], "dlog_topic_bytes_in": [len(data)]}


def test_a_request_that_fails_as_a_whole_fails_for_each_partition(tmp_path: Path) -> None:
    from tests.unit.broker.handlers.admin_stage import registration_of

    with data_broker(tmp_path, log=LARGE) as broker:
        request = produce_request(b"")
        refuse = registration_of(ProduceRequest).error_response
        assert refuse is not None
        context = RequestContext("User:ANONYMOUS", "PLAINTEXT", None, "127.0.0.1", 1, 9, 0, 0)
        response = refuse(request, context, ErrorCode.REQUEST_TIMED_OUT, "late")
        read = broker.finish(response, 9, ProduceResponse)
        assert read.responses[0].partition_responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        with pytest.raises(CloseConnectionError):
            refuse(produce_request(b"", acks=0), context, ErrorCode.REQUEST_TIMED_OUT, "late")
