"""A client as people use it: `python -m tests.bench.broker_client produce|consume PORT TOPIC BYTES COUNT`.

confluent-kafka with its own defaults, which wait for acks=all; its queue is made deep enough that the program
need not wait for it.  Prints the seconds from the first record to the last that was acknowledged or read.
"""

import os
import sys
import time
from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

TIMEOUT_SECONDS: Final = 60.0
READ_AT_ONCE: Final = 10_000


def produce(port: int, topic: str, record_bytes: int, count: int) -> float:
    failures: list[object] = []

    def acknowledged(error: object, _: object) -> None:
        if error is not None:
            failures.append(error)

    bootstrap = f"127.0.0.1:{port}"
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "queue.buffering.max.kbytes": 2_000_000,
            "message.max.bytes": 1_048_588,
        }
    )
    value = os.urandom(record_bytes)
    producer.list_topics(topic, TIMEOUT_SECONDS)
    started = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=number % 4, on_delivery=acknowledged)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(TIMEOUT_SECONDS) == 0, "not all was acknowledged"
    assert not failures, failures[0]
    return time.perf_counter() - started


def consume(port: int, topic: str, record_bytes: int, count: int) -> float:
    bootstrap = f"127.0.0.1:{port}"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(4)])
    read = 0
    started = time.perf_counter()
    while read < count:
        messages = consumer.consume(READ_AT_ONCE, 1.0)
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
        read += len(messages)
        assert time.perf_counter() - started < TIMEOUT_SECONDS, f"only {read} of {count} records came"
    seconds = time.perf_counter() - started
    assert messages[-1].value() is not None
    assert len(messages[-1].value() or b"") == record_bytes
    consumer.close()
    return seconds


if __name__ == "__main__":
    work = {"produce": produce, "consume": consume}[sys.argv[1]]
    print(work(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))
