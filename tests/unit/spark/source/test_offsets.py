"""Positions as JSON: those of Spark's Kafka source, and back."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.model.errors import ConfigError
from distributedlog.model.ids import ZERO_UUID, TopicPartition, Uuid
from distributedlog.spark.source.offsets import (
    Positions,
    parse_by_partition,
    parse_partitions,
    parse_positions,
    positions_of,
)

ID = Uuid(bytes(range(16)))
NAMES = st.text("abcXYZ019._-", min_size=1, max_size=20).filter(lambda name: name not in (".", ".."))
PARTITIONS = st.builds(TopicPartition, NAMES, st.integers(0, 2**31 - 1))


@given(
    st.dictionaries(PARTITIONS, st.integers(-2, 2**63 - 1), max_size=8), st.binary(min_size=16, max_size=16)
)
def test_positions_survive_being_written(offsets: dict[TopicPartition, int], raw: bytes) -> None:
    ids = {each.topic: Uuid(raw) for each in offsets if Uuid(raw) != ZERO_UUID}
    written = json.dumps(Positions(offsets, ids).as_json())
    assert positions_of(json.loads(written)) == Positions(offsets, ids)


@given(
    st.dictionaries(PARTITIONS, st.integers(0, 100), min_size=2, max_size=8),
    st.randoms(use_true_random=False),
)
def test_the_same_positions_are_the_same_text_in_whatever_order_they_came(
    offsets: dict[TopicPartition, int], chance: random.Random
) -> None:
    shuffled = list(offsets.items())
    chance.shuffle(shuffled)
    assert json.dumps(Positions(dict(shuffled)).as_json()) == json.dumps(Positions(offsets).as_json())


def as_sparks_kafka_source_reads_it(text: str) -> dict[tuple[str, int], int]:
    """A map of maps, flattened: whoever has no partition is not in it."""
    return {
        (topic, int(partition)): int(offset)
        for topic, partitions in json.loads(text).items()
        for partition, offset in partitions.items()
    }


def test_what_we_journal_sparks_kafka_source_can_read() -> None:
    offsets = {TopicPartition("orders", 0): 23, TopicPartition("orders", 10): 5, TopicPartition("a", 1): 0}
    written = json.dumps(Positions(offsets, {"orders": ID}).as_json())
    assert as_sparks_kafka_source_reads_it(written) == {("orders", 0): 23, ("orders", 10): 5, ("a", 1): 0}
    assert list(json.loads(written)) == ["a", "orders", f"orders@{ID}"]
    assert list(json.loads(written)["orders"]) == ["0", "10"]


def test_what_sparks_kafka_source_journals_is_read() -> None:
    found = parse_positions('{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}', "startingOffsets")
    assert found.offsets == {
        TopicPartition("topicA", 0): 23,
        TopicPartition("topicA", 1): -1,
        TopicPartition("topicB", 0): -2,
    }
    assert not found.topic_ids


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "1", "null", "{", "earliest",
        '{"t":5}', '{"t":[0]}', '{"t":{"x":1}}', '{"t":{"-1":1}}', '{"t":{"0":"5"}}', '{"t":{"0":1.5}}',
        '{"t":{"0":true}}', '{"t":{"0":-3}}', '{"t":{"0":99999999999999999999}}', '{"t":{"99999999999":0}}',
        '{"no such":{"0":1}}', '{"t@x":{}}', '{"t@x":{"0":1}}', "{}", "[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_position_is_said_with_the_name_of_the_option(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^startingOffsets") as raised:
        parse_positions(text, "startingOffsets")
    assert len(str(raised.value)) < 500


def test_partitions_are_assigned_one_by_one() -> None:
    found = parse_partitions('{"b":[2,0],"a":[1]}', "assign")
    assert found == (TopicPartition("a", 1), TopicPartition("b", 0), TopicPartition("b", 2))
    for wrong in ("{}", '{"a":1}', '{"a":["x"]}', '{"a":[]}', '{"a":[-1]}', "a"):
        with pytest.raises(ConfigError, match=r"^assign"):
            parse_partitions(wrong, "assign")


def test_times_stand_beside_partitions_as_numbers_or_words() -> None:
    found = parse_by_partition('{"a":{"0":5,"1":"-10m"}}', "x", "e")
    assert found == {TopicPartition("a", 0): "5", TopicPartition("a", 1): "-10m"}
    for wrong in ('{"a":{"0":null}}', '{"a":[1]}', "{}"):
        with pytest.raises(ConfigError, match=r"^x "):
            parse_by_partition(wrong, "x", "e")
