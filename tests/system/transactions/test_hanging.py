"""A transaction that hangs is found and aborted by an administrator, and readers of committed records go on.

Brokers let none come about, so one is written into the log of a broker that does not run, as an earlier one
without verification would have left it: its coordinator has never heard of it.
"""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from distributedlog.client.admin.admin import NewTopic
from distributedlog.records.record import Record, encode_batch
from tests.bench.topics import make_topics
from tests.system.server_process import ServerProcess, dlog

TOPIC = "hanging"
PRODUCER_ID, PRODUCER_EPOCH = 4_711, 3
TIMEOUT_SECONDS = 60.0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path, {}) as node:
        yield node


def begin_unknown_transaction(log: Path, base_offset: int) -> None:
    batch = encode_batch(
        [Record(b"of nobody", timestamp_ms=int(time.time() * 1000))],
        producer_id=PRODUCER_ID,
        producer_epoch=PRODUCER_EPOCH,
        base_sequence=0,
        is_transactional=True,
        base_offset=base_offset,
        leader_epoch=0,
    )
    with log.open("ab") as file:
        file.write(batch)


def send(bootstrap: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    producer.produce(TOPIC, value, partition=0)
    assert producer.flush(TIMEOUT_SECONDS) == 0


def read_committed(bootstrap: str) -> tuple[list[bytes | None], int]:
    """Returns what is read up to the end of what is committed, and where that is."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found: list[bytes | None] = []
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        while True:
            message = consumer.poll(TIMEOUT_SECONDS)
            assert message is not None, "it has no end"
            error = message.error()
            if error is None:
                found.append(message.value())
                continue
            assert error.code() == KafkaError._PARTITION_EOF, error
            offset = message.offset()
            assert offset is not None
            return found, offset
    finally:
        consumer.close()


def txn(bootstrap: str, *arguments: str) -> list[dict[str, Any]]:
    ended = dlog("txn", *arguments, "--bootstrap", bootstrap, "-o", "json")
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_a_hanging_transaction_is_found_and_aborted(node: ServerProcess, tmp_path: Path) -> None:
    make_topics(node.facts["client"], NewTopic(TOPIC, partitions=1))
    send(node.facts["client"], b"before")
    node.stop(signal.SIGKILL)
    (log,) = (tmp_path / "data" / f"{TOPIC}-0").glob("*.log")
    begin_unknown_transaction(log, base_offset=1)
    bootstrap = node.restart()["client"]
    send(bootstrap, b"after")
    assert read_committed(bootstrap) == ([b"before"], 1), "readers stop at it"

    find = ("find-hanging", "--topic", TOPIC)
    assert txn(bootstrap, *find) == [], "it is not open for so long yet"
    (found,) = txn(bootstrap, *find, "--min-seconds", "0")
    assert found == {
        "type": "hanging_transaction",
        "topic": TOPIC,
        "partition": 0,
        "producer_id": PRODUCER_ID,
        "producer_epoch": PRODUCER_EPOCH,
        "start_offset": 1,
    }
    abort = ("abort", "--topic", TOPIC, "--partition", "0", "--yes", "--start-offset")
    elsewhere = dlog("txn", *abort, "2", "--bootstrap", bootstrap)
    assert elsewhere.returncode == 1
    assert "no open transaction begins at offset 2" in elsewhere.stderr
    assert txn(bootstrap, *abort, "1") == [{"type": "aborted", "topic": TOPIC, "partition": 0, "offset": 1}]
    assert txn(bootstrap, *find, "--min-seconds", "0") == []
    assert read_committed(bootstrap) == ([b"before", b"after"], 4), "the marker stands at 3"
    assert node.stop() == 0
