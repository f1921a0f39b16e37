"""Rows of Arrow, there and back."""

from typing import Any

import pyarrow as pa
import pytest

from distributedlog import TopicPartition
from distributedlog.client.partitioner import partition_of
from tests.compat.client.faces import Face
from tests.compat.client.reading import WAIT_S, read_partition, until

COUNT = 5000
NOW_MS = 1_760_000_000_000


def read_rows(face: Face, topic: str, wanted: int, **settings: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with face.consumer(auto_offset_reset="earliest", **settings) as consumer:
        consumer.assign([TopicPartition(topic, each) for each in range(3)])
        until(lambda: len(rows) >= wanted, lambda: rows.extend(consumer.poll_arrow(1000).to_pylist()))
    return rows


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_rows_come_back_as_they_were_sent(face: Face, topic: str, codec: str) -> None:
    table = pa.table(
        {
            "key": [f"key {number % 50}" for number in range(COUNT)],
            "value": [str(number) for number in range(COUNT)],
            "timestamp": pa.array([NOW_MS + number for number in range(COUNT)], pa.timestamp("ms", "UTC")),
        }
    )
    with face.producer(compression=codec, batch_size=20_000) as producer:
        assert producer.send_batch(topic, table).result(WAIT_S).rows == COUNT
    rows = read_rows(face, topic, COUNT)
    assert sorted(int(row["value"]) for row in rows) == list(range(COUNT))
    for row in rows:
        assert row["key"] == b"key %d" % (int(row["value"]) % 50)
        assert row["partition"] == partition_of(row["key"], 3)
        assert row["timestamp"].timestamp() * 1000 == NOW_MS + int(row["value"])
    for partition in range(3):
        numbers = [int(row["value"]) for row in rows if row["partition"] == partition]
        assert numbers == sorted(numbers), "in the order of the table"


def test_rows_are_records_like_others(face: Face, topic: str, name: str) -> None:
    rows = {"value": ["a", None, "c"], "key": [None, "k", ""], "partition": [1, 1, 1]}
    with face.producer() as producer:
        producer.send_batch(topic, pa.table(rows)).result(WAIT_S)
        producer.send(topic, "d", partition=1, headers={"h": "1"}).result(WAIT_S)
    found = read_partition(face, topic, 1, 4)
    assert [(each.value, each.key) for each in found] == [
        (b"a", None), (None, b"k"), (b"c", b""), (b"d", None)
    ]  # fmt: skip
    assert [row["offset"] for row in read_rows(face, topic, 4)] == [0, 1, 2, 3]


def test_rows_of_a_transaction_are_all_there_or_none(face: Face, topic: str, name: str) -> None:
    with face.producer(transactional_id=name) as producer:
        for text, is_kept in (("kept", True), ("dropped", False), ("kept, too", True)):
            producer.begin_transaction()
            producer.send_batch(topic, pa.table({"value": [text] * 100, "partition": [0] * 100}))
            (producer.commit_transaction if is_kept else producer.abort_transaction)()
    rows = read_rows(face, topic, 200, isolation_level="read_committed")
    assert [row["value"] for row in rows] == [b"kept"] * 100 + [b"kept, too"] * 100
