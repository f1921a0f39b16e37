"""The codecs behind `compression`: what each library writes and reads, in Kafka's framings."""

import struct
import sys
import zlib
from collections.abc import Callable
from typing import Any

import cramjam
import lz4.frame

from distributedlog.model.buffers import Buffer
from distributedlog.model.errors import CorruptBatchError
from distributedlog.records.compression import Codec, too_large

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES = 32 * 1024
SNAPPY_RATIO_MAX = 22
"""A snappy copy of 3 bytes makes at most 64: no input expands further."""

GZIP_WINDOW_BITS = 31
ZSTD_WINDOW_LOG_MAX = 27
PIECE_BYTES_MIN = 64 * 1024


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
            raise too_large(bytes_max)
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
        raise too_large(bytes_max)
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
        raise too_large(bytes_max)
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
                raise too_large(bytes_max)
            pieces.append(piece)
            if frame.needs_input and not frame.eof:
                raise CorruptBatchError(f"the batch's {name} data is cut off")
            feed = b""
        rest = frame.unused_data
        if not rest:
            return b"".join(pieces) if len(pieces) != 1 else pieces[0]


COMPRESSORS: dict[int, Callable[[Buffer, int], Buffer]] = {
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _compress_zstd,
}
DECOMPRESSORS: dict[int, Callable[[Buffer, int], Buffer]] = {
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
