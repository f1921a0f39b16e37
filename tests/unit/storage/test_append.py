"""What a batch may cost the thread that judges it, where its records must be opened."""

import tracemalloc
from random import Random

import pytest

from distributedlog.model.config import KIB, MIB, LogConfig
from distributedlog.model.errors import InvalidRecordError, RecordTooLargeError, RejectedRecordsError
from distributedlog.model.limits import RecordLimits
from distributedlog.records.batch import read_header
from distributedlog.records.compression import Codec
from distributedlog.records.record import (
    Record,
    decompress_records,
    encode_batch,
    find_keyless_records,
    finish_batch,
)
from distributedlog.storage.append import (
    NAMED_RECORDS_MAX,
    OPENED_BYTES_MIN,
    OPENED_RECORDS_MAX,
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


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec is not Codec.SNAPPY])
def test_a_batch_that_opens_to_more_than_a_message_could_hold_is_refused_at_little_cost(codec: Codec) -> None:
    batch = encode_batch([Record(bytes(40 * MIB), b"key", timestamp_ms=NOW_MS)], codec=codec)
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
    value = b"".join(random.randbytes(64) + bytes(1000) for _ in range(40_000))
    batch = encode_batch([Record(value, b"key", timestamp_ms=NOW_MS)], codec=codec)
    assert len(value) > OPENED_BYTES_MIN
    place(bytearray(batch), 6 * MIB)
    with pytest.raises(RecordTooLargeError, match="decompresses to more"):
        AppendRules.of(COMPACTED, RecordLimits())._replace(batch_bytes_max=6 * MIB).place(
            batch, 0, 0, NOW_MS, Origin.CLIENT
        )


@pytest.mark.parametrize("codec", CODECS)
def test_very_regular_data_is_taken_however_few_bytes_it_comes_to(codec: Codec) -> None:
    """A producer of zeros fills its 16 KB with a thousand times as much."""
    batch = encode_batch([Record(bytes(15 * KIB), b"key", timestamp_ms=NOW_MS)] * KIB, codec=codec)
    if codec in (Codec.GZIP, Codec.ZSTD):
        assert len(batch) < 32 * KIB
    place(batch)


def test_more_records_than_any_client_batches_are_refused_unopened() -> None:
    batch = encode_batch([KEYED] * 10)
    batch[23:27] = (OPENED_RECORDS_MAX).to_bytes(4, "big")
    batch[57:61] = (OPENED_RECORDS_MAX + 1).to_bytes(4, "big")
    with pytest.raises(InvalidRecordError, match=f"{OPENED_RECORDS_MAX}"):
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
        assert find_keyless_records(section, header, named_max=5) == (0, [])
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
            find_keyless_records(section, lying, named_max=5)


@pytest.mark.parametrize("validation", ["full", "header"])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_records_that_cannot_be_decoded_are_refused_from_clients_unless_the_topic_takes_them(
    validation: str, codec: Codec
) -> None:
    sound = encode_batch([KEYLESS] * 3)
    header = read_header(sound)._replace(attributes=codec)
    cut = finish_batch(sound[:-1], header)
    rules = AppendRules.of(LogConfig(record_validation=validation), RecordLimits())
    rules.place(bytearray(cut), 0, 0, NOW_MS, Origin.COORDINATOR)
    if validation == "header":
        rules.place(cut, 0, 0, NOW_MS, Origin.CLIENT)
        return
    with pytest.raises(InvalidRecordError):
        rules.place(bytearray(cut), 0, 0, NOW_MS, Origin.CLIENT)
    rules.place(sound, 0, 0, NOW_MS, Origin.CLIENT)
