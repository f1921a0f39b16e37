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

The libraries are loaded with the first batch that is compressed (see codecs.py): many processes see none.
"""

from enum import IntEnum

from distributedlog.model.buffers import Buffer
from distributedlog.model.errors import ConfigError, RecordTooLargeError, UnsupportedCompressionError


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


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
    from distributedlog.records.codecs import COMPRESSORS

    return COMPRESSORS[codec](data, _checked_level(codec, level))


def decompress(codec: int, data: Buffer, bytes_max: int) -> Buffer:
    """The bytes that were compressed; the data itself for `Codec.NONE`."""
    if codec == Codec.NONE:
        if len(data) > bytes_max:
            raise too_large(bytes_max)
        return data
    from distributedlog.records.codecs import DECOMPRESSORS

    decompressor = DECOMPRESSORS.get(codec)
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


def check_level(codec: Codec, level: int | None) -> None:
    """Raises `ConfigError` if the codec has no such level; None is always its own default."""
    _checked_level(codec, level)


def too_large(bytes_max: int) -> RecordTooLargeError:
    return RecordTooLargeError(f"the batch decompresses to more than the {bytes_max} bytes that are allowed")
