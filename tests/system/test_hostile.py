"""Enemies against a real broker: each hurts itself alone.

While each of them does its worst, a good client writes and reads: every operation succeeds, none waits for
seconds, the broker stays within its memory, and its log says once from where the harm came and what it was.
How much slower the good client gets is measured by `make bench SECTION=hostile`.
"""

import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from distributedlog.model.config import MIB
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
from distributedlog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from distributedlog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from distributedlog.protocol.messages.produce import ProduceResponse
from distributedlog.records.compression import Codec
from distributedlog.records.record import Record, encode_batch
from tests.system.conftest import PROPERTY
from tests.system.enemies import (
    NOW_MS,
    PRODUCE_VERSION,
    TIMEOUT_SECONDS,
    Enemy,
    array_of_a_million,
    begun_frame,
    bomb,
    closed_by_broker,
    crowd,
    frame_of,
    newer_by_its_header,
    noise,
    of_empty_frames,
    of_magic,
    pipelined,
    produce_request,
    produced,
    raise_descriptor_limit,
    read_frame,
    sound_batch,
    undecodable,
    with_record_count,
    with_wrong_checksum,
)
from tests.system.hostile_stage import COMPACTED, PLAIN, WAIT_MS_MAX, HostileStage

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
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not (lines := stage.log_lines_about(enemy.host)) and time.monotonic() < deadline:
        time.sleep(0.05)  # it is written after the connection was closed
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
    assert 1 <= len(stage.log_lines_about(enemy.host)) <= 3, "one line for each kind of reason"


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
    assert sum("max.connections.per.ip" in line for line in stage.log_lines_about(enemy.host)) == 1


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
    told_once(stage, enemy, "does not take its responses")


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
    assert stage.log_lines_about(enemy.host) == []


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
    assert stage.log_lines_about(enemy.host) == []


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
        for number, name in enumerate(("client", "control", "ops"))
    }
    try:
        with stage.meanwhile("slow talkers") as seen:
            connections = {name: enemy.connect(60) for name, enemy in enemies.items()}
            for each in ("client", "control"):
                enemies[each].send_each(connections[each], lambda number: b"PRI * HTTP/2.0"[: number % 14])
            enemies["ops"].send_each(connections["ops"], lambda _: b"GET /metrics HTTP/1.1\r\nX: ")
            assert "dlog_connections" in stage.metrics()
            assert closed_by_broker(connections["client"]) == 60
            assert closed_by_broker(connections["ops"]) == 60, "408 after five seconds"
        seen.check()
    finally:
        for enemy in enemies.values():
            enemy.__exit__(None, None, None)


def test_lingerers_at_the_operations_port_keep_nobody_from_learning_how_the_node_is(
    stage: HostileStage, record_property: Callable[[str, object], None]
) -> None:
    """Four kinds of them: who asks nothing, or slowly, or does not take the response, or has it and stays."""
    ways = [
        b"",
        b"GET /metrics HTTP/1.1\r\nX: ",
        b"GET /metrics HTTP/1.1\r\n\r\n" * 20,
        b"GET /h HTTP/1.1\r\n\r\n",
    ]
    longest = 0.0
    with stage.meanwhile("lingerers") as seen, Enemy(stage.server.facts["ops"], "127.0.6.9") as enemy:
        for _ in range(10):
            connections = enemy.connect(80)
            enemy.send_each(connections, lambda number: ways[number % len(ways)])
            for path in ("health/live", "health/ready", "metrics"):
                began = time.monotonic()
                url = f"http://{stage.server.facts['ops']}/{path}"
                with urllib.request.urlopen(url, timeout=WAIT_MS_MAX / 1000) as response:
                    assert response.status == 200
                longest = max(longest, time.monotonic() - began)
    seen.check()
    record_property(PROPERTY, f"longest probe {longest * 1000:.0f} ms beside 800 lingerers; {seen.figures}")


# --- batches -----------------------------------------------------------------------------------


def test_batches_that_take_long_to_open_hold_up_nobody(
    stage: HostileStage, record_property: Callable[[str, object], None]
) -> None:
    """Each opens to fifteen megabytes, which takes tens of milliseconds; forty of them are on their way."""
    chance = Random(3)
    values = [chance.randbytes(1_000) + bytes(29_000) for _ in range(500)]
    batch = encode_batch([Record(value, b"k", timestamp_ms=NOW_MS) for value in values], codec=Codec.GZIP)
    with stage.meanwhile("long batches") as seen, Enemy(stage.address, "127.0.6.10") as enemy:
        connections = enemy.connect(8)
        request = frame_of(produce_request(PLAIN, batch), PRODUCE_VERSION)
        enemy.send_each(connections, lambda _: request * 5)
        for connection in connections:
            for _ in range(5):
                response = decode_response(ProduceResponse, PRODUCE_VERSION, read_frame(connection))[1]
                assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    seen.check()
    record_property(PROPERTY, seen.figures)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_not_opened_further_than_a_message_may_be_large(stage: HostileStage, codec: Codec) -> None:
    data = bomb(codec)
    assert len(data) < 1_000_000 or codec is Codec.SNAPPY, "which is too large as it is"
    with stage.meanwhile(f"bombs of {codec.name}") as seen, Enemy(stage.address, f"127.0.5.{codec}") as enemy:
        for _ in range(5):
            assert produced(enemy, COMPACTED, data).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert produced(enemy, PLAIN, data).error_code == ErrorCode.MESSAGE_TOO_LARGE
    seen.check()


@pytest.mark.parametrize("codec", CODECS)
def test_who_sends_very_regular_data_is_no_enemy(stage: HostileStage, codec: Codec) -> None:
    data = bomb(codec, 15 * MIB)
    with (
        stage.meanwhile(f"zeros in {codec.name}") as seen,
        Enemy(stage.address, f"127.0.5.{30 + codec}") as client,
    ):
        for topic in (COMPACTED, PLAIN) * 3:
            assert produced(client, topic, data).error_code == ErrorCode.NONE
    seen.check()


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_megabyte_of_empty_frames_is_not_read_to_its_end(stage: HostileStage, codec: Codec) -> None:
    data = of_empty_frames(codec)
    with stage.meanwhile(f"frames of {codec.name}") as seen, Enemy(stage.address, "127.0.5.11") as enemy:
        for topic in (COMPACTED, PLAIN) * 5:
            assert produced(enemy, topic, data).error_code == ErrorCode.CORRUPT_MESSAGE
    seen.check()


@pytest.mark.parametrize("codec", Codec)
def test_records_that_cannot_be_decoded_are_not_stored(stage: HostileStage, codec: Codec) -> None:
    data = undecodable(codec)
    with stage.meanwhile(f"records in {codec.name}") as seen, Enemy(stage.address, "127.0.5.12") as enemy:
        for topic in (COMPACTED, PLAIN) * 10:
            assert produced(enemy, topic, data).error_code == ErrorCode.INVALID_RECORD
    seen.check()


def test_a_million_tiny_records_in_a_megabyte_are_looked_at_in_passing(stage: HostileStage) -> None:
    data = crowd(Codec.ZSTD, 1_000_000)
    with stage.meanwhile("tiny records") as seen, Enemy(stage.address, "127.0.5.9") as enemy:
        for _ in range(3):
            assert produced(enemy, COMPACTED, data).error_code == ErrorCode.NONE
    seen.check()


@pytest.mark.parametrize(
    ("batch", "validation"),
    [(crowd(Codec.ZSTD, 1_000_000), "full"), (bomb(Codec.ZSTD, 128 * MIB), "header")],
    ids=["crowds", "bombs"],
)
def test_offsets_by_time_are_looked_for_beside_the_loop(
    stage: HostileStage, batch: bytearray, validation: str
) -> None:
    """Three times eight partitions: decoded on the loop that was half a minute for everybody."""
    topic = f"times-{validation}"
    stage.make_topic(topic, 8, {"record.validation": validation})
    lying = newer_by_its_header(batch)
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=number, timestamp=-3 if number < 4 else NOW_MS + 500)
                    for number in range(8)
                ],
            )
        ],
    )
    with stage.meanwhile("times") as seen, Enemy(stage.address, "127.0.5.13") as enemy:
        for number in range(8):
            assert produced(enemy, topic, lying, number).error_code == ErrorCode.NONE
        waits_for_ends(enemy, topic, 8)
        connections = enemy.connect(3)
        enemy.send_each(connections, lambda _: frame_of(request, 7))
        answers = [decode_response(ListOffsetsResponse, 7, read_frame(each))[1] for each in connections]
    seen.check()
    assert seen.report["max_ms"] < 3_000, "once it was eight seconds at a time"
    told = [(each.error_code, each.offset) for answer in answers for each in answer.topics[0].partitions]
    assert told == ([(0, 0)] * 4 + [(0, -1 if validation == "full" else 0)] * 4) * 3


def waits_for_ends(enemy: Enemy, topic: str, count: int) -> None:
    """What is not synced yet is not found."""
    partitions = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in range(count)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=partitions)])
    (connection,) = enemy.connect()
    for _ in range(600):
        _, answer = decode_response(ListOffsetsResponse, 7, enemy.ask(request, 7, connection))
        if all(each.offset > 0 for each in answer.topics[0].partitions):
            return
        time.sleep(0.05)
    raise AssertionError("records were never committed")


@pytest.mark.parametrize(
    ("topic", "batch", "code"),
    [
        (PLAIN, with_wrong_checksum(), ErrorCode.CORRUPT_MESSAGE),
        (PLAIN, of_magic(0), ErrorCode.INVALID_RECORD),
        (PLAIN, of_magic(1), ErrorCode.INVALID_RECORD),
        (PLAIN, with_record_count(-1), ErrorCode.CORRUPT_MESSAGE),
        (PLAIN, with_record_count(2**31 - 1), ErrorCode.CORRUPT_MESSAGE),
        (COMPACTED, with_record_count(2), ErrorCode.INVALID_RECORD),
        (PLAIN, sound_batch()[:-1], ErrorCode.INVALID_RECORD),
        (PLAIN, b"", ErrorCode.INVALID_RECORD),
        (PLAIN, b"\xff" * 100, ErrorCode.CORRUPT_MESSAGE),
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
    assert stage.log_lines_about(enemy.host) == []


def test_bad_batches_with_acks_0_end_their_connections(stage: HostileStage) -> None:
    frame = frame_of(produce_request(PLAIN, with_wrong_checksum(), acks=0), PRODUCE_VERSION)
    with stage.meanwhile("acks 0") as seen, Enemy(stage.address, "127.0.5.21") as enemy:
        connections = enemy.connect(100)
        enemy.send_each(connections, lambda _: frame * 10)
        assert closed_by_broker(connections) == 100
    seen.check()
    told_once(stage, enemy, "acks 0")
