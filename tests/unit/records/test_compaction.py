"""Taking a batch apart and putting the rest together, as compaction does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.model.errors import CorruptBatchError, InvalidRecordError
from distributedlog.records.batch import HEADER_BYTES, check_batch, read_header
from distributedlog.records.compression import Codec
from distributedlog.records.record import (
    Record,
    RecordSpan,
    decode_batch,
    decompress_records,
    encode_batch,
    find_record_spans,
    rebuild_batch,
)
from tests.unit.records.strategies import (
    LIMITS,
    codecs,
    int64s,
    numbered,
    record_lists,
    some_records,
    thorough,
)


def opened(batch: bytearray) -> tuple[bytes, list[RecordSpan]]:
    header = read_header(batch)
    section = bytes(decompress_records(batch, 0, header, LIMITS))
    return section, find_record_spans(section, header)


def kept(section: bytes, spans: list[RecordSpan]) -> bytes:
    return b"".join(section[span.start : span.end] for span in spans)


@thorough
@given(record_lists, codecs)
def test_spans_say_what_the_records_say(these: list[Record], codec: Codec) -> None:
    batch = encode_batch(these, codec=codec, base_offset=50)
    section, spans = opened(batch)
    records = decode_batch(batch, limits=LIMITS)
    assert [50 + span.offset_delta for span in spans] == [record.offset for record in records]
    assert [span.timestamp_ms for span in spans] == [record.timestamp_ms for record in records]
    assert [span.key for span in spans] == [record.key for record in records]
    assert [span.has_value for span in spans] == [record.value is not None for record in records]
    assert kept(section, spans) == section


@thorough
@given(record_lists, codecs, st.data(), st.one_of(st.none(), int64s))
def test_what_is_kept_reads_as_before(
    these: list[Record], codec: Codec, data: st.DataObject, horizon_ms: int | None
) -> None:
    batch = encode_batch(these, codec=codec, base_offset=50, producer_id=4, producer_epoch=1, base_sequence=9)
    section, spans = opened(batch)
    choice = data.draw(st.lists(st.booleans(), min_size=len(spans), max_size=len(spans)))
    left = [span for span, keep in zip(spans, choice, strict=True) if keep]
    before = read_header(batch)
    rebuilt = rebuild_batch(before, kept(section, left), len(left), delete_horizon_ms=horizon_ms)

    header = check_batch(rebuilt, limits=LIMITS)
    records = [
        record for record, keep in zip(decode_batch(batch, limits=LIMITS), choice, strict=True) if keep
    ]
    assert decode_batch(rebuilt, limits=LIMITS) == records
    assert (header.base_offset, header.last_offset) == (before.base_offset, before.last_offset)
    assert (header.producer_id, header.producer_epoch) == (before.producer_id, before.producer_epoch)
    assert (header.base_sequence, header.last_sequence) == (before.base_sequence, before.last_sequence)
    if left:
        assert header.max_timestamp == max(record.timestamp_ms for record in records)
        assert header.delete_horizon_ms == horizon_ms


def test_a_batch_without_records_keeps_its_place_and_its_sequence() -> None:
    batch = encode_batch(
        some_records(5), codec=Codec.LZ4, base_offset=20, producer_id=1, producer_epoch=2, base_sequence=3,
        is_transactional=True, leader_epoch=6,
    )  # fmt: skip
    before = read_header(batch)
    empty = rebuild_batch(before, b"", 0, delete_horizon_ms=10)
    header = check_batch(empty, limits=LIMITS)
    assert len(empty) == HEADER_BYTES
    assert decode_batch(empty, limits=LIMITS) == []
    assert (header.codec, header.base_timestamp, header.has_delete_horizon) == (Codec.NONE, -1, False)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (20, 24, 6)
    assert (header.last_sequence, header.is_transactional) == (7, True)
    assert header.max_timestamp == before.max_timestamp


def test_a_delete_horizon_stays_through_the_next_compaction() -> None:
    batch = encode_batch(some_records(4), base_offset=0)
    section, spans = opened(batch)
    once = rebuild_batch(read_header(batch), section, 4, delete_horizon_ms=5_000)
    section, spans = opened(once)
    twice = rebuild_batch(read_header(once), kept(section, spans[1:]), 3)
    assert read_header(twice).delete_horizon_ms == 5_000
    assert decode_batch(twice, limits=LIMITS) == numbered(some_records(4))[1:]


def test_an_append_time_outlives_the_record_that_had_it() -> None:
    batch = encode_batch(some_records(3), log_append_time_ms=777)
    section, spans = opened(batch)
    rebuilt = rebuild_batch(read_header(batch), kept(section, spans[:1]), 1, delete_horizon_ms=9)
    assert read_header(rebuilt).max_timestamp == 777
    assert [record.timestamp_ms for record in decode_batch(rebuilt, limits=LIMITS)] == [777]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_may_change_its_codec(codec: Codec) -> None:
    batch = encode_batch(some_records(9), codec=Codec.GZIP)
    section, _ = opened(batch)
    rebuilt = rebuild_batch(read_header(batch), section, 9, codec=codec)
    assert read_header(rebuilt).codec == codec
    assert decode_batch(rebuilt, limits=LIMITS) == numbered(some_records(9))


def test_a_section_that_is_not_what_was_claimed_is_refused() -> None:
    batch = encode_batch(some_records(3))
    section, spans = opened(batch)
    for wrong, count in ((section, 2), (section[:-1], 3), (kept(section, [spans[1], spans[0]]), 2)):
        with pytest.raises(InvalidRecordError):
            rebuild_batch(read_header(batch), wrong, count)


def test_only_a_batch_that_is_all_there_is_opened() -> None:
    batch = encode_batch(some_records(3))
    with pytest.raises(CorruptBatchError, match="are there"):
        decompress_records(batch[:-1], 0, read_header(batch), LIMITS)
    assert isinstance(decompress_records(batch, 0, read_header(batch), LIMITS), memoryview)
