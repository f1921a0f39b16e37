"""Messages of 32 MB (DLOG_SOAK=1: 64 MB), through clients as people have them, where they are allowed.

What one byte more than allowed comes to is told by the broker in Kafka's words, and costs it nothing.
"""

import asyncio
import hashlib
import os
import random
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from distributedlog.client.admin.admin import Admin, NewTopic
from distributedlog.client.consumer import Consumer as OurConsumer
from distributedlog.client.fetcher import FetchOptions
from distributedlog.client.offset_specs import BEGINNING
from distributedlog.client.options import ClientOptions
from distributedlog.client.producer import Producer as OurProducer
from distributedlog.client.producer import ProducerOptions
from distributedlog.model.config import MIB
from distributedlog.model.errors import DlogError, RecordTooLargeError
from distributedlog.model.ids import TopicPartition as OffsetSpec
from distributedlog.records.record import Record
from tests.system.hostile_stage import peak_mb, reset_peak
from tests.system.server_process import ServerProcess

MESSAGE_BYTES = (64 if os.environ.get("DLOG_SOAK") else 32) * MIB
BATCH_BYTES_MAX = MESSAGE_BYTES + 1024
TOPIC = "large"
RSS_GROWTH_MB_MAX = 4 * MESSAGE_BYTES / MIB
"""A frame, which goes to the file as it is, and the next one; an answer is sent from the file."""


async def make_topic(address: str) -> None:
    async with Admin.connect(address) as admin:
        await admin.create_topic(NewTopic(TOPIC, 1, 1, {"max.message.bytes": str(BATCH_BYTES_MAX)}))


def digest(data: bytes | None) -> str:
    return hashlib.blake2b(data or b"").hexdigest()


def test_large_messages_go_through_librdkafka_and_through_our_client(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, {}) as node:
        assert node.process is not None
        asyncio.run(make_topic(node.facts["client"]))
        pid = node.process.pid
        reset_peak(pid)
        before_mb = peak_mb(pid)
        first, second = (random.Random(seed).randbytes(MESSAGE_BYTES) for seed in (1, 2))
        produce_with_librdkafka(node.facts["client"], first)
        asyncio.run(produce_with_ours(node.facts["client"], second))
        assert asyncio.run(consume_with_ours(node.facts["client"])) == [digest(first), digest(second)]
        assert consume_with_librdkafka(node.facts["client"]) == [digest(first), digest(second)]
        assert peak_mb(pid) - before_mb <= RSS_GROWTH_MB_MAX
        asyncio.run(one_byte_too_many(node.facts["client"]))
        assert node.stop() == 0
    assert "Traceback" not in node.log


def produce_with_librdkafka(address: str, value: bytes) -> None:
    errors: list[KafkaError | None] = []
    producer = Producer(
        {"bootstrap.servers": address, "message.max.bytes": BATCH_BYTES_MAX, "linger.ms": 0, "acks": "all"}
    )
    producer.produce(TOPIC, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None]


def consume_with_librdkafka(address: str) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "large",
            "fetch.message.max.bytes": BATCH_BYTES_MAX,
            "fetch.max.bytes": BATCH_BYTES_MAX,
            "receive.message.max.bytes": BATCH_BYTES_MAX + 4096,
        }
    )
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        found = [message for _ in range(2) if (message := consumer.poll(60)) is not None]
        assert all(message.error() is None for message in found)
        return [digest(message.value()) for message in found]
    finally:
        consumer.close()


PATIENT = ClientOptions(frame_bytes_max=2 * BATCH_BYTES_MAX)
LARGE = ProducerOptions(
    batch_bytes_max=BATCH_BYTES_MAX,
    request_bytes_max=BATCH_BYTES_MAX + 1024,
    buffer_bytes_max=2 * BATCH_BYTES_MAX,
)


async def produce_with_ours(address: str, value: bytes) -> None:
    async with Admin.connect(address, PATIENT) as admin, OurProducer(admin.cluster, LARGE) as producer:
        delivery = await producer.send(TOPIC, Record(value))
        assert (await delivery.wait()).offset == 1


async def consume_with_ours(address: str) -> list[str]:
    options = FetchOptions(bytes_max=BATCH_BYTES_MAX, partition_bytes_max=BATCH_BYTES_MAX)
    found: list[str] = []
    async with Admin.connect(address, PATIENT) as admin, OurConsumer(admin.cluster, options) as consumer:
        await consumer.assign({OffsetSpec(TOPIC, 0): BEGINNING})
        while len(found) < 2:
            for fetched in await consumer.poll(30_000):
                found += [digest(record.value) for record in fetched.records]
    return found


async def one_byte_too_many(address: str) -> None:
    too_large = ProducerOptions(
        batch_bytes_max=2 * BATCH_BYTES_MAX, request_bytes_max=2 * BATCH_BYTES_MAX,
        buffer_bytes_max=2 * BATCH_BYTES_MAX,
    )  # fmt: skip
    async with Admin.connect(address, PATIENT) as admin:
        producer = OurProducer(admin.cluster, too_large)
        delivery = await producer.send(TOPIC, Record(bytes(BATCH_BYTES_MAX)))
        with pytest.raises(DlogError) as refused:
            await delivery.wait()
        assert isinstance(refused.value, RecordTooLargeError), refused.value
        await producer.close()
