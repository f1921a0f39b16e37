"""What was acknowledged with acks=1 is within every end that is asked for next, by unmodified clients.

Clients' own suites do this: they write with their default acks and then delete records, or seek to the end.
Each story is told ROUNDS times, since a stale end would be so most of the time, and not always.
"""

import asyncio
import warnings
from typing import Any

import confluent_kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

with warnings.catch_warnings():  # kafka-python reads its schemas in a way that Python has deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

ROUNDS = 50
FIRST_MS = 1_700_000_000_000


def create(address: str, topic: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        future.result(30)
    return admin


def test_librdkafka_sees_what_it_has_written_and_deletes_it(broker: dict[str, Any]) -> None:
    topic, address = "end-librdkafka", broker["client"]
    admin = create(address, topic)
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "acks": "1", "linger.ms": 0})
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "end"})
    place = confluent_kafka.TopicPartition(topic, 0)
    stale: list[tuple[Any, ...]] = []
    for at in range(ROUNDS):
        producer.produce(topic, b"v", timestamp=FIRST_MS + at)
        assert producer.flush(30) == 0
        _, end = consumer.get_watermark_offsets(place, timeout=30, cached=False)
        asked = admin.list_offsets({place: OffsetSpec.max_timestamp()})  # type: ignore[no-untyped-call]
        newest = asked[place].result(30)
        by_time = consumer.offsets_for_times(
            [confluent_kafka.TopicPartition(topic, 0, FIRST_MS + at)], timeout=30
        )
        if (end, newest.offset, by_time[0].offset) != (at + 1, at, at):
            stale.append((at, end, newest.offset, by_time[0].offset))
    for at in range(ROUNDS, 2 * ROUNDS):
        producer.produce(topic, b"v", timestamp=FIRST_MS + at)
        assert producer.flush(30) == 0
        until = confluent_kafka.TopicPartition(topic, 0, at + 1)
        (deleted,) = admin.delete_records([until]).values()
        if deleted.result(30).low_watermark != at + 1:
            stale.append((at,))
    consumer.close()
    assert stale == []


def test_kafka_python_sees_what_it_has_written_and_deletes_it(broker: dict[str, Any]) -> None:
    topic, address = "end-kafka-python", broker["client"]
    create(address, topic)
    producer = kafka.KafkaProducer(bootstrap_servers=address, acks=1)
    consumer = kafka.KafkaConsumer(bootstrap_servers=address)
    admin = kafka.KafkaAdminClient(bootstrap_servers=address)
    place = kafka.TopicPartition(topic, 0)
    consumer.assign([place])
    stale: list[tuple[Any, ...]] = []
    for at in range(ROUNDS):
        producer.send(topic, b"v", timestamp_ms=FIRST_MS + at).get(30)
        end = consumer.end_offsets([place])[place]
        by_time = consumer.offsets_for_times({place: FIRST_MS + at})[place]
        consumer.seek_to_end(place)
        position = consumer.position(place)
        if (end, by_time.offset, position) != (at + 1, at, at + 1):
            stale.append((at, end, by_time.offset, position))
    for at in range(ROUNDS, 2 * ROUNDS):
        producer.send(topic, b"v").get(30)
        deleted = admin.delete_records({place: at + 1})
        if deleted[place]["low_watermark"] != at + 1:
            stale.append((at, deleted))
    producer.close()
    consumer.close()
    admin.close()
    assert stale == []


def test_aiokafka_sees_what_it_has_written(broker: dict[str, Any]) -> None:
    topic, address = "end-aiokafka", broker["client"]
    create(address, topic)

    async def run() -> list[tuple[Any, ...]]:
        producer = AIOKafkaProducer(bootstrap_servers=address, acks=1)
        consumer = AIOKafkaConsumer(bootstrap_servers=address)
        place = AioPartition(topic, 0)
        stale: list[tuple[Any, ...]] = []
        await producer.start()
        await consumer.start()
        consumer.assign([place])
        try:
            for at in range(ROUNDS):
                await producer.send_and_wait(topic, b"v", timestamp_ms=FIRST_MS + at)
                end = (await consumer.end_offsets([place]))[place]
                by_time = (await consumer.offsets_for_times({place: FIRST_MS + at}))[place]
                await consumer.seek_to_end(place)
                position = await consumer.position(place)
                if (end, by_time.offset, position) != (at + 1, at, at + 1):
                    stale.append((at, end, by_time.offset, position))
        finally:
            await consumer.stop()
            await producer.stop()
        return stale

    assert asyncio.run(run()) == []
