"""One client against a broker: `python -m tests.bench.client_load CLIENT produce|consume|buffer BOOTSTRAP
TOPIC BYTES COUNT`.

Each with idempotence and acks=all, four partitions, its own defaults otherwise.  Prints the seconds from
the first record to the last that was acknowledged or read; of `buffer` the MiB by which the process has grown
when so many different records wait in it and none was sent.
"""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

PARTITIONS = 4


def ours_produce(bootstrap: str, topic: str, value: bytes, count: int) -> float:
    from distributedlog import Producer

    with Producer(bootstrap) as producer:
        producer.partitions_for(topic)
        started = time.perf_counter()
        for number in range(count):
            producer.send(topic, value, partition=number % PARTITIONS)
        producer.flush()
        assert producer.metrics()["records_delivered"] == count
        return time.perf_counter() - started


def ours_consume(bootstrap: str, topic: str, value: bytes, count: int) -> float:
    from distributedlog import Consumer, TopicPartition

    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, each) for each in range(PARTITIONS)])
        read, started = 0, time.perf_counter()
        while read < count:
            read += len(consumer.poll(1000))
        return time.perf_counter() - started


def arrow_produce(bootstrap: str, topic: str, value: bytes, count: int) -> float:
    import pyarrow as pa

    from distributedlog import Producer

    rows = pa.table({"value": pa.array([value] * count, pa.binary())})
    with Producer(bootstrap) as producer:
        producer.send_batch(topic, rows.slice(0, 0)).result()  # its imports are not what is measured
        started = time.perf_counter()
        assert producer.send_batch(topic, rows).result().rows == count
        return time.perf_counter() - started


def arrow_consume(bootstrap: str, topic: str, value: bytes, count: int) -> float:
    from distributedlog import Consumer, TopicPartition

    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, each) for each in range(PARTITIONS)])
        read = consumer.poll_arrow(0).num_rows  # its imports are not what is measured
        assert read == 0
        started = time.perf_counter()
        while read < count:
            read += consumer.poll_arrow(1000).num_rows
        return time.perf_counter() - started


def confluent_produce(bootstrap: str, topic: str, value: bytes, count: int) -> float:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.list_topics(topic, 60)
    started = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.01)
    assert producer.flush(60) == 0
    return time.perf_counter() - started


def confluent_consume(bootstrap: str, topic: str, value: bytes, count: int) -> float:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
    read, started = 0, time.perf_counter()
    while read < count:
        read += len(consumer.consume(500, 1.0))
    seconds = time.perf_counter() - started
    consumer.close()
    return seconds


async def _aiokafka_produce(bootstrap: str, topic: str, value: bytes, count: int) -> float:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
    await producer.start()
    started = time.perf_counter()
    for number in range(count):
        last = await producer.send(topic, value, partition=number % PARTITIONS)
    await producer.flush()
    await last
    seconds = time.perf_counter() - started
    await producer.stop()
    return seconds


async def _aiokafka_consume(bootstrap: str, topic: str, value: bytes, count: int) -> float:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    consumer.assign([TopicPartition(topic, each) for each in range(PARTITIONS)])
    read, started = 0, time.perf_counter()
    while read < count:
        found = await consumer.getmany(timeout_ms=1000)
        read += sum(map(len, found.values()))
    seconds = time.perf_counter() - started
    await consumer.stop()
    return seconds


def aiokafka_produce(*arguments: Any) -> float:
    return asyncio.run(_aiokafka_produce(*arguments))


def aiokafka_consume(*arguments: Any) -> float:
    return asyncio.run(_aiokafka_consume(*arguments))


def kafka_python_produce(bootstrap: str, topic: str, value: bytes, count: int) -> float:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    producer.partitions_for(topic)
    started = time.perf_counter()
    for number in range(count):
        producer.send(topic, value, partition=number % PARTITIONS)
    producer.flush(120)
    seconds = time.perf_counter() - started
    producer.close()
    return seconds


def kafka_python_consume(bootstrap: str, topic: str, value: bytes, count: int) -> float:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, each) for each in range(PARTITIONS)])
    read, started = 0, time.perf_counter()
    while read < count:
        read += sum(map(len, consumer.poll(1000).values()))
    seconds = time.perf_counter() - started
    consumer.close()
    return seconds


def ours_buffer(bootstrap: str, topic: str, value: bytes, count: int) -> float:
    from distributedlog import Producer

    room = min(2 * count * (len(value) + 100), 2**31 - 1)  # all is in one batch of each partition
    producer = Producer(
        bootstrap, linger_ms=600_000, buffer_memory=room, max_request_size=room, batch_size=room
    )
    producer.partitions_for(topic)
    before = _resident_mib()
    for number in range(count):
        producer.send(topic, number.to_bytes(8, "big") + value[8:], partition=number % PARTITIONS)
    while producer.metrics()["buffered_bytes"] < count * len(value):
        time.sleep(0.01)
    return _resident_mib() - before


def confluent_buffer(_bootstrap: str, topic: str, value: bytes, count: int) -> float:
    from confluent_kafka import Producer

    settings = {"queue.buffering.max.messages": 2 * count, "queue.buffering.max.kbytes": 2_000_000}
    # Nobody listens there, so that all of it waits.
    producer = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **settings})
    before = _resident_mib()
    for number in range(count):
        producer.produce(topic, number.to_bytes(8, "big") + value[8:], partition=number % PARTITIONS)
    return _resident_mib() - before


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    client, what, bootstrap, topic, record_bytes, count = sys.argv[1:]
    measure = globals()[f"{client}_{what}"]
    print(measure(bootstrap, topic, os.urandom(int(record_bytes)), int(count)), flush=True)
    if what == "buffer":
        os._exit(0)  # what waits is for nobody
