"""What a batch may cost the thread that judges it, where its records must be opened."""

import tracemalloc
from random import Random

import pytest

from distributedlog.model.config import KIB, MIB, LogConfig, RecordLimits
from distributedlog.model.errors import InvalidRecordError, RecordTooLargeError, RejectedRecordsError
from distributedlog.records.batch import read_header
from distributedlog.records.compression import Codec
from distributedlog.records.record import Record, decompress_records, encode_batch, keyless_records
from distributedlog.storage.append import (
    KEYED_RECORDS_MAX,
    NAMED_RECORDS_MAX,
    OPENED_BYTES_MIN,
    PLAUSIBLE_BYTES_MIN,
    PLAUSIBLE_RATIO,
    AppendRules,
    Origin,
)

NOW_MS = 1_700_000_000_000
COMPACTED = LogConfig(cleanup_policy=("compact",), max_message_bytes=1 * MIB)
KEYED = Record(b"v", b"k", timestamp_ms=NOW_MS)
KEYLESS = Record(b"v", None, timestamp_ms=NOW_MS)
CODECS = [codec for codec in Codec if codec is not Codec.NONE]


def place(batch: bytearray, message_bytes_max: int = 1 * MIB) -> None:
    config = LogConfig(cleanup_policy=("compact",), max_message_bytes=message_bytes_max)
    AppendRules.of(config, RecordLimits()).place(batch, 0, 0, NOW_MS, Origin.CLIENT)


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_opens_to_more_than_a_message_could_hold_is_refused_at_little_cost(codec: Codec) -> None:
    batch = encode_batch([Record(bytes(20 * MIB), b"key", timestamp_ms=NOW_MS)], codec=codec)
    assert len(batch) < 1 * MIB
    tracemalloc.start()
    try:
        with pytest.raises(RecordTooLargeError, match="decompresses to more"):
            place(batch)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 2 * OPENED_BYTES_MIN + 1 * MIB, "in pieces and then joined at most"


@pytest.mark.parametrize("codec", CODECS)
def test_where_messages_may_be_larger_they_may_open_to_more(codec: Codec) -> None:
    random = Random(1)
    value = b"".join(random.randbytes(64) + bytes(1000) for _ in range(20_000))
    batch = encode_batch([Record(value, b"key", timestamp_ms=NOW_MS)], codec=codec)
    assert OPENED_BYTES_MIN < len(value) < PLAUSIBLE_RATIO * len(batch)
    place(bytearray(batch), 3 * MIB)
    with pytest.raises(RecordTooLargeError, match="decompresses to more"):
        AppendRules.of(COMPACTED, RecordLimits())._replace(batch_bytes_max=3 * MIB).place(
            batch, 0, 0, NOW_MS, Origin.CLIENT
        )


def test_a_few_bytes_that_open_to_many_are_opened_to_a_few_megabytes() -> None:
    bomb = encode_batch([Record(bytes(8 * MIB), b"key", timestamp_ms=NOW_MS)], codec=Codec.ZSTD)
    assert len(bomb) < 10 * KIB
    with pytest.raises(RecordTooLargeError, match=f"{PLAUSIBLE_BYTES_MIN}"):
        place(bomb)
    place(encode_batch([Record(bytes(3 * MIB), b"key", timestamp_ms=NOW_MS)], codec=Codec.ZSTD))


def test_more_records_than_any_client_batches_are_refused_unopened() -> None:
    batch = encode_batch([KEYED] * 10)
    batch[23:27] = (KEYED_RECORDS_MAX).to_bytes(4, "big")
    batch[57:61] = (KEYED_RECORDS_MAX + 1).to_bytes(4, "big")
    with pytest.raises(InvalidRecordError, match=f"{KEYED_RECORDS_MAX}"):
        place(batch)


def test_those_without_a_key_are_counted_and_the_first_of_them_named() -> None:
    batch = encode_batch([KEYED, KEYLESS] * 150, codec=Codec.LZ4)
    with pytest.raises(RejectedRecordsError, match="150 of the batch") as refused:
        place(batch)
    assert [at for at, _ in refused.value.records] == [2 * n + 1 for n in range(NAMED_RECORDS_MAX)]


def test_looking_for_keys_makes_nothing_of_the_records() -> None:
    batch = encode_batch([KEYED] * 50_000, codec=Codec.ZSTD)
    header = read_header(batch)
    section = decompress_records(batch, 0, header)
    tracemalloc.start()
    try:
        assert keyless_records(section, header, named_max=5) == (0, [])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100 * KIB


def test_records_that_do_not_fill_their_section_are_refused() -> None:
    batch = encode_batch([KEYED] * 3)
    header = read_header(batch)
    section = decompress_records(batch, 0, header)
    for lying in (header._replace(record_count=2), header._replace(record_count=4)):
        with pytest.raises(InvalidRecordError):
            keyless_records(section, lying, named_max=5)
