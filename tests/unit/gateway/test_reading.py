"""Fetched bytes become the same records as a whole decode gives, a bounded slice at a time."""

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.gateway.budget import ByteBudget
from distributedlog.gateway.reading import (
    SECTION_BYTES_MAX,
    SLICE_RECORDS,
    ChunkReader,
)
from distributedlog.model.errors import CorruptBatchError, DlogError, InvalidRecordError, RecordTooLargeError
from distributedlog.protocol.messages.fetch import AbortedTransaction
from distributedlog.records.batch import read_header
from distributedlog.records.compression import Codec
from distributedlog.records.control import ControlType, EndMarker, encode_end_marker_batch
from distributedlog.records.record import Header, Record, encode_batch, finish_batch, rebuild_batch
from tests.unit.gateway.stage import turns_during

NOW_MS = 1_700_000_000_000
BUDGET_BYTES = 2 * SECTION_BYTES_MAX


class Reading:
    """One reader, read to its end."""

    def __init__(self, data: bytes, offset: int = 0, aborted: Iterable[AbortedTransaction] = ()) -> None:
        self.budget = ByteBudget(BUDGET_BYTES)
        self.threads = ThreadPoolExecutor(1)
        self.reader = ChunkReader(data, offset, aborted, self.budget, self.threads)
        self.slices: list[list[Record]] = []

    async def _read(self, bytes_max: int, records_max: int) -> None:
        while records := await self.reader.next(bytes_max, records_max):
            self.slices.append(records)

    def all(self, bytes_max: int = 10_000, records_max: int = SLICE_RECORDS) -> list[Record]:
        try:
            asyncio.run(self._read(bytes_max, records_max))
        finally:
            self.reader.close()
            self.threads.shutdown()
            assert self.budget.free_bytes == BUDGET_BYTES
        return [record for records in self.slices for record in records]


records = st.builds(
    Record,
    value=st.none() | st.binary(max_size=200),
    key=st.none() | st.binary(max_size=10),
    headers=st.lists(
        st.builds(Header, st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2
    ).map(tuple),
    timestamp_ms=st.integers(0, 2**62),
)
batches = st.lists(st.tuples(st.lists(records, min_size=1, max_size=8), st.sampled_from(Codec)), max_size=5)


@settings(deadline=None, max_examples=100)
@given(batches, st.integers(0, 40), st.integers(1, 500), st.integers(1, 10))
def test_slices_put_together_are_the_whole(
    written: list[tuple[list[Record], Codec]], offset: int, bytes_max: int, records_max: int
) -> None:
    data = bytearray()
    expected: list[Record] = []
    for group, codec in written:
        base = len(expected)
        data += encode_batch(group, base_offset=base, codec=codec)
        expected += [record._replace(offset=base + at) for at, record in enumerate(group)]
    reading = Reading(bytes(data), offset)
    assert reading.all(bytes_max, records_max) == expected[offset:]
    assert reading.reader.next_offset == max(offset, len(expected))
    for part in reading.slices:
        assert len(part) <= records_max
        assert len(part) == 1 or sum(len(record.value or b"") for record in part) <= bytes_max


def test_a_batch_of_many_records_is_decoded_step_by_step() -> None:
    many = [Record(b"", timestamp_ms=NOW_MS)] * (3 * SLICE_RECORDS)
    reading = Reading(bytes(encode_batch(many, codec=Codec.ZSTD)))
    assert len(reading.all(2**30, 2**30)) == len(many)
    assert [len(part) for part in reading.slices] == [SLICE_RECORDS] * 3


def test_the_loop_serves_others_while_records_are_passed_over() -> None:
    many = [Record(b"", timestamp_ms=NOW_MS)] * (10 * SLICE_RECORDS)

    async def story() -> None:
        with ThreadPoolExecutor(1) as threads:
            reader = ChunkReader(
                bytes(encode_batch(many)), len(many) - 1, (), ByteBudget(BUDGET_BYTES), threads
            )
            assert await turns_during(reader.next(1000)) >= 9
            assert reader.next_offset == len(many)

    asyncio.run(story())


def test_a_reader_that_is_closed_can_be_followed_by_another_from_where_it_was() -> None:
    async def story() -> None:
        data = bytes(encode_batch([Record(b"%d" % n) for n in range(10)], codec=Codec.LZ4))
        budget = ByteBudget(BUDGET_BYTES)
        with ThreadPoolExecutor(1) as threads:
            first = ChunkReader(data, 0, (), budget, threads)
            assert [record.offset for record in await first.next(1000, 4)] == [0, 1, 2, 3]
            assert budget.free_bytes < BUDGET_BYTES
            first.close()
            assert budget.free_bytes == BUDGET_BYTES
            assert await first.next(1000) == []
            second = ChunkReader(data, first.next_offset, (), budget, threads)
            assert [record.offset for record in await second.next(1000)] == [4, 5, 6, 7, 8, 9]
            second.close()

    asyncio.run(story())


def test_what_the_budget_does_not_allow_waits_for_its_turn() -> None:
    async def story() -> None:
        data = bytes(encode_batch([Record(b"v")], codec=Codec.GZIP))
        budget = ByteBudget(SECTION_BYTES_MAX)
        await budget.take(1)
        with ThreadPoolExecutor(1) as threads:
            reader = ChunkReader(data, 0, (), budget, threads)
            waiting = asyncio.create_task(reader.next(1000))
            for _ in range(10):
                await asyncio.sleep(0)
            assert not waiting.done()
            budget.give_back(1)
            assert [record.value for record in await waiting] == [b"v"]
            reader.close()
        assert budget.free_bytes == SECTION_BYTES_MAX

    asyncio.run(story())


def transaction(producer_id: int, base_offset: int, *values: bytes) -> bytearray:
    return encode_batch(
        [Record(value) for value in values],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


def marker(producer_id: int, base_offset: int, kind: ControlType) -> bytearray:
    return encode_end_marker_batch(
        EndMarker(kind, 0),
        producer_id=producer_id,
        producer_epoch=0,
        timestamp_ms=NOW_MS,
        base_offset=base_offset,
    )


def test_aborted_transactions_and_markers_are_passed_over() -> None:
    data = bytes(
        transaction(7, 0, b"aborted")
        + transaction(8, 1, b"committed")
        + encode_batch([Record(b"plain")], base_offset=2)
        + marker(7, 3, ControlType.ABORT)
        + transaction(7, 4, b"again")
        + marker(8, 5, ControlType.COMMIT)
        + marker(7, 6, ControlType.COMMIT)
    )
    reading = Reading(data, 0, [AbortedTransaction(producer_id=7, first_offset=0)])
    assert [record.value for record in reading.all()] == [b"committed", b"plain", b"again"]
    assert reading.reader.next_offset == 7
    everything = [b"aborted", b"committed", b"plain", b"again"]
    assert [record.value for record in Reading(data).all()] == everything


def test_a_batch_that_compaction_emptied_is_passed_over() -> None:
    header = read_header(encode_batch([Record(b"a"), Record(b"b")], base_offset=5))
    data = rebuild_batch(header, b"", 0) + encode_batch([Record(b"c")], base_offset=7)
    reading = Reading(bytes(data), 5)
    assert [record.offset for record in reading.all()] == [7]


def test_a_fetch_that_ends_within_a_batch_is_read_up_to_there() -> None:
    whole = encode_batch([Record(b"a")]) + encode_batch([Record(b"b")], base_offset=1)
    reading = Reading(bytes(whole[:-1]))
    assert [record.value for record in reading.all()] == [b"a"]
    assert reading.reader.next_offset == 1


def test_a_batch_that_does_not_come_whole_is_an_error() -> None:
    with pytest.raises(RecordTooLargeError, match="did not come whole"):
        Reading(bytes(encode_batch([Record(b"a")])[:-1])).all()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_damage_is_told_after_what_is_before_it(codec: Codec) -> None:
    damaged = encode_batch([Record(b"damaged")], base_offset=1, codec=codec)
    damaged[-1] ^= 1
    reading = Reading(bytes(encode_batch([Record(b"sound")], codec=codec) + damaged))
    with pytest.raises(CorruptBatchError):
        reading.all()
    assert [record.value for records in reading.slices for record in records] == [b"sound"]
    assert reading.reader.next_offset == 1


@settings(deadline=None, max_examples=100)
@given(st.binary(min_size=1, max_size=60), st.integers(0, 5), st.sampled_from(Codec))
def test_records_that_are_none_raise_nothing_but_our_errors(
    section: bytes, record_count: int, codec: Codec
) -> None:
    """The checksum is right, and what it covers is not."""
    header = read_header(encode_batch([Record(b"a")], codec=codec))._replace(record_count=record_count)
    data = finish_batch(bytearray(61) + section, header)
    try:
        found = Reading(bytes(data)).all()
    except DlogError:
        return
    assert len(found) <= record_count


def test_bytes_behind_the_last_record_are_told() -> None:
    header = read_header(encode_batch([Record(b"a")]))
    data = encode_batch([Record(b"a"), Record(b"b")])
    surplus = finish_batch(data, header)
    with pytest.raises(InvalidRecordError, match="follow the last record"):
        Reading(bytes(surplus)).all()


def test_a_batch_that_would_fill_the_memory_is_refused() -> None:
    bomb = encode_batch([Record(bytes(SECTION_BYTES_MAX))], codec=Codec.ZSTD)
    assert len(bomb) < SECTION_BYTES_MAX // 1000
    with pytest.raises(RecordTooLargeError):
        Reading(bytes(bomb)).all()
