"""Records into batches: nothing lost, nothing twice, nothing out of order, whatever the broker says."""

from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.client.accumulator import NOBODY, Accumulator, Batch, Identity, estimated_bytes
from distributedlog.model.errors import InvalidRecordError, RecordTooLargeError
from distributedlog.model.ids import TopicPartition
from distributedlog.records.batch import read_header
from distributedlog.records.compression import Codec
from distributedlog.records.record import Header, Record, decode_batch, encode_batch

HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)
LINGER_MS = 10


def accumulator(
    batch_bytes: int = 200, identity: Identity = NOBODY, codec: Codec = Codec.NONE
) -> Accumulator:
    return Accumulator(
        batch_bytes_max=batch_bytes,
        linger_ms=LINGER_MS,
        request_bytes_max=1000,
        codec=codec,
        identity=identity,
    )


def add(into: Accumulator, *values: bytes, partition: TopicPartition = HERE, now_ms: int = 0) -> list[Batch]:
    return [into.add(partition, Record(value), now_ms, 777)[0] for value in values]


def test_records_share_a_batch_until_it_is_full() -> None:
    into = accumulator()
    batches = add(into, *[b"x" * 30] * 5)
    assert [batches.index(batch) for batch in batches] == [0, 0, 2, 2, 4]
    assert into.add(HERE, Record(b"y"), 0, 0) == (batches[-1], 1)


def test_a_run_joins_a_batch_that_has_room_for_all_of_it_and_begins_another_if_not() -> None:
    into = accumulator()
    first = add(into, b"x" * 30)[0]
    joined, at = into.add_run(HERE, [Record(b"a", timestamp_ms=1), Record(b"b", timestamp_ms=2)], 66, 0)
    assert (joined, at) == (first, 1)
    assert [each.value for each in first.records] == [b"x" * 30, b"a", b"b"]
    other, at = into.add_run(HERE, [Record(b"c", timestamp_ms=3)], 33, 0)
    assert other is not first
    assert at == 0
    assert into.buffered_bytes == 2 * 61 + 62 + 66 + 33


def test_a_lone_record_waits_for_its_linger_and_no_longer() -> None:
    into = accumulator()
    add(into, b"a", now_ms=100)
    assert into.ready(109) == []
    assert into.next_due_ms() == 110
    assert into.ready(110) == [HERE]


def test_a_batch_with_another_behind_it_does_not_linger_and_neither_does_a_flush() -> None:
    into = accumulator()
    add(into, b"a")
    assert into.ready(0, flushing=True) == [HERE]
    add(into, b"b" * 300)
    assert into.ready(0) == [HERE]


def test_one_batch_of_a_partition_is_under_way_at_a_time() -> None:
    into = accumulator()
    add(into, *[b"x" * 100] * 3)
    (batch,) = into.take(into.ready(0))
    assert into.ready(10**6) == []
    assert into.next_due_ms() is None
    into.succeed(batch)
    assert into.ready(0) == [HERE]


def test_a_retry_keeps_its_place_its_bytes_and_its_pause() -> None:
    into = accumulator(identity=Identity(9, 0))
    add(into, *[b"x" * 100] * 2)
    (batch,) = into.take([HERE])
    encoded = bytes(batch.encoded or b"")
    into.retry(batch, due_ms=50)
    into.change_identity(Identity(10, 0))
    assert into.ready(49, flushing=True) == []
    assert into.take(into.ready(50)) == [batch]
    assert bytes(batch.encoded or b"") == encoded
    assert batch.attempts == 2


def test_a_request_takes_no_more_than_fits() -> None:
    into = Accumulator(batch_bytes_max=500, linger_ms=0, request_bytes_max=1000)
    partitions = [TopicPartition("t", number) for number in range(3)]
    for partition in partitions:
        add(into, b"x" * 350, partition=partition)
    assert [batch.partition for batch in into.take(into.ready(0))] == partitions[:2]
    assert into.ready(0) == partitions[2:]


def test_a_record_that_no_request_holds_is_refused_at_once() -> None:
    into = accumulator()
    with pytest.raises(RecordTooLargeError, match="does not fit"):
        add(into, b"x" * 1000)
    assert into.is_empty


@pytest.mark.parametrize("record", [Record(cast(Any, "text")), Record(b"", timestamp_ms=cast(Any, "now"))])
def test_a_record_of_another_type_fails_its_batch_and_nothing_else(record: Record) -> None:
    into = accumulator()
    into.add(HERE, record, 0, 777)
    add(into, b"sound", partition=THERE)
    flawed, sound = into.take(into.ready(LINGER_MS))
    assert isinstance(flawed.flaw, InvalidRecordError)
    assert sound.flaw is None


def test_a_record_with_headers_that_no_reader_takes_is_refused() -> None:
    with pytest.raises(InvalidRecordError):
        estimated_bytes(Record(headers=(Header("h", b""),) * 100_001))


def test_a_record_without_a_time_gets_that_of_its_sending() -> None:
    into = accumulator()
    into.add(HERE, Record(b"a"), 0, 777)
    into.add(HERE, Record(b"b", timestamp_ms=5), 0, 778)
    (batch,) = into.take([HERE])
    assert batch.encoded is not None
    assert [record.timestamp_ms for record in decode_batch(batch.encoded)] == [777, 5]


def test_sequences_go_on_after_success_and_stay_after_a_sure_failure() -> None:
    into = accumulator(identity=Identity(9, 3))
    seen = []
    for outcome in (into.succeed, into.fail, into.succeed):
        add(into, b"a", b"b")
        (batch,) = into.take([HERE])
        header = read_header(batch.encoded or b"")
        seen.append((header.producer_id, header.producer_epoch, header.base_sequence))
        outcome(batch)
    assert seen == [(9, 3, 0), (9, 3, 2), (9, 3, 2)]


def test_under_another_identity_sequences_begin_again() -> None:
    into = accumulator(identity=Identity(9, 0))
    add(into, b"a")
    (first,) = into.take([HERE])
    into.change_identity(Identity(10, 0))
    into.succeed(first)
    add(into, b"b")
    (second,) = into.take([HERE])
    assert (second.identity.producer_id, second.base_sequence) == (10, 0)


def test_what_is_dropped_is_gone() -> None:
    into = accumulator()
    add(into, *[b"x" * 100] * 3)
    (under_way,) = into.take([HERE])
    assert len(into.drop(with_under_way=False)) == 2
    assert not into.is_empty
    assert into.drop(with_under_way=True) == [under_way]
    assert into.is_empty


def test_a_batch_that_cannot_be_encoded_says_so() -> None:
    into = accumulator()
    into.add(HERE, Record(b"a", timestamp_ms=2**70), 0, 0)
    (batch,) = into.take([HERE])
    assert batch.flaw is not None
    into.fail(batch)
    assert into.is_empty


@given(st.binary(max_size=50), st.none() | st.binary(max_size=50), st.lists(st.text(max_size=9), max_size=4))
def test_a_record_is_never_larger_than_estimated(value: bytes, key: bytes | None, names: list[str]) -> None:
    record = Record(value, key, tuple(Header(name, b"v" * 9) for name in names), 2**40)
    assert len(encode_batch([record])) <= 61 + estimated_bytes(record)


STEP = st.one_of(
    st.tuples(st.just("add"), st.sampled_from([HERE, THERE]), st.integers(0, 300)),
    st.tuples(st.sampled_from(["take", "succeed", "retry", "fail", "lose"]), st.just(HERE), st.just(0)),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(STEP, max_size=80))
def test_every_record_leaves_once_in_order_and_with_unbroken_sequences(
    steps: list[tuple[str, TopicPartition, int]],
) -> None:
    into = accumulator(identity=Identity(1, 0))
    added: dict[TopicPartition, list[bytes]] = {HERE: [], THERE: []}
    ended: dict[TopicPartition, list[bytes]] = {HERE: [], THERE: []}
    next_sequence: dict[tuple[TopicPartition, Identity], int] = {}
    under_way: list[Batch] = []
    now_ms = 0

    def take() -> None:
        for batch in into.take(into.ready(now_ms, flushing=True)):
            assert batch.partition not in {each.partition for each in under_way}
            expected = next_sequence.setdefault((batch.partition, batch.identity), 0)
            assert batch.base_sequence == expected
            assert batch.encoded is not None
            assert [r.value for r in decode_batch(batch.encoded)] == [r.value for r in batch.records]
            under_way.append(batch)

    def end(batch: Batch, *, is_written: bool) -> None:
        (into.succeed if is_written else into.fail)(batch)
        ended[batch.partition] += [record.value or b"" for record in batch.records]
        if is_written:
            next_sequence[batch.partition, batch.identity] += len(batch.records)

    for action, partition, size in steps:
        now_ms += 1
        if action == "add":
            value = b"%d:" % len(added[partition]) + b"x" * size
            added[partition].append(value)
            into.add(partition, Record(value), now_ms, 0)
        elif action == "take":
            take()
        elif under_way:
            batch = under_way.pop(0)
            if action == "retry":
                into.retry(batch, now_ms)
            elif action == "lose":
                end(batch, is_written=False)
                into.change_identity(Identity(into.identity.producer_id + 1, 0))
            else:
                end(batch, is_written=action == "succeed")
    while not into.is_empty:
        take()
        while under_way:
            end(under_way.pop(0), is_written=True)
    assert ended == added
    assert into.buffered_bytes == 0
