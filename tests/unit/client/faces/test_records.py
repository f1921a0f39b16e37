"""Records that have come and were not given out: none is lost, whatever deserializers do."""

import pytest

from distributedlog.client.faces.records import ConsumerRecord, Prefetched
from distributedlog.client.fetcher import Fetched
from distributedlog.model.errors import InvalidRecordError
from distributedlog.model.ids import TopicPartition
from distributedlog.records.record import Record

A, B, C = (TopicPartition("t", each) for each in range(3))


def fetched(partition: TopicPartition, *values: bytes) -> Fetched:
    records = [Record(value=value, timestamp_ms=0, offset=at) for at, value in enumerate(values)]
    end = len(records)
    return Fetched(partition, records, end, end, end, 0)


def test_a_chunk_that_cannot_be_deserialized_does_not_take_those_before_it_along() -> None:
    waiting = Prefetched(value_deserializer=int)
    waiting.add([fetched(A, b"1", b"2"), fetched(B, b"x"), fetched(C, b"3")])
    taken = waiting.take(500)
    assert [each.value for each in taken.records] == [1, 2]
    assert taken.positions == {A: 2}
    for _ in range(2):
        with pytest.raises(InvalidRecordError, match="offset 0"):
            waiting.take(500)
    waiting.drop([B])
    assert [each.value for each in waiting.take(500).records] == [3]


def test_paused_chunks_keep_their_place_before_one_that_cannot_be_deserialized() -> None:
    waiting = Prefetched(value_deserializer=int)
    waiting.add([fetched(C, b"3"), fetched(B, b"x")])
    with pytest.raises(InvalidRecordError):
        waiting.take(500, [C])
    assert [each.value for each in waiting.take(500).records] == [3]


def test_an_interrupt_takes_nothing() -> None:
    interrupts = [KeyboardInterrupt()]

    def read(data: bytes) -> int:
        if data == b"3" and interrupts:
            raise interrupts.pop()
        return int(data)

    waiting = Prefetched(value_deserializer=read)
    waiting.add([fetched(A, b"1", b"2"), fetched(B, b"3")])
    assert [each.value for each in waiting.take(1).records] == [1]
    with pytest.raises(KeyboardInterrupt):
        waiting.take(500)
    taken = waiting.take(500)
    assert [each.value for each in taken.records] == [2, 3]
    assert taken.positions == {A: 2, B: 1}


def test_records_that_come_with_their_place_are_given_out_as_they_are_piece_by_piece() -> None:
    made = tuple(ConsumerRecord("t", 0, at, 0, None, b"v") for at in (3, 4, 8))
    waiting = Prefetched()
    waiting.add([Fetched(A, [], 10, 10, 10, 0, placed=made), Fetched(B, [], 5, 10, 10, 0)])
    first, second = waiting.take(2), waiting.take(2)
    assert ([*first.records, *second.records], first.positions, second.positions) == (
        list(made),
        {A: 5},
        {A: 10, B: 5},
    )
    assert all(one is other for one, other in zip(made, [*first.records, *second.records], strict=True))
