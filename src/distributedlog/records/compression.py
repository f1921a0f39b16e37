"""Compression of a batch's records, in every framing that Kafka's clients write.

| codec | we write | we read besides |
|---|---|---|
| gzip | one member, no time in its header | several members |
| snappy | xerial's stream: a header, then blocks of 32 KiB with their lengths | raw blocks; several streams |
| lz4 | one frame of independent 64 KiB blocks (Java reads no linked ones) | any frame, several frames |
| zstd | one frame with its content size | frames without it, several frames |

Decompression is bounded: output is made piece by piece and the piece that passes `bytes_max` raises
`RecordTooLargeError`, so that what a few bytes claim to hold costs nothing.  Lengths that the input
claims are compared with the bound, and with what the input could hold at all, before memory is taken.
Damaged input raises `CorruptBatchError`, never an error of the library below.
"""

import struct
import sys
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import cramjam
import lz4.frame

from distributedlog.model.buffers import Buffer
from distributedlog.model.errors import (
    ConfigError,
    CorruptBatchError,
    RecordTooLargeError,
    UnsupportedCompressionError,
)

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES = 32 * 1024
SNAPPY_RATIO_MAX = 22
"""A snappy copy of 3 bytes makes at most 64: no input expands further."""

GZIP_WINDOW_BITS = 31
ZSTD_WINDOW_LOG_MAX = 27
PIECE_BYTES_MIN = 64 * 1024

LEVELS: dict[Codec, tuple[int, int, int]] = {
    Codec.GZIP: (1, 9, -1),
    Codec.LZ4: (0, 17, 0),
    Codec.ZSTD: (-131072, 22, 3),
}
"""Lowest, highest and default level of the codecs that have levels."""


def compress(codec: Codec, data: Buffer, level: int | None = None) -> Buffer:
    """The compressed bytes; the data itself for `Codec.NONE`."""
    if codec == Codec.NONE:
        return data
    return _COMPRESSORS[codec](data, _checked_level(codec, level))


def decompress(codec: int, data: Buffer, bytes_max: int) -> Buffer:
    """The bytes that were compressed; the data itself for `Codec.NONE`."""
    if codec == Codec.NONE:
        if len(data) > bytes_max:
            raise _too_large(bytes_max)
        return data
    decompressor = _DECOMPRESSORS.get(codec)
    if decompressor is None:
        raise UnsupportedCompressionError(f"codec {codec} is not known; known are 0 to {max(Codec)}")
    return decompressor(data, bytes_max)


def _checked_level(codec: Codec, level: int | None) -> int:
    lowest, highest, default = LEVELS.get(codec, (0, 0, 0))
    if level is None or level == default:
        return default
    if not lowest <= level <= highest:
        raise ConfigError(f"{codec.name.lower()} has no level {level}; levels are {lowest} to {highest}")
    return level


def _too_large(bytes_max: int) -> RecordTooLargeError:
    return RecordTooLargeError(f"the batch decompresses to more than the {bytes_max} bytes that are allowed")


# --- gzip --------------------------------------------------------------------------------------


def _compress_gzip(data: Buffer, level: int) -> bytes:
    compressor = zlib.compressobj(level, zlib.DEFLATED, GZIP_WINDOW_BITS)
    return compressor.compress(data) + compressor.flush()


def _decompress_gzip(data: Buffer, bytes_max: int) -> bytes:
    pieces: list[bytes] = []
    room = bytes_max
    rest: Buffer = data
    while True:
        member = zlib.decompressobj(GZIP_WINDOW_BITS)
        try:
            piece = member.decompress(rest, room + 1)
        except zlib.error as error:
            raise CorruptBatchError(f"the batch's gzip data is damaged: {error}") from error
        pieces.append(piece)
        room -= len(piece)
        if room < 0:
            raise _too_large(bytes_max)
        if not member.eof:
            raise CorruptBatchError("the batch's gzip data is cut off")
        rest = member.unused_data
        if not rest:
            return b"".join(pieces) if len(pieces) > 1 else piece


# --- snappy ------------------------------------------------------------------------------------


def _compress_snappy(data: Buffer, level: int) -> bytes:
    view = memoryview(data)
    pieces: list[Any] = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES])
        pieces.append(len(block).to_bytes(4, "big"))
        pieces.append(block)
    return b"".join(pieces)


def _decompress_snappy(data: Buffer, bytes_max: int) -> bytearray:
    view = memoryview(data)
    blocks = _xerial_blocks(view) if view[:8] == XERIAL_MAGIC else [view]
    lengths = [_snappy_length(block, bytes_max) for block in blocks]
    total = sum(lengths)
    if total > bytes_max:
        raise _too_large(bytes_max)
    output = bytearray(total)
    with memoryview(output) as whole:
        start = 0
        for block, length in zip(blocks, lengths, strict=True):
            _decompress_snappy_block(block, whole[start : start + length])
            start += length
    return output


def _xerial_blocks(view: memoryview) -> list[memoryview]:
    blocks: list[memoryview] = []
    position, end = 0, len(view)
    while position < end:
        if view[position : position + 8] == XERIAL_MAGIC:
            position += len(XERIAL_HEADER)
            continue
        start = position + 4
        length = int.from_bytes(view[position:start], "big")
        if start + length > end:
            raise CorruptBatchError("the batch's snappy data is cut off")
        blocks.append(view[start : start + length])
        position = start + length
    if position != end:
        raise CorruptBatchError("the batch's snappy data is cut off in its header")
    return blocks


def _snappy_length(block: memoryview, bytes_max: int) -> int:
    if not block:
        raise CorruptBatchError("the batch's snappy data is cut off before its length")
    try:
        length = int(cramjam.snappy.decompress_raw_len(block))
    except cramjam.DecompressionError as error:
        raise CorruptBatchError(f"the batch's snappy data is damaged: {error}") from error
    if length > len(block) * SNAPPY_RATIO_MAX:
        raise CorruptBatchError(f"{len(block)} bytes of snappy data cannot hold the {length} they claim")
    if length > bytes_max:
        raise _too_large(bytes_max)
    return length


def _decompress_snappy_block(block: memoryview, target: memoryview) -> None:
    if not target:
        return
    try:
        written = cramjam.snappy.decompress_raw_into(block, target)
    except cramjam.DecompressionError as error:
        raise CorruptBatchError(f"the batch's snappy data is damaged: {error}") from error
    if written != len(target):
        raise CorruptBatchError(f"a snappy block held {written} bytes and not the {len(target)} it claimed")


# --- lz4 ---------------------------------------------------------------------------------------


def _compress_lz4(data: Buffer, level: int) -> bytes:
    frame: bytes = lz4.frame.compress(
        data,
        compression_level=level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return frame


def _decompress_lz4(data: Buffer, bytes_max: int) -> bytes:
    return _decompress_frames(data, bytes_max, lz4.frame.LZ4FrameDecompressor, RuntimeError, "lz4")


# --- zstd --------------------------------------------------------------------------------------


def _compress_zstd(data: Buffer, level: int) -> bytes:
    return zstd.compress(data, level)


def _decompress_zstd(data: Buffer, bytes_max: int) -> bytes:
    return _decompress_frames(data, bytes_max, _new_zstd_decompressor, zstd.ZstdError, "zstd")


def _new_zstd_decompressor() -> zstd.ZstdDecompressor:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG_MAX})


# --- frames ------------------------------------------------------------------------------------


def _decompress_frames(
    data: Buffer, bytes_max: int, new_decompressor: Callable[[], Any], failure: type[Exception], name: str
) -> bytes:
    """Frame after frame, in pieces, of a decompressor with `eof`, `needs_input` and `unused_data`."""
    pieces: list[bytes] = []
    room = bytes_max
    rest: Buffer = data
    while True:
        frame = new_decompressor()
        feed: Buffer = rest
        while not frame.eof:
            piece_bytes = min(room + 1, max(PIECE_BYTES_MIN, 4 * len(rest)))
            try:
                piece = frame.decompress(feed, piece_bytes)
            except failure as error:
                raise CorruptBatchError(f"the batch's {name} data is damaged: {error}") from error
            room -= len(piece)
            if room < 0:
                raise _too_large(bytes_max)
            pieces.append(piece)
            if frame.needs_input and not frame.eof:
                raise CorruptBatchError(f"the batch's {name} data is cut off")
            feed = b""
        rest = frame.unused_data
        if not rest:
            return b"".join(pieces) if len(pieces) != 1 else pieces[0]


_COMPRESSORS: dict[int, Callable[[Buffer, int], Buffer]] = {
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _compress_zstd,
}
_DECOMPRESSORS: dict[int, Callable[[Buffer, int], Buffer]] = {
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
