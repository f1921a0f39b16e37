"""Partitions that are assigned: places, times, pauses, and where reading begins."""

from typing import Any

import pytest

from distributedlog import Admin, TopicPartition
from distributedlog.model.errors import DlogError, InvalidRequestError, NoOffsetError, OffsetOutOfRangeError
from tests.compat.client.faces import Face
from tests.compat.client.reading import WAIT_S, read, read_partition, until

NOW_MS = 1_760_000_000_000
COUNT = 50


def values(records: Any) -> list[int]:
    return [int(each.value) for each in records]


@pytest.fixture
def first(face: Face, topic: str) -> TopicPartition:
    """A partition of fifty records in five batches, a second apart."""
    with face.producer(compression="lz4") as producer:
        for start in range(0, COUNT, 10):
            for number in range(start, start + 10):
                producer.send(topic, str(number), partition=0, timestamp_ms=NOW_MS + 1000 * number)
            producer.flush()
    return TopicPartition(topic, 0)


def test_a_consumer_reads_from_any_place(face: Face, first: TopicPartition) -> None:
    with face.consumer(max_poll_records=7) as consumer:
        consumer.assign([first])
        for start in (0, 13, COUNT - 1, 3):
            consumer.seek(first, start)
            assert consumer.position(first) == start
            assert values(read(consumer, COUNT - start)) == list(range(start, COUNT))
        consumer.seek_to_beginning(first)
        assert values(consumer.poll(60_000, max_records=2)) == [0, 1]
        assert consumer.position(first) == 2
        consumer.seek_to_end(first)
        assert consumer.position(first) == COUNT
        assert consumer.lag() == {first: 0}
        assert consumer.beginning_offsets([first]) == {first: 0}
        assert consumer.end_offsets([first]) == {first: COUNT}


@pytest.mark.parametrize(
    ("at_ms", "wanted"),
    [(NOW_MS - 1, 0), (NOW_MS, 0), (NOW_MS + 1, 1), (NOW_MS + 17_000, 17), (NOW_MS + 1_000 * COUNT, COUNT)],
)
def test_a_time_leads_to_a_place(face: Face, first: TopicPartition, at_ms: int, wanted: int) -> None:
    with face.consumer() as consumer:
        consumer.assign([first])
        consumer.seek_to_time(at_ms, first)
        assert consumer.position(first) == wanted


def test_a_paused_partition_gives_nothing_and_loses_nothing(face: Face, first: TopicPartition) -> None:
    second = TopicPartition(first.topic, 1)
    with face.producer() as producer:
        for number in range(10):
            producer.send(first.topic, str(100 + number), partition=1)
    with face.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([first, second])
        consumer.pause(first)
        assert consumer.paused == {first}
        assert values(read(consumer, 10)) == list(range(100, 110))
        assert consumer.poll(100) == []
        consumer.resume(first)
        assert values(read(consumer, COUNT)) == list(range(COUNT))


def test_iteration_gives_one_record_after_another(face: Face, first: TopicPartition) -> None:
    with face.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([first])
        assert values(next(consumer) for _ in range(COUNT)) == list(range(COUNT))


def test_what_comes_later_is_waited_for(face: Face, topic: str) -> None:
    place = TopicPartition(topic, 2)
    with face.consumer(auto_offset_reset="latest") as consumer, face.producer() as producer:
        consumer.assign([place])
        assert consumer.position(place) == 0
        assert consumer.poll(50) == []
        producer.send(topic, "1", partition=2).result(WAIT_S)
        assert values(read(consumer, 1)) == [1]


@pytest.fixture
def trimmed(first: TopicPartition, admin: Admin) -> TopicPartition:
    """The same without its first twenty records."""
    assert admin.delete_records({first: 20}) == {first: 20}
    return first


def test_a_place_that_is_not_there_any_more_is_reset(face: Face, trimmed: TopicPartition) -> None:
    for reset, wanted in (("earliest", 20), ("latest", COUNT), ("by_duration:P30000D", 20)):
        with face.consumer(auto_offset_reset=reset) as consumer:
            consumer.assign([trimmed])
            consumer.seek(trimmed, 5)
            until(lambda: consumer.position(trimmed) >= wanted, lambda: consumer.poll(200))  # noqa: B023
    assert values(read_partition(face, *trimmed, COUNT - 20)) == list(range(20, COUNT))
    with face.consumer(auto_offset_reset="none") as consumer:
        consumer.assign([trimmed])
        with pytest.raises(NoOffsetError):
            consumer.poll(60_000)
        consumer.seek(trimmed, 5)
        with pytest.raises(OffsetOutOfRangeError):
            consumer.poll(60_000)
        consumer.seek(trimmed, 30)
        assert values(read(consumer, 20)) == list(range(30, COUNT))


def test_wrong_use_is_told(face: Face, topic: str) -> None:
    with face.consumer() as consumer:
        with pytest.raises(InvalidRequestError, match="subscribe"):
            consumer.poll()
        consumer.assign([TopicPartition(topic, 0)])
        with pytest.raises(InvalidRequestError, match="not assigned"):
            consumer.seek(TopicPartition(topic, 1), 0)
        with pytest.raises(DlogError, match="group_id"):
            consumer.commit()
