"""librdkafka's producer writes what we read, and its consumer reads what we write.

Between the two stands the broker that librdkafka itself brings for tests, in this process and on a port of
its own: batches are put in and taken out as raw bytes.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import confluent_kafka
import pytest

from distributedlog.records.batch import scan
from distributedlog.records.compression import Codec
from distributedlog.records.record import Header, Record, decode_batch, encode_batch
from tests.compat.records import LIMITS, RECORDS
from tests.compat.wire import RawConnection

WAIT_S = 20.0


class Broker(NamedTuple):
    host: str
    port: int

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def connection(self) -> RawConnection:
        return RawConnection(self.host, self.port)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """Lives as long as the producer that it was started with."""
    owner = confluent_kafka.Producer({"test.mock.num.brokers": 1, "log_level": 0})
    (only,) = owner.list_topics(timeout=WAIT_S).brokers.values()
    yield Broker(only.host, only.port)
    assert owner.flush(WAIT_S) == 0
    del owner


def produce(broker: Broker, topic: str, codec: Codec, records: list[Record], **settings: object) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.address,
            "compression.type": codec.name.lower(),
            "linger.ms": 50,
            "message.max.bytes": 10_000_000,
            **settings,
        }
    )
    failures: list[object] = []
    for record in records:
        producer.produce(
            topic,
            value=record.value,
            key=record.key,
            headers=[(header.key, header.value) for header in record.headers],
            timestamp=record.timestamp_ms,
            partition=0,
            on_delivery=lambda error, _message: failures.append(error) if error else None,
        )
    assert producer.flush(WAIT_S) == 0
    assert failures == []


def consume(broker: Broker, topic: str, count: int) -> list[Record]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": topic,
            "check.crcs": True,
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        messages: list[Any] = []
        while len(messages) < count:
            polled = consumer.consume(count - len(messages), timeout=WAIT_S)
            assert polled, f"{len(messages)} of {count} records came within {WAIT_S} s"
            messages += polled
    finally:
        consumer.close()
    assert [message.error() for message in messages if message.error()] == []
    return [
        Record(
            message.value(),
            message.key(),
            tuple(Header(key, value) for key, value in message.headers() or []),
            message.timestamp()[1],
            message.offset(),
        )
        for message in messages
    ]


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_we_read_what_librdkafka_writes(broker: Broker, codec: Codec, idempotent: bool) -> None:
    topic = f"theirs-{codec.name}-{idempotent}"
    produce(broker, topic, codec, RECORDS, **{"enable.idempotence": idempotent})
    read: list[Record] = []
    codecs_seen = set()
    with broker.connection() as connection:
        while len(read) < len(RECORDS):
            log = connection.fetch(topic, 0, offset=len(read))
            result = scan(log)
            assert (result.end, result.reason) == (len(log), None)
            assert result.headers
            position = 0
            for header in result.headers:
                codecs_seen.add(header.codec)
                assert header.has_producer_id == idempotent
                read += decode_batch(log, position, limits=LIMITS)
                position += header.size
    assert read == RECORDS
    assert codec in codecs_seen  # librdkafka leaves a batch alone that would not get smaller


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_librdkafka_reads_what_we_write(broker: Broker, codec: Codec) -> None:
    topic = f"ours-{codec.name}"
    half = len(RECORDS) // 2
    with broker.connection() as connection:
        produce(broker, topic, Codec.NONE, RECORDS[:1])  # makes the topic
        connection.produce(topic, 0, bytes(encode_batch(RECORDS[1:half], codec=codec)))
        connection.produce(topic, 0, bytes(encode_batch(RECORDS[half:], codec=codec)))
    assert consume(broker, topic, len(RECORDS)) == RECORDS
