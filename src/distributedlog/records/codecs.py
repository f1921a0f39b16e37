"""The codecs behind `compression`: what each library writes and reads, in Kafka's framings.

Work is linear in the bytes that came and in those that are made of them: no frame copies what follows it, and
frames are bounded in number.  The libraries release the interpreter lock while they work.
"""

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

SNAPPY_BLOCKS_MIN = 1_000
SNAPPY_BLOCK_BYTES_MIN = 64
"""The compressed bytes that blocks beyond the first SNAPPY_BLOCKS_MIN must have on average."""

GZIP_WINDOW_BITS = 31
FEED_BYTES_MIN = 512
ZSTD_OPTIONS: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 27}
PIECE_BYTES_MIN = 64 * 1024
FRAMES_MAX = 1_000
"""Clients write one frame, or one gzip member, for a batch; each costs a decompressor of its own."""


# --- gzip --------------------------------------------------------------------------------------


def _compress_gzip(data: Buffer, level: int) -> bytes:
    compressor = zlib.compressobj(level, zlib.DEFLATED, GZIP_WINDOW_BITS)
    return compressor.compress(data) + compressor.flush()


def _decompress_gzip(data: Buffer, bytes_max: int) -> bytes:
    view = memoryview(data)
    pieces: list[bytes] = []
    room, position, members = bytes_max, 0, 0
    while True:
        members = _count_frame(members, "gzip")
        member = zlib.decompressobj(GZIP_WINDOW_BITS)
        feed_bytes = FEED_BYTES_MIN
        while not member.eof:
            feed = view[position : position + feed_bytes]
            if not feed:
                raise CorruptBatchError("the batch's gzip data is cut off")
            try:
                piece = member.decompress(feed, room + 1)
            except zlib.error as error:
                raise CorruptBatchError(f"the batch's gzip data is damaged: {error}") from error
            pieces.append(piece)
            room -= len(piece)
            if room < 0:
                raise too_large(bytes_max)
            position += len(feed)
            feed_bytes *= 2
        position -= len(member.unused_data)
        if position == len(view):
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
    blocks_max = SNAPPY_BLOCKS_MIN + end // SNAPPY_BLOCK_BYTES_MIN
    while position < end:
        if view[position : position + 8] == XERIAL_MAGIC:
            position += len(XERIAL_HEADER)
            continue
        start = position + 4
        length = int.from_bytes(view[position:start], "big")
        if start + length > end:
            raise CorruptBatchError("the batch's snappy data is cut off")
        if len(blocks) == blocks_max:
            raise CorruptBatchError(f"{end} bytes of snappy data have more than {blocks_max} blocks")
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
    view = memoryview(data)
    context = lz4.frame.create_decompression_context()
    pieces: list[bytes] = []
    room, position, frames = bytes_max, 0, 0
    while True:
        frames = _count_frame(frames, "lz4")
        is_ended = False
        while not is_ended:
            rest = view[position:]
            try:
                piece, read_bytes, is_ended = lz4.frame.decompress_chunk(
                    context, rest, max_length=_piece_bytes(room, len(rest))
                )
            except RuntimeError as error:
                raise CorruptBatchError(f"the batch's lz4 data is damaged: {error}") from error
            room = _take_piece(pieces, piece, room, bytes_max)
            position += read_bytes
            if not is_ended and not piece and not read_bytes:
                raise CorruptBatchError("the batch's lz4 data is cut off")
        if position == len(view):
            return b"".join(pieces) if len(pieces) != 1 else pieces[0]


# --- zstd --------------------------------------------------------------------------------------


def _compress_zstd(data: Buffer, level: int) -> bytes:
    return zstd.compress(data, level)


def _decompress_zstd(data: Buffer, bytes_max: int) -> bytes:
    view = memoryview(data)
    pieces: list[bytes] = []
    room, position, frames = bytes_max, 0, 0
    while True:
        frames = _count_frame(frames, "zstd")
        frame = zstd.ZstdDecompressor(options=ZSTD_OPTIONS)
        try:
            end = position + zstd.get_frame_size(view[position:])
            feed: Buffer = view[position:end]
            while not frame.eof:
                piece = frame.decompress(feed, _piece_bytes(room, end - position))
                room = _take_piece(pieces, piece, room, bytes_max)
                if frame.needs_input and not frame.eof:
                    raise CorruptBatchError("the batch's zstd data is cut off")
                feed = b""
        except zstd.ZstdError as error:
            raise CorruptBatchError(f"the batch's zstd data is damaged: {error}") from error
        position = end
        if position == len(view):
            return b"".join(pieces) if len(pieces) != 1 else pieces[0]


# --- frames ------------------------------------------------------------------------------------


def _count_frame(frames: int, name: str) -> int:
    if frames >= FRAMES_MAX:
        raise CorruptBatchError(f"the batch's {name} data has more than {FRAMES_MAX} frames")
    return frames + 1


def _piece_bytes(room: int, compressed_bytes: int) -> int:
    return min(room + 1, max(PIECE_BYTES_MIN, 4 * compressed_bytes))


def _take_piece(pieces: list[bytes], piece: bytes, room: int, bytes_max: int) -> int:
    """Keeps a piece of the output and returns the room that is left."""
    if len(piece) > room:
        raise too_large(bytes_max)
    pieces.append(piece)
    return room - len(piece)


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
