"""Every framing is read, every bound is held, and damage is always called damage."""

import gzip
import tracemalloc

import cramjam
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.model.errors import (
    ConfigError,
    CorruptBatchError,
    DlogError,
    RecordTooLargeError,
    UnsupportedCompressionError,
)
from distributedlog.records.codecs import FRAMES_MAX, zstd
from distributedlog.records.compression import Codec, compress, decompress
from tests.unit.records.strategies import brief, codecs, thorough

MIB = 1024 * 1024
COMPRESSING = [codec for codec in Codec if codec != Codec.NONE]
TEXT = b"the log is the truth " * 9000  # several of snappy's and lz4's blocks


@thorough
@given(codecs, st.binary(max_size=2000), st.integers(1, 60))
def test_what_is_compressed_comes_back(codec: Codec, data: bytes, times: int) -> None:
    whole = data * times
    assert bytes(decompress(codec, compress(codec, whole), len(whole))) == whole


@pytest.mark.parametrize("codec", COMPRESSING)
def test_views_and_byte_arrays_are_read_like_bytes(codec: Codec) -> None:
    packed = bytes(compress(codec, memoryview(bytearray(TEXT))))
    assert len(packed) < len(TEXT) // 10
    assert bytes(decompress(codec, memoryview(b"." + packed)[1:], len(TEXT))) == TEXT
    assert bytes(decompress(codec, bytearray(packed), len(TEXT))) == TEXT


def xerial(*blocks: bytes) -> bytes:
    packed = [bytes(cramjam.snappy.compress_raw(block)) for block in blocks]
    stream = b"".join(len(block).to_bytes(4, "big") + block for block in packed)
    return b"\x82SNAPPY\0" + bytes([0, 0, 0, 1, 0, 0, 0, 1]) + stream


GZIP_WITH_NAME = b"\x1f\x8b\x08\x08\x01\x02\x03\x04\x00\x03name\0"
Zstd = zstd.CompressionParameter

FRAMINGS = {
    "gzip as one member": (Codec.GZIP, gzip.compress(TEXT)),
    "gzip with a name and a time": (Codec.GZIP, GZIP_WITH_NAME + gzip.compress(TEXT)[10:]),
    "gzip in two members": (Codec.GZIP, gzip.compress(TEXT[:5000]) + gzip.compress(TEXT[5000:])),
    "gzip with an empty member": (Codec.GZIP, gzip.compress(TEXT) + gzip.compress(b"")),
    "snappy as one raw block": (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))),
    "snappy in one xerial block": (Codec.SNAPPY, xerial(TEXT)),
    "snappy in uneven xerial blocks": (Codec.SNAPPY, xerial(TEXT[:1], b"", TEXT[1:50_000], TEXT[50_000:])),
    "snappy in two xerial streams": (Codec.SNAPPY, xerial(TEXT[:99]) + xerial(TEXT[99:])),
    "lz4 in linked blocks": (Codec.LZ4, lz4.frame.compress(TEXT, block_linked=True)),
    "lz4 with its content size": (Codec.LZ4, lz4.frame.compress(TEXT, store_size=True)),
    "lz4 without its content size": (Codec.LZ4, lz4.frame.compress(TEXT, store_size=False)),
    "lz4 with checksums": (Codec.LZ4, lz4.frame.compress(TEXT, content_checksum=True, block_checksum=True)),
    "lz4 in 4 MiB blocks": (Codec.LZ4, lz4.frame.compress(TEXT, block_size=lz4.frame.BLOCKSIZE_MAX4MB)),
    "lz4 in two frames": (Codec.LZ4, lz4.frame.compress(TEXT[:7]) + lz4.frame.compress(TEXT[7:])),
    "zstd with its content size": (Codec.ZSTD, zstd.compress(TEXT)),
    "zstd without its content size": (Codec.ZSTD, zstd.compress(TEXT, options={Zstd.content_size_flag: 0})),
    "zstd with a checksum": (Codec.ZSTD, zstd.compress(TEXT, options={Zstd.checksum_flag: 1})),
    "zstd in two frames": (Codec.ZSTD, zstd.compress(TEXT[:7]) + zstd.compress(TEXT[7:])),
    "zstd with a wide window": (Codec.ZSTD, zstd.compress(TEXT, options={Zstd.window_log: 27})),
}  # fmt: skip


@pytest.mark.parametrize("name", FRAMINGS)
def test_a_framing_that_clients_write_is_read(name: str) -> None:
    codec, packed = FRAMINGS[name]
    assert bytes(decompress(codec, packed, len(TEXT))) == TEXT
    with pytest.raises(RecordTooLargeError):
        decompress(codec, packed, len(TEXT) - 1)


@pytest.mark.parametrize("name", FRAMINGS)
def test_a_framing_cut_short_is_corrupt(name: str) -> None:
    codec, packed = FRAMINGS[name]
    for length in [*range(min(len(packed), 60)), len(packed) // 2, len(packed) - 1]:
        try:
            read = bytes(decompress(codec, packed[:length], len(TEXT)))
        except CorruptBatchError:
            continue
        assert "two" in name or "xerial" in name, "only what has several parts may end after one of them"
        assert TEXT.startswith(read)
        assert read != TEXT


@pytest.mark.parametrize("codec", COMPRESSING)
@brief
@given(noise=st.binary(max_size=200), at=st.integers(0, 10**6))
def test_damage_is_refused_or_bounded_but_never_breaks_out(codec: Codec, noise: bytes, at: int) -> None:
    packed = bytes(compress(codec, TEXT))
    at %= len(packed)
    for damaged in (
        noise,
        packed + noise,
        packed[:at] + noise,
        packed[:at] + noise + packed[at + len(noise) :],
    ):
        try:
            assert len(decompress(codec, damaged, 2 * len(TEXT))) <= 2 * len(TEXT)
        except DlogError:
            continue


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_takes_no_more_memory_than_its_bound(codec: Codec) -> None:
    packed = bytes(compress(codec, bytes(64 * MIB)))
    tracemalloc.start()
    try:
        with pytest.raises(RecordTooLargeError):
            decompress(codec, packed, 2 * MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * MIB


def test_a_snappy_length_that_cannot_be_is_refused_before_memory_is_taken() -> None:
    claim = b"\xff\xff\xff\xff\x0f" + b"\0" * 20  # 4 GiB in 25 bytes
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatchError, match="cannot hold"):
            decompress(Codec.SNAPPY, claim, 2**33)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MIB


def test_what_snappy_writes_is_the_stream_that_java_reads() -> None:
    packed = bytes(compress(Codec.SNAPPY, TEXT))
    assert packed[:16] == b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01"
    position, lengths = 16, []
    while position < len(packed):
        size = int.from_bytes(packed[position : position + 4], "big")
        lengths.append(cramjam.snappy.decompress_raw_len(packed[position + 4 : position + 4 + size]))
        position += 4 + size
    assert lengths == [32768] * (len(TEXT) // 32768) + [len(TEXT) % 32768]


def test_what_lz4_writes_has_independent_blocks_of_64_kib() -> None:
    info = lz4.frame.get_frame_info(compress(Codec.LZ4, TEXT))
    assert (info["block_linked"], info["block_size"]) == (False, 65536)


def test_what_gzip_writes_holds_no_time() -> None:
    assert bytes(compress(Codec.GZIP, TEXT))[4:8] == bytes(4)


@pytest.mark.parametrize(
    ("codec", "low", "high"), [(Codec.GZIP, 1, 9), (Codec.LZ4, 0, 17), (Codec.ZSTD, -5, 22)]
)
def test_levels_are_taken_and_checked(codec: Codec, low: int, high: int) -> None:
    fast, small = compress(codec, TEXT, low), compress(codec, TEXT, high)
    assert len(small) <= len(fast)
    assert bytes(decompress(codec, fast, len(TEXT))) == bytes(decompress(codec, small, len(TEXT))) == TEXT
    with pytest.raises(ConfigError, match="no level"):
        compress(codec, TEXT, high + 1)


def test_uncompressed_data_is_handed_on_as_it_is() -> None:
    view = memoryview(TEXT)
    assert compress(Codec.NONE, view) is view
    assert decompress(Codec.NONE, view, len(view)) is view
    with pytest.raises(RecordTooLargeError):
        decompress(Codec.NONE, view, len(view) - 1)


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(UnsupportedCompressionError):
        decompress(7, TEXT, len(TEXT))


EMPTY_FRAMES = {
    Codec.GZIP: gzip.compress(b""),
    Codec.LZ4: lz4.frame.compress(b""),
    Codec.ZSTD: zstd.compress(b""),
}


@pytest.mark.parametrize("codec", EMPTY_FRAMES)
def test_a_batch_of_tiny_frames_is_read_up_to_a_bound(codec: Codec) -> None:
    frame, last = EMPTY_FRAMES[codec], bytes(compress(codec, TEXT))
    assert bytes(decompress(codec, frame * (FRAMES_MAX - 1) + last, len(TEXT))) == TEXT
    with pytest.raises(CorruptBatchError, match="more than 1000 frames"):
        decompress(codec, frame * (MIB // len(frame)), MIB)


def test_a_batch_of_tiny_snappy_blocks_is_read_up_to_a_bound() -> None:
    assert bytes(decompress(Codec.SNAPPY, xerial(*[b"a"] * 1000), MIB)) == b"a" * 1000
    with pytest.raises(CorruptBatchError, match="blocks"):
        decompress(Codec.SNAPPY, xerial(*[b""] * 200_000), MIB)
