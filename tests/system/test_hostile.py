"""Enemies against a real broker: each hurts itself alone.

While each of them does its worst, a good client writes and reads: every operation succeeds, none waits for
seconds, the broker stays within its memory, and its log says once from where the harm came and what it was.
How much slower the good client gets is measured by `make bench SECTION=hostile`.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.framing import decode_response
from distributedlog.protocol.messages.api_versions import ApiVersionsRequest
from distributedlog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from distributedlog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from distributedlog.protocol.messages.init_producer_id import InitProducerIdRequest
from distributedlog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from distributedlog.records.compression import Codec
from distributedlog.records.record import Record, encode_batch
from tests.system.enemies import (
    NOW_MS,
    PRODUCE_VERSION,
    Enemy,
    array_of_a_million,
    begun_frame,
    bomb,
    closed_by_broker,
    crowd,
    frame_of,
    noise,
    of_magic,
    pipelined,
    produce_request,
    produced,
    raise_descriptor_limit,
    read_frame,
    sound_batch,
    with_record_count,
    with_wrong_checksum,
)
from tests.system.hostile_stage import COMPACTED, PLAIN, HostileStage

CODECS = [codec for codec in Codec if codec is not Codec.NONE]
METADATA, API_VERSIONS = MetadataRequest.api_key, ApiVersionsRequest.api_key


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileStage]:
    raise_descriptor_limit(12_000)
    directory: Path = tmp_path_factory.mktemp("hostile")
    with HostileStage(directory) as stage:
        yield stage
        assert stage.server.process is not None
        assert stage.server.process.poll() is None
        assert "Traceback" not in stage.server.log


def told_once(stage: HostileStage, enemy: Enemy, reason: str) -> None:
    lines = stage.complaints(enemy.host)
    assert len(lines) == 1, lines
    assert reason in lines[0]


# --- frames ------------------------------------------------------------------------------------


def test_half_a_frame_is_waited_for_and_then_given_up(stage: HostileStage) -> None:
    with stage.meanwhile("half frames") as seen, Enemy(stage.address, "127.0.1.1") as enemy:
        connections = enemy.connect(300)
        enemy.send_each(connections, lambda number: begun_frame(1000 + number, b"\0" * (number % 200)))
        assert closed_by_broker(connections) == 300
    seen.check()
    told_once(stage, enemy, "slow request")


@pytest.mark.parametrize(
    ("size", "host"), [(2**31 - 1, "127.0.1.2"), (-1, "127.0.1.3"), (-(2**31), "127.0.1.4")]
)
def test_a_length_of_two_gigabytes_ends_the_connection_at_once(
    stage: HostileStage, size: int, host: str
) -> None:
    with stage.meanwhile("lengths") as seen, Enemy(stage.address, host) as enemy:
        connections = enemy.connect(100)
        enemy.send_each(connections, lambda _: begun_frame(size, b"x" * 1000))
        assert closed_by_broker(connections) == 100
    seen.check()
    told_once(stage, enemy, f"claims {size} bytes")


def test_large_frames_that_never_come_hold_no_memory(stage: HostileStage) -> None:
    """A hundred times fifteen megabytes are claimed; room is given to few, and taken as bytes arrive."""
    with stage.meanwhile("large claims") as seen, Enemy(stage.address, "127.0.1.5") as enemy:
        connections = enemy.connect(100)
        enemy.send_each(connections, lambda _: begun_frame(15_000_000, b"x" * 70_000))
        assert closed_by_broker(connections[:1]) == 1
    seen.check()
    told_once(stage, enemy, "slow request")


def test_random_bytes_are_refused(stage: HostileStage) -> None:
    random = Random(6)
    with stage.meanwhile("random bytes") as seen, Enemy(stage.address, "127.0.1.6") as enemy:
        connections = enemy.connect(500)
        enemy.send_each(connections, lambda _: noise(random))
        for each in connections:
            each.shutdown(1)  # nothing more comes: what is half is half
        assert closed_by_broker(connections) == 500
    seen.check()
    assert 1 <= len(stage.complaints(enemy.host)) <= 3, "one line for each kind of reason"


# --- connections -------------------------------------------------------------------------------


def test_five_thousand_connections_that_ask_nothing_go_away_by_themselves(stage: HostileStage) -> None:
    before = stage.closed_for("no request")
    enemies = [Enemy(stage.address, f"127.0.2.{number}") for number in range(5)]
    try:
        with stage.meanwhile("half-open connections") as seen:
            connections = [each for enemy in enemies for each in enemy.connect(1_000)]
            assert closed_by_broker(connections) == 5_000
        seen.check()
    finally:
        for enemy in enemies:
            enemy.__exit__(None, None, None)
    assert stage.closed_for("no request") - before == 5_000
    for enemy in enemies:
        told_once(stage, enemy, "no request")


def test_more_connections_than_an_address_may_have_are_turned_away(stage: HostileStage) -> None:
    with stage.meanwhile("too many connections") as seen, Enemy(stage.address, "127.0.2.10") as enemy:
        connections = enemy.connect(2_200)
        assert closed_by_broker(connections[2_000:]) == 200
    seen.check()
    assert sum("max.connections.per.ip" in line for line in stage.complaints(enemy.host)) == 1


# --- readers -----------------------------------------------------------------------------------


def test_a_reader_that_never_reads_costs_what_one_connection_may_hold(stage: HostileStage) -> None:
    batch = sound_batch(count=20_000)
    with Enemy(stage.address, "127.0.3.9") as writer:
        assert produced(writer, PLAIN, batch).error_code == ErrorCode.NONE
    topic = FetchTopic(
        topic=PLAIN, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
    )
    fetch = frame_of(FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[topic]), 12)
    with stage.meanwhile("readers that never read") as seen, Enemy(stage.address, "127.0.3.1") as enemy:
        connections = enemy.connect(40)
        enemy.send_what_is_taken(connections, lambda _: fetch * 5_000)
        assert waits_for_closing(stage, "slow reader", 40)
    seen.check()
    told_once(stage, enemy, "does not take its answers")


def waits_for_closing(stage: HostileStage, reason: str, count: int) -> bool:
    """The enemy cannot see it: it does not read."""
    for _ in range(600):
        if stage.closed_for(reason) >= count:
            return True
        stage.quiet(0.1)
    return False


# --- requests ----------------------------------------------------------------------------------


def test_an_array_of_a_million_is_refused_before_it_is_made(stage: HostileStage) -> None:
    frame = array_of_a_million(METADATA, 1, b"\0\1t")
    with stage.meanwhile("a million elements") as seen, Enemy(stage.address, "127.0.4.1") as enemy:
        connections = enemy.connect(20)
        enemy.send_each(connections, lambda _: frame)
        assert closed_by_broker(connections) == 20
    seen.check()
    told_once(stage, enemy, "elements")


def test_as_many_elements_as_allowed_are_answered(stage: HostileStage) -> None:
    topics = [MetadataRequestTopic(name=f"unknown-{number}") for number in range(40_000)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
    with stage.meanwhile("forty thousand topics") as seen, Enemy(stage.address, "127.0.4.2") as enemy:
        frame = enemy.ask(request, 9)
    seen.check()
    _, answer = decode_response(MetadataResponse, 9, frame)
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert len(answer.topics) == 40_000


def test_ten_thousand_small_requests_at_once_are_answered_in_turn(stage: HostileStage) -> None:
    frame = frame_of(ApiVersionsRequest(client_software_name="e", client_software_version="1"), 3, "x" * 1000)
    with stage.meanwhile("pipelined requests") as seen, Enemy(stage.address, "127.0.4.3") as enemy:
        for _ in range(4):
            (connection,) = enemy.connect()  # not before: who has asked nothing is closed
            for piece in pipelined(frame, 2_500):
                connection.sendall(piece)
                for _ in range(len(piece) // len(frame)):
                    assert read_frame(connection)
    seen.check()
    assert stage.complaints(enemy.host) == []


def test_a_resource_that_is_named_thousands_of_times_is_described_once(stage: HostileStage) -> None:
    """Described each time it came to a hundred megabytes, and to seconds in which nobody else was served."""
    resource = DescribeConfigsResource(resource_type=2, resource_name=PLAIN, configuration_keys=None)
    request = DescribeConfigsRequest(
        resources=[resource] * 40_000, include_synonyms=True, include_documentation=True
    )
    with stage.meanwhile("configs") as seen, Enemy(stage.address, "127.0.4.4") as enemy:
        frame = enemy.ask(request, 4)
    seen.check()
    _, answer = decode_response(DescribeConfigsResponse, 4, frame)
    assert [each.resource_name for each in answer.results] == [PLAIN]


def test_long_requests_on_many_connections_leave_others_their_turn(stage: HostileStage) -> None:
    """A hundred connections of one address, each with a request that takes a while: one of them at a time is
    begun before it is the turn of other addresses.  Were all begun first, the good client would come to one
    operation in that time, or two."""
    partitions = [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1) for number in range(2_000)
    ]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1, topics=[FetchTopic(topic=PLAIN, partitions=partitions)]
    )
    frame = frame_of(request, 12)
    with stage.meanwhile("long requests") as seen, Enemy(stage.address, "127.0.4.5") as enemy:
        connections = enemy.connect(100)
        for each in connections:
            each.sendall(frame)
        assert all(read_frame(each) for each in connections)
    seen.check()
    assert seen.report["operations"] >= 5
    assert stage.complaints(enemy.host) == []


def test_storms_of_producers_and_of_long_names_are_weathered(stage: HostileStage) -> None:
    new_producer = frame_of(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 3)
    with stage.meanwhile("storms") as seen, Enemy(stage.address, "127.0.4.6") as enemy:
        (connection,) = enemy.connect()
        for piece in pipelined(new_producer, 3_000):
            connection.sendall(piece)
        assert all(read_frame(connection) for _ in range(3_000))
        for number in range(2_000):
            batch = encode_batch(
                [Record(b"v", b"k", timestamp_ms=NOW_MS)],
                producer_id=2**40 + number, producer_epoch=0, base_sequence=0,
            )  # fmt: skip
            connection.sendall(
                frame_of(produce_request(PLAIN, batch), PRODUCE_VERSION, f"{number:05}" * 1_000)
            )
        assert all(read_frame(connection) for _ in range(2_000))
    seen.check()


# --- the other listeners -----------------------------------------------------------------------


def test_slow_talkers_on_every_listener_keep_nobody_from_being_served(stage: HostileStage) -> None:
    facts = stage.server.facts
    enemies = {
        name: Enemy(facts[name], f"127.0.6.{number}")
        for number, name in enumerate(("client", "control", "gateway", "ops"))
    }
    try:
        with stage.meanwhile("slow talkers") as seen:
            connections = {name: enemy.connect(60) for name, enemy in enemies.items()}
            for each in ("client", "control", "gateway"):
                enemies[each].send_each(connections[each], lambda number: b"PRI * HTTP/2.0"[: number % 14])
            enemies["ops"].send_each(connections["ops"], lambda _: b"GET /metrics HTTP/1.1\r\nX: ")
            with grpc.insecure_channel(facts["gateway"]) as channel:
                answer = health_pb2_grpc.HealthStub(channel).Check(
                    health_pb2.HealthCheckRequest(service=""), timeout=30
                )
                assert answer.status == health_pb2.HealthCheckResponse.SERVING
            assert "dlog_connections" in stage.metrics()
            assert closed_by_broker(connections["client"]) == 60
            assert closed_by_broker(connections["ops"]) == 60, "408 after five seconds"
        seen.check()
    finally:
        for enemy in enemies.values():
            enemy.__exit__(None, None, None)


# --- batches -----------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_not_opened_further_than_a_message_may_be_large(stage: HostileStage, codec: Codec) -> None:
    data = bomb(codec)
    assert len(data) < 1_000_000
    with stage.meanwhile(f"bombs of {codec.name}") as seen, Enemy(stage.address, f"127.0.5.{codec}") as enemy:
        for _ in range(5):
            assert produced(enemy, COMPACTED, data).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert produced(enemy, PLAIN, data).error_code == ErrorCode.NONE, "nobody opens it there"
    seen.check()


def test_a_million_tiny_records_in_a_megabyte_are_looked_at_in_passing(stage: HostileStage) -> None:
    data = crowd(Codec.ZSTD, 1_000_000)
    with stage.meanwhile("tiny records") as seen, Enemy(stage.address, "127.0.5.9") as enemy:
        for _ in range(3):
            assert produced(enemy, COMPACTED, data).error_code == ErrorCode.NONE
    seen.check()


@pytest.mark.parametrize(
    ("topic", "batch", "code"),
    [
        (PLAIN, with_wrong_checksum(), ErrorCode.CORRUPT_MESSAGE),
        (PLAIN, of_magic(0), ErrorCode.INVALID_RECORD),
        (PLAIN, of_magic(1), ErrorCode.INVALID_RECORD),
        (PLAIN, with_record_count(-1), ErrorCode.CORRUPT_MESSAGE),
        (PLAIN, with_record_count(2**31 - 1), ErrorCode.CORRUPT_MESSAGE),
        (COMPACTED, with_record_count(2), ErrorCode.INVALID_RECORD),
        (PLAIN, sound_batch()[:-1], ErrorCode.CORRUPT_MESSAGE),
        (PLAIN, b"", ErrorCode.INVALID_RECORD),
        (PLAIN, b"\xff" * 100, ErrorCode.INVALID_RECORD),
    ],
    ids=["crc", "magic 0", "magic 1", "count -1", "count 2^31-1", "count 2 of 3", "cut", "none", "ones"],
)
def test_a_batch_that_lies_is_refused_and_the_connection_stays(
    stage: HostileStage, topic: str, batch: bytes | bytearray, code: ErrorCode
) -> None:
    with Enemy(stage.address, "127.0.5.20") as enemy:
        (connection,) = enemy.connect()
        for _ in range(2):
            connection.sendall(frame_of(produce_request(topic, batch), PRODUCE_VERSION))
            assert int(code).to_bytes(2, "big") in read_frame(connection)
    assert stage.complaints(enemy.host) == []


def test_bad_batches_with_acks_0_end_their_connections(stage: HostileStage) -> None:
    frame = frame_of(produce_request(PLAIN, with_wrong_checksum(), acks=0), PRODUCE_VERSION)
    with stage.meanwhile("acks 0") as seen, Enemy(stage.address, "127.0.5.21") as enemy:
        connections = enemy.connect(100)
        enemy.send_each(connections, lambda _: frame * 10)
        assert closed_by_broker(connections) == 100
    seen.check()
    told_once(stage, enemy, "acks 0")
