"""What a producer sends is there, as it was sent, where it was told."""

import time
from typing import Any

import pytest

from distributedlog import NewTopic, RecordTooLargeError, TopicPartition
from distributedlog.client.partitioner import partition_of
from distributedlog.model.errors import ConfigError, DlogError, InvalidRecordError, UnknownTopicError
from distributedlog.records.record import Header
from tests.compat.client.faces import Face
from tests.compat.client.reading import WAIT_S, read_partition

NOW_MS = 1_760_000_000_000
LARGE = b"large and well compressible " * 10_000
RECORDS: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (b"value", b"key", []),
    (b"", b"", []),
    (None, b"tombstone", []),
    (None, None, []),
    (b"no key", None, [("a", b"1"), ("a", b"2"), ("null", None), ("empty", b""), ("\u00fcn\u00ef", b"\xff")]),
    (bytes(range(256)), bytes(range(255, -1, -1)), []),
    (LARGE, b"large", []),
    *((b"value %d" % number, b"%d" % (number % 7), []) for number in range(100)),
]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_keeps_keys_values_headers_and_timestamps(face: Face, topic: str, codec: str) -> None:
    with face.producer(compression=codec, linger_ms=20) as producer:
        sent = [
            producer.send(topic, value, key, partition=1, headers=headers, timestamp_ms=NOW_MS + number)
            for number, (value, key, headers) in enumerate(RECORDS)
        ]
        assert [each.result(WAIT_S)[:3] for each in sent] == [(topic, 1, at) for at in range(len(RECORDS))]
        assert producer.metrics()["records_delivered"] == len(RECORDS)
    found = read_partition(face, topic, 1, len(RECORDS))
    assert [(each.value, each.key, list(each.headers)) for each in found] == [
        (value, key, [Header(*header) for header in headers]) for value, key, headers in RECORDS
    ]
    assert [each.timestamp_ms for each in found] == [NOW_MS + number for number in range(len(RECORDS))]


@pytest.mark.parametrize(
    "settings",
    [
        {"acks": "all"},
        {"acks": "all", "enable_idempotence": False},
        {"acks": 1},
        {"acks": 0},
        {"acks": "all", "max_in_flight": 5, "batch_size": 200, "linger_ms": 0},
    ],
    ids=["idempotent", "all", "1", "0", "small-batches"],
)
def test_records_stay_in_order_whatever_is_acknowledged(
    face: Face, topic: str, settings: dict[str, Any]
) -> None:
    with face.producer(**settings) as producer:
        sent = [producer.send(topic, str(number), partition=0) for number in range(200)]
        offsets = [each.result(WAIT_S).offset for each in sent]
    assert offsets == ([-1] * 200 if settings["acks"] == 0 else list(range(200)))
    assert [int(each.value) for each in read_partition(face, topic, 0, 200)] == list(range(200))


def test_a_key_has_the_partition_that_kafka_s_own_clients_give_it(face: Face, topic: str) -> None:
    keys = [f"key {number}".encode() for number in range(50)]
    with face.producer() as producer:
        assert list(producer.partitions_for(topic)) == [0, 1, 2]
        placed = [producer.send(topic, b"v", key) for key in keys]
        assert [each.result(WAIT_S).partition for each in placed] == [partition_of(key, 3) for key in keys]


def test_what_serializers_make_is_sent_and_read(face: Face, topic: str) -> None:
    with face.producer(value_serializer=lambda number: b"%d" % number, key_serializer=str.encode) as producer:
        producer.send(topic, 7, "k", partition=0).result(WAIT_S)
    (found,) = read_partition(face, topic, 0, 1, value_deserializer=int, key_deserializer=bytes.decode)
    assert (found.value, found.key) == (7, "k")
    with face.producer() as producer, pytest.raises(InvalidRecordError, match="value_serializer"):
        producer.send(topic, 7)


def test_how_it_ended_is_told(face: Face, topic: str) -> None:
    told: list[Any] = []
    with face.producer() as producer:
        producer.send(topic, "x", partition=2, on_delivery=lambda *outcome: told.append(outcome))
        producer.flush()
    ((error, place),) = told
    assert error is None
    assert place[:3] == (topic, 2, 0)


def test_a_topic_is_made_on_first_use_only_where_that_is_wanted(face: Face, name: str) -> None:
    with (
        face.producer(allow_auto_create_topics=False, max_block_ms=2_000, default_api_timeout_ms=2_000) as no,
        pytest.raises(DlogError) as refused,
    ):
        no.send(name, "x")
    assert isinstance(refused.value, UnknownTopicError), refused.value
    with face.producer() as producer:
        assert producer.send(name, "x", partition=0).result(WAIT_S).offset == 0


def test_what_a_broker_refuses_is_told_by_name_and_the_producer_goes_on(face: Face, name: str) -> None:
    make_topic(face, NewTopic(name, 1, configs={"max.message.bytes": "2000"}))
    with face.producer() as producer:
        assert producer.send(name, b"x").result(WAIT_S).offset == 0
        with pytest.raises(RecordTooLargeError):
            producer.send(name, bytes(5000)).result(WAIT_S)
        assert producer.send(name, b"y").result(WAIT_S).offset == 1
        assert producer.metrics()["records_failed"] == 1
        with pytest.raises(RecordTooLargeError):
            producer.send(name, bytes(50_000_000)).result(WAIT_S)
    with pytest.raises(ConfigError, match="do you mean linger_ms"):
        face.producer(lingerms=1)


def test_a_partition_that_is_not_there_is_told(face: Face, topic: str) -> None:
    with face.producer(max_block_ms=5_000) as producer, pytest.raises(DlogError):
        producer.send(topic, b"x", partition=99).result(WAIT_S)


def test_a_broker_that_stamps_records_tells_the_time(face: Face, name: str) -> None:
    make_topic(face, NewTopic(name, 1, configs={"message.timestamp.type": "LogAppendTime"}))
    before_ms = int(time.time() * 1000)
    with face.producer() as producer:
        stamped_ms = producer.send(name, b"x", timestamp_ms=5).result(WAIT_S).timestamp_ms
    assert before_ms - 5_000 <= stamped_ms <= int(time.time() * 1000) + 5_000
    (found,) = read_partition(face, name, 0, 1)
    assert found.timestamp_ms == stamped_ms


def test_a_timestamp_is_set_where_none_is_given(face: Face, topic: str) -> None:
    before_ms = int(time.time() * 1000)
    with face.producer() as producer:
        place = producer.send(topic, b"x", partition=0).result(WAIT_S)
    assert place.timestamp_ms == -1
    (found,) = read_partition(face, topic, 0, 1)
    assert before_ms <= found.timestamp_ms <= int(time.time() * 1000)


def make_topic(face: Face, topic: NewTopic) -> None:
    with face.admin() as admin:
        admin.create_topic(topic)
        admin.list_offsets({TopicPartition(topic.name, each): -1 for each in range(topic.partitions)})
