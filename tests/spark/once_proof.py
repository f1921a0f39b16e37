"""What `once_kills` compares: the rows that a topic holds with those that its input says, one by one.

A batch writes, for each key that was there by its end, how many rows the key had and the offset of the last:
all of the result each time (output mode complete).  Where batches end is in the checkpoint.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import confluent_kafka

TIMEOUT_SECONDS = 60.0


class Row(NamedTuple):
    partition: int
    offset: int
    value: str
    key: str = ""


def read_topic(bootstrap: str, topic: str, partitions: int) -> list[Row]:
    """Returns all that is committed, in order within each partition."""
    settings = {
        "bootstrap.servers": bootstrap, "group.id": "proof", "enable.auto.commit": False, "log_level": 0,
        "enable.partition.eof": True, "isolation.level": "read_committed",
    }  # fmt: skip
    consumer = confluent_kafka.Consumer(settings)
    found: list[Row] = []
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, at, 0) for at in range(partitions)])
        left = set(range(partitions))
        while left:
            message = consumer.poll(TIMEOUT_SECONDS)
            assert message is not None, f"nothing came of {topic} within {TIMEOUT_SECONDS} s"
            error = message.error()
            if error is None:
                key, value = bytes(message.key() or b""), bytes(message.value() or b"")
                where = message.partition() or 0, message.offset() or 0
                found.append(Row(*where, value.decode(), key.decode()))
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                left.discard(message.partition() or 0)
    finally:
        consumer.close()
    return found


def expected_rows(source: Sequence[Row], batches: Sequence[Mapping[str, int]]) -> list[Counter[str]]:
    """Returns the rows of each batch."""
    expected: list[Counter[str]] = []
    for ends in batches:
        inside = [row for row in source if row.offset < ends.get(str(row.partition), 0)]
        counts = Counter(row.key for row in inside)
        last = {key: max(row.offset for row in inside if row.key == key) for key in counts}
        expected.append(Counter(f"{key} {counts[key]} {last[key]}" for key in counts))
    return expected


def compare(expected: Sequence[Counter[str]], found: Sequence[Row], seen: Sequence[Row]) -> None:
    """Raises if a row is missing, too many, or out of order; or if a reader saw one that is not there."""
    wanted = sum(expected, Counter[str]())
    have = Counter(row.value for row in found)
    missing, extra = wanted - have, have - wanted
    assert not missing, f"{missing.total()} rows are missing: {sorted(missing.items())[:5]}"
    assert not extra, f"{extra.total()} rows are too many: {sorted(extra.items())[:5]}"
    for key in {row.key for row in found}:
        counts = [int(row.value.split()[1]) for row in found if row.key == key]
        assert counts == sorted(counts), f"the counts of {key} are not in order: {counts}"
    there = {(row.partition, row.offset): row.value for row in found}
    strange = [row for row in seen if there.get((row.partition, row.offset)) != row.value]
    assert not strange, f"{len(strange)} rows were seen that are not there: {strange[:5]}"
    assert len(set(seen)) == len(seen), "a reader saw a row twice"
