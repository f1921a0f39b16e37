"""Batches that come in whole: the same queue and the same life as those that grow record by record."""

import pyarrow as pa
import pytest

from distributedlog.client.accumulator import Accumulator, Batch, Identity
from distributedlog.model.errors import RecordTooLargeError
from distributedlog.model.ids import TopicPartition
from distributedlog.records.arrow_write import CutBatch, cut_rows
from distributedlog.records.batch import read_header
from distributedlog.records.compression import Codec
from distributedlog.records.record import Record, decode_batch

HERE = TopicPartition("t", 0)
ME = Identity(7, 1)


def _cut(*values: str) -> CutBatch:
    (cut,) = cut_rows(pa.record_batch({"value": list(values)}), batch_bytes_max=10_000)
    return cut


def _accumulator(codec: Codec = Codec.NONE) -> Accumulator:
    return Accumulator(
        batch_bytes_max=10_000, linger_ms=50, request_bytes_max=20_000, codec=codec, identity=ME
    )


def _values(batch: Batch) -> list[bytes | None]:
    assert batch.encoded is not None
    return [record.value for record in decode_batch(batch.encoded)]


def _take(accumulator: Accumulator, now_ms: int = 0) -> Batch:
    (batch,) = accumulator.take(accumulator.ready(now_ms))
    return batch


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_cut_batch_waits_for_nothing_and_takes_its_sequences(codec: Codec) -> None:
    accumulator = _accumulator(codec)
    accumulator.add_cut(HERE, _cut("a", "b"), 0)
    accumulator.add_cut(HERE, _cut("c"), 0)
    sequences = []
    for _ in range(2):
        batch = _take(accumulator)
        assert batch.encoded is not None
        header = read_header(batch.encoded)
        sequences.append((header.producer_id, header.producer_epoch, header.base_sequence))
        accumulator.succeed(batch)
    assert sequences == [(7, 1, 0), (7, 1, 2)]
    assert accumulator.is_empty


def test_no_record_joins_a_cut_batch() -> None:
    accumulator = _accumulator()
    accumulator.add_cut(HERE, _cut("a"), 0)
    batch, index = accumulator.add(HERE, Record(b"b"), 0, 0)
    assert (batch.cut, index, batch.record_count) == (None, 0, 1)


def test_a_batch_that_was_refused_for_its_size_comes_again_in_halves_and_in_order() -> None:
    accumulator = _accumulator()
    accumulator.add_cut(HERE, _cut("a", "b", "c", "d", "e"), 0)
    accumulator.add_cut(HERE, _cut("f"), 0)
    assert accumulator.split(_take(accumulator), 0)
    seen: list[bytes | None] = []
    while not accumulator.is_empty:
        batch = _take(accumulator)
        assert batch.base_sequence == len(seen)
        seen += _values(batch)
        accumulator.succeed(batch)
    assert seen == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_one_record_cannot_be_halved_nor_what_may_be_written_already() -> None:
    accumulator = _accumulator()
    accumulator.add_cut(HERE, _cut("a"), 0)
    single = _take(accumulator)
    assert not accumulator.split(single, 0)
    accumulator.fail(single)
    accumulator.add_cut(HERE, _cut("a", "b"), 0)
    doubtful = _take(accumulator)
    doubtful.is_doubtful = True
    assert not accumulator.split(doubtful, 0)
    accumulator.fail(doubtful)
    assert accumulator.is_empty


def test_a_batch_that_fits_no_request_is_refused() -> None:
    with pytest.raises(RecordTooLargeError, match="does not fit"):
        _accumulator().add_cut(HERE, CutBatch(bytearray(20_001), 1, 0, 0), 0)
