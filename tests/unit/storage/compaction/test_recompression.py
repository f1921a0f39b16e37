"""A topic with a compression of its own: what clients send is stored in it, the same records, other bytes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.model.config import MIB, LogConfig
from distributedlog.model.errors import CorruptBatchError, RecordTooLargeError
from distributedlog.model.limits import RecordLimits
from distributedlog.records.batch import read_header
from distributedlog.records.compression import Codec
from distributedlog.records.layout import Header
from distributedlog.records.record import Record, decode_batch, encode_batch
from distributedlog.storage.append import CODECS, AppendRules, Origin

NOW_MS = 1_700_000_000_000
NOTHING = RecordLimits()

texts = st.none() | st.binary(max_size=40)
headers = st.lists(st.builds(Header, st.text(max_size=4), texts), max_size=2).map(tuple)
records = st.lists(
    st.builds(Record, texts, texts, headers, st.integers(0, 2 * NOW_MS)), min_size=1, max_size=8
)


def rules(wanted: str, message_bytes_max: int = MIB) -> AppendRules:
    return AppendRules.of(LogConfig(compression_type=wanted, max_message_bytes=message_bytes_max), NOTHING)


@settings(max_examples=80, deadline=None)
@given(records, st.sampled_from(list(Codec)), st.sampled_from(sorted(CODECS)))
def test_the_records_are_the_same_and_so_is_all_but_their_form(
    given: list[Record], codec: Codec, wanted: str
) -> None:
    batch = encode_batch(given, codec=codec, producer_id=9, producer_epoch=2, base_sequence=5)
    before = read_header(batch)
    made = rules(wanted).recompress(bytearray(batch), Origin.CLIENT)
    after = read_header(made)
    assert after.codec is CODECS[wanted]
    assert decode_batch(made) == decode_batch(batch)
    same = before._replace(batch_length=after.batch_length, crc=after.crc, attributes=after.attributes)
    assert after == same
    rules("producer").place(made, 0, 0, NOW_MS, Origin.REPLICATION)


def test_what_has_the_compression_already_and_what_brokers_write_stays_as_it_is() -> None:
    batch = encode_batch([Record(b"v" * 100)], codec=Codec.LZ4)
    assert rules("lz4").recompress(bytearray(batch), Origin.CLIENT) == batch
    for origin in (Origin.COORDINATOR, Origin.REPLICATION):
        assert rules("gzip").recompress(batch, origin) is batch
    assert rules("producer").recompress(batch, Origin.CLIENT) is batch


def test_several_batches_become_several() -> None:
    both = encode_batch([Record(b"a")]) + encode_batch([Record(b"b")], codec=Codec.GZIP)
    made = rules("gzip").recompress(both, Origin.CLIENT)
    first = read_header(made).size
    assert [decode_batch(made, at)[0].value for at in (0, first)] == [b"a", b"b"]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_few_bytes_that_hold_a_world_are_refused(codec: Codec) -> None:
    bomb = encode_batch([Record(bytes(40 * MIB))], codec=codec)
    assert len(bomb) < MIB
    with pytest.raises(RecordTooLargeError):
        rules("uncompressed").recompress(bomb, Origin.CLIENT)


def test_what_is_too_large_before_or_after_is_refused() -> None:
    batch = encode_batch([Record(b"v" * 10_000)], codec=Codec.ZSTD)
    small = rules("uncompressed", 5_000)
    made = small.recompress(bytearray(batch), Origin.CLIENT)
    with pytest.raises(RecordTooLargeError):
        small.place(made, 0, 0, NOW_MS, Origin.CLIENT)
    with pytest.raises(RecordTooLargeError):
        rules("zstd", 5_000).recompress(encode_batch([Record(b"v" * 10_000)]), Origin.CLIENT)


def test_damage_is_seen_before_anything_is_opened() -> None:
    batch = encode_batch([Record(b"v" * 100)], codec=Codec.GZIP)
    batch[-1] ^= 1
    with pytest.raises(CorruptBatchError):
        rules("zstd").recompress(batch, Origin.CLIENT)
