"""Produce of batches that take long to open: prepared beside the loop, and what may happen meanwhile."""

import asyncio
import gc
import random
import time
import weakref
from pathlib import Path

import pytest

from distributedlog.broker.handlers.produce import SMALL_COMPRESSED_BYTES
from distributedlog.broker.net.dispatch import CloseConnectionError
from distributedlog.broker.net.pending import PendingResponse
from distributedlog.controller.image import ResourceType
from distributedlog.model.config import KIB, MIB, LogConfig
from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.codec import encode_bytes
from distributedlog.protocol.messages.list_offsets import ListOffsetsResponse
from distributedlog.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from distributedlog.records.batch import read_header
from distributedlog.records.compression import Codec
from distributedlog.records.layout import HEADER_BYTES
from distributedlog.records.record import Record, encode_batch, finish_batch
from distributedlog.replication.contract import OffsetSpec
from distributedlog.storage.append import LONG_BYTES
from tests.simulation.executor import StepExecutor
from tests.unit.broker.handlers.data_requests import offsets_request
from tests.unit.broker.handlers.data_stage import (
    TOPIC,
    TOPIC_NUMBER,
    DataBroker,
    data_broker,
    produce_request,
)
from tests.unit.broker.handlers.test_data_over_sockets import Served, answer, ask, send, sole
from tests.unit.broker.server_stage import run
from tests.unit.storage.support import NOW_MS, batch_of, value_of

CHANCE = random.Random(11)
VALUES = [CHANCE.randbytes(5_000) + bytes(300_000) for _ in range(8)]
"""More than is opened on the loop."""


def long_batch(key: bytes | None = b"key", codec: Codec = Codec.LZ4, timestamp_ms: int = NOW_MS) -> bytearray:
    batch = encode_batch([Record(value, key, (), timestamp_ms) for value in VALUES], codec=codec)
    assert len(batch) > SMALL_COMPRESSED_BYTES
    return batch


def undecodable_batch() -> bytearray:
    """One with a right checksum, the last record of which claims a longer value than it has."""
    plain = encode_batch([Record(value, b"key", (), NOW_MS) for value in (*VALUES, b"b" * 40)])
    section = plain[HEADER_BYTES:]
    section[section.rindex(b"b" * 40) - 1] = 200
    header = read_header(plain)._replace(attributes=int(Codec.LZ4))
    batch = bytearray(HEADER_BYTES) + section
    return finish_batch(batch, header)


def partition_response(broker: DataBroker, pending: object) -> PartitionProduceResponse:
    response = broker.finish(pending, 11, ProduceResponse)  # type: ignore[arg-type]
    ((found,),) = (topic.partition_responses for topic in response.responses)
    return found


def begin(broker: DataBroker, data: bytearray, acks: int = 1, version: int = 11) -> PendingResponse:
    pending = broker.begin(produce_request(data, acks=acks), version)
    assert isinstance(pending, PendingResponse)
    assert not pending.is_applied
    assert broker.partition.log_end_offset == 0
    return pending


# --- what is prepared ------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_a_long_batch_is_appended_once_it_is_prepared(tmp_path: Path, codec: Codec) -> None:
    executor = StepExecutor()
    with data_broker(tmp_path, preparing=executor) as broker:
        pending = begin(broker, long_batch(codec=codec))
        executor.run_all()
        assert pending.is_applied
        found = partition_response(broker, pending)
        assert (found.error_code, found.base_offset) == (ErrorCode.NONE, 0)
        assert broker.partition.log_end_offset == len(VALUES)


SHORT = {
    "small and compressed": encode_batch([Record(bytes(3 * MIB), b"key", (), NOW_MS)], codec=Codec.LZ4),
    "larger, compressed and not much when it is opened": encode_batch(
        [Record(CHANCE.randbytes(100 * KIB), b"key", (), NOW_MS)], codec=Codec.ZSTD
    ),
    "not compressed": encode_batch([Record(bytes(LONG_BYTES - 200), b"key", (), NOW_MS)]),
}


@pytest.mark.parametrize("data", SHORT.values(), ids=SHORT)
def test_what_does_not_take_long_is_appended_at_once(tmp_path: Path, data: bytearray) -> None:
    with data_broker(tmp_path, preparing=StepExecutor()) as broker:
        assert broker.produce(bytearray(data)).base_offset == 0


def many(*batches: bytearray, acks: int = 1) -> ProduceRequest:
    """A request with several batches for the same partition."""
    data = [PartitionProduceData(index=0, records=batch) for batch in batches]
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)]
    )


def test_many_small_batches_that_open_to_much_are_not_all_opened_on_the_loop(tmp_path: Path) -> None:
    executor = StepExecutor()
    with data_broker(tmp_path, preparing=executor) as broker:
        one = [Record(bytes(1 * MIB), b"key", (), NOW_MS)]
        batches = [encode_batch(one, codec=Codec.LZ4) for _ in range(20)]
        assert all(len(batch) < SMALL_COMPRESSED_BYTES for batch in batches)
        pending = broker.begin(many(*batches), 11)
        assert isinstance(pending, PendingResponse)
        assert executor.run_all() >= 18
        response = broker.finish(pending, 11, ProduceResponse)
        offsets = [each.base_offset for each in response.responses[0].partition_responses]
        assert offsets == list(range(20))


def test_many_small_batches_that_open_to_little_are_appended_at_once(tmp_path: Path) -> None:
    with data_broker(tmp_path, preparing=StepExecutor()) as broker:
        batches = [
            encode_batch([Record(b"v" * 2000, b"key", (), NOW_MS)], codec=Codec.GZIP) for _ in range(50)
        ]
        response = broker.finish(broker.begin(many(*batches), 11), 11, ProduceResponse)
        assert [each.base_offset for each in response.responses[0].partition_responses] == list(range(50))


def test_nothing_of_a_request_is_appended_before_all_of_it_is_prepared(tmp_path: Path) -> None:
    executor = StepExecutor()
    with data_broker(tmp_path, preparing=executor) as broker:
        broker.metadata.create("two", 2, partitions=3)
        broker.follow()
        batches = [batch_of([value_of(1)]), long_batch(), undecodable_batch()]
        request = ProduceRequest(
            acks=1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(
                    name="two",
                    partition_data=[
                        PartitionProduceData(index=index, records=data) for index, data in enumerate(batches)
                    ],
                )
            ],
        )
        pending = broker.begin(request, 11)
        executor.run_one()
        partitions = [broker.stage.partitions.require("two", index) for index in range(3)]
        assert [each.log_end_offset for each in partitions] == [0, 0, 0]
        executor.run_all()
        response = broker.finish(pending, 11, ProduceResponse)
        codes = [each.error_code for each in response.responses[0].partition_responses]
        assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INVALID_RECORD]
        assert [each.log_end_offset for each in partitions] == [1, len(VALUES), 0]


def test_a_long_batch_is_refused_in_the_words_of_a_short_one(tmp_path: Path) -> None:
    executor = StepExecutor()
    bad = [
        undecodable_batch(),
        long_batch(timestamp_ms=NOW_MS + 10**10),
        bytearray(b"\x00" * 20) + long_batch()[20:],
    ]
    with data_broker(tmp_path / "a", preparing=executor) as beside, data_broker(tmp_path / "b") as inline:
        for data in bad:
            pending = beside.begin(produce_request(bytearray(data)), 11)
            executor.run_all()
            at_once = partition_response(inline, inline.begin(produce_request(bytearray(data)), 11))
            assert at_once.error_code != ErrorCode.NONE
            assert partition_response(beside, pending) == at_once
        assert beside.partition.log_end_offset == 0


def test_a_topic_with_a_compression_of_its_own_has_batches_compressed_anew_beside_the_loop(
    tmp_path: Path,
) -> None:
    executor = StepExecutor()
    log = LogConfig(compression_type="zstd", file_delete_delay_ms=0)
    with data_broker(tmp_path, log=log, preparing=executor) as broker:
        records = [Record(CHANCE.randbytes(40_000), b"key", (), NOW_MS) for _ in range(8)]
        pending = begin(broker, encode_batch(records))
        executor.run_all()
        assert partition_response(broker, pending).error_code == ErrorCode.NONE
        broker.settle()
        with broker.partition.read(0, 1 << 20).region as region:  # type: ignore[union-attr]
            assert read_header(region.read()).codec is Codec.ZSTD


def test_a_compacted_topic_wants_keys_of_long_batches_whatever_record_validation_says(tmp_path: Path) -> None:
    executor = StepExecutor()
    log = LogConfig(cleanup_policy=("compact",), record_validation="header", file_delete_delay_ms=0)
    with data_broker(tmp_path, log=log, preparing=executor) as broker:
        pending = begin(broker, long_batch(key=None))
        executor.run_all()
        found = partition_response(broker, pending)
        assert found.error_code == ErrorCode.INVALID_RECORD
        assert [each.batch_index for each in found.record_errors] == list(range(len(VALUES)))


# --- acks ------------------------------------------------------------------------------------------


def test_acks_all_waits_for_the_commit_after_the_append_and_holds_nothing_of_the_frame(
    tmp_path: Path,
) -> None:
    class Frame(bytearray):
        """One that can be watched."""

    executor = StepExecutor()
    with data_broker(tmp_path, preparing=executor) as broker:
        frame = Frame(encode_bytes(produce_request(long_batch(), acks=-1), 11))
        watched = weakref.ref(frame)
        pending = broker.begin_frame(ProduceRequest, 11, frame)
        del frame
        assert isinstance(pending, PendingResponse)
        executor.run_all()
        gc.collect()
        assert watched() is None
        assert (pending.is_applied, pending.is_decided, broker.delayed_count) == (True, False, 1)
        broker.settle()
        assert partition_response(broker, pending).error_code == ErrorCode.NONE


def test_acks_0_that_is_refused_ends_its_connection(tmp_path: Path) -> None:
    executor = StepExecutor()
    with data_broker(tmp_path, preparing=executor) as broker:
        pending = begin(broker, undecodable_batch(), acks=0)
        executor.run_all()
        assert isinstance(pending.error, CloseConnectionError)
        pending = begin(broker, long_batch(), acks=0)
        executor.run_all()
        assert (pending.is_decided, pending.error, pending.response) == (True, None, None)


# --- what happens meanwhile ------------------------------------------------------------------------


def test_another_leader_is_named_and_nothing_is_appended(tmp_path: Path) -> None:
    executor = StepExecutor()
    with data_broker(tmp_path, preparing=executor) as broker:
        pendings = [begin(broker, long_batch()), begin(broker, undecodable_batch())]
        broker.hand_over()
        executor.run_all()
        for pending in pendings:
            found = partition_response(broker, pending)
            assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert found.current_leader is not None
            assert found.current_leader.leader_id == 2
        assert broker.partition.log_end_offset == 0


def test_a_topic_that_was_deleted_is_unknown(tmp_path: Path) -> None:
    executor = StepExecutor()
    with data_broker(tmp_path, preparing=executor) as broker:
        pending = begin(broker, long_batch())
        broker.metadata.remove(TOPIC_NUMBER)
        broker.follow()
        executor.run_all()
        assert partition_response(broker, pending).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_rules_that_changed_are_those_that_count(tmp_path: Path) -> None:
    executor = StepExecutor()
    with data_broker(tmp_path, preparing=executor) as broker:
        pending = begin(broker, long_batch(key=None))
        broker.metadata.configure(ResourceType.TOPIC, TOPIC, "cleanup.policy", "compact")
        broker.follow()
        executor.run_one()
        assert not pending.is_applied, "it is prepared again"
        executor.run_all()
        assert partition_response(broker, pending).error_code == ErrorCode.INVALID_RECORD
        pending = begin(broker, long_batch(key=None))
        broker.metadata.configure(ResourceType.TOPIC, TOPIC, "cleanup.policy", "delete")
        broker.follow()
        executor.run_all()
        assert partition_response(broker, pending).error_code == ErrorCode.NONE


def test_a_client_that_left_has_its_batch_appended_and_waits_for_nothing(tmp_path: Path) -> None:
    executor = StepExecutor()
    with data_broker(tmp_path, preparing=executor) as broker:
        pending = begin(broker, long_batch(), acks=-1)
        pending.drop_response()
        executor.run_all()
        assert broker.partition.log_end_offset == len(VALUES)
        assert broker.delayed_count == 0


def test_a_request_whose_time_is_over_appends_nothing_any_more(tmp_path: Path) -> None:
    executor = StepExecutor()
    with data_broker(tmp_path, preparing=executor) as broker:
        waiting, running = begin(broker, long_batch()), begin(broker, long_batch())
        third = begin(broker, long_batch())
        assert executor.waiting == 2, "so many at a time"
        for pending in (waiting, running, third):
            pending.cancel()
        executor.run_all()
        assert broker.partition.log_end_offset == 0


def test_a_broker_that_stops_appends_nothing_any_more(tmp_path: Path) -> None:
    executor = StepExecutor()
    with data_broker(tmp_path, preparing=executor) as broker:
        pendings = [begin(broker, long_batch()) for _ in range(3)]
        broker.services.preparations.close()
        executor.run_all()
        assert broker.partition.log_end_offset == 0
        assert not any(pending.is_decided for pending in pendings)


def test_a_bug_while_a_batch_is_prepared_fails_its_request_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = StepExecutor()
    with data_broker(tmp_path, preparing=executor) as broker:
        pending = begin(broker, long_batch())
        with monkeypatch.context() as patch:
            patch.setattr("distributedlog.storage.append.decompress_records", lambda *_: 1 / 0)
            executor.run_all()
        assert isinstance(pending.error, ZeroDivisionError)
        pending = begin(broker, long_batch())
        executor.run_all()
        assert partition_response(broker, pending).base_offset == 0


# --- behind a server -------------------------------------------------------------------------------


def now() -> int:
    return time.time_ns() // 1_000_000


def test_requests_behind_a_long_batch_on_its_connection_see_it_appended(tmp_path: Path) -> None:
    async def story() -> None:
        async with Served(tmp_path) as served:
            client = await served.connect()
            for _ in range(5):
                await send(client, produce_request(long_batch(timestamp_ms=now()), acks=1), 9)
                await send(client, produce_request(batch_of([b"short"], timestamp_ms=now()), acks=-1), 9)
            await send(client, offsets_request(OffsetSpec.LATEST), 7)
            expected = 0
            for _ in range(5):
                for count in (len(VALUES), 1):
                    found = sole(await answer(client, 9, ProduceResponse))
                    assert (found.error_code, found.base_offset) == (ErrorCode.NONE, expected)
                    expected += count
            listed = await answer(client, 7, ListOffsetsResponse)
            assert listed.topics[0].partitions[0].offset == expected

    run(story())


def test_what_a_client_sent_without_waiting_for_it_is_appended_after_it_left(tmp_path: Path) -> None:
    async def story() -> None:
        async with Served(tmp_path) as served:
            client = await served.connect()
            for _ in range(5):
                await send(client, produce_request(long_batch(timestamp_ms=now()), acks=0), 9)
            client.close()
            await served.counts.until_closed("client gone")
            while served.server.in_flight_bytes:
                await asyncio.sleep(0)
            assert served.end_offset == 5 * len(VALUES)

    run(story())


def test_bytes_that_are_being_prepared_are_in_flight_also_when_their_client_left(tmp_path: Path) -> None:
    async def story() -> None:
        async with Served(tmp_path) as served:
            held = StepExecutor()
            served.services.preparations._executor = held
            client, other = await served.connect(), await served.connect()
            data = long_batch(timestamp_ms=now())
            await send(client, produce_request(data, acks=-1), 9)
            await served.counts.until(lambda: held.waiting == 1)
            client.close()
            await served.counts.until_closed("client gone")
            assert served.server.in_flight_bytes > len(data)
            found = sole(
                await ask(other, produce_request(batch_of([b"x"], timestamp_ms=now())), 9, ProduceResponse)
            )
            assert found.base_offset == 0, "other connections go on"
            held.run_all()
            assert served.server.in_flight_bytes == 0
            assert served.end_offset == 1 + len(VALUES)

    run(story())


def test_the_loop_hardly_works_for_a_batch_that_takes_long(tmp_path: Path) -> None:
    """Time of the loop's thread, not of the clock: others may run on this machine."""
    values = [CHANCE.randbytes(1_000) + bytes(30_000) for _ in range(500)]

    async def story() -> None:
        async with Served(tmp_path) as served:
            client = await served.connect()
            data = encode_batch([Record(value, b"key", (), now()) for value in values], codec=Codec.GZIP)
            rules = served.partitions.require(TOPIC, 0).log.rules
            began = time.thread_time()
            rules.validate(data)
            validation_seconds = time.thread_time() - began
            request = produce_request(data, acks=1)
            assert sole(await ask(client, request, 9, ProduceResponse)).error_code == ErrorCode.NONE
            began = time.thread_time()
            for _ in range(5):
                await ask(client, request, 9, ProduceResponse)
            loop_seconds = (time.thread_time() - began) / 5
            assert loop_seconds < validation_seconds / 4, (loop_seconds, validation_seconds)

    run(story())
