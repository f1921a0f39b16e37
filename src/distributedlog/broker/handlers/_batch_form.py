"""What can be seen of a produced batch from outside, before anything of it is read."""

from struct import Struct as Layout
from typing import Final, cast

from distributedlog.model.buffers import Buffer, MutableBuffer
from distributedlog.model.errors import (
    CorruptBatchError,
    DlogError,
    InvalidRecordError,
    UnsupportedCompressionError,
)
from distributedlog.records.compression import Codec
from distributedlog.records.layout import CODEC_MASK, HEADER_BYTES, LOG_OVERHEAD, MAGIC

ZSTD_SINCE: Final = 7
_HEAD: Final = Layout(">8xi4xb4xh")  # batch length, magic, attributes
_head_of = _HEAD.unpack_from
_ZSTD: Final = int(Codec.ZSTD)


def check_form(records: Buffer | None, version: int) -> MutableBuffer:
    """Checks what can be seen from outside: one whole batch, of the format and with the means of this
    version."""
    size = 0 if records is None else len(records)
    if records is None or size < HEADER_BYTES:
        if records is not None and size > 16 and records[16] != MAGIC:
            raise _make_magic_error(records[16])
        if size:
            raise InvalidRecordError(f"{size} bytes are not a whole batch")
        raise InvalidRecordError("there is no batch to append")
    length, magic, attributes = _head_of(records)
    if magic != MAGIC:
        raise _make_magic_error(magic)
    if length + LOG_OVERHEAD != size:
        if length + LOG_OVERHEAD > size:
            raise InvalidRecordError(f"a batch of {length + LOG_OVERHEAD} bytes is cut short at {size}")
        raise InvalidRecordError("there must be exactly one batch for each partition")
    if attributes & CODEC_MASK == _ZSTD and version < ZSTD_SINCE:
        raise UnsupportedCompressionError(f"zstd needs Produce version {ZSTD_SINCE}; this is {version}")
    return cast(MutableBuffer, records)  # a view of the frame, which is a bytearray


def _make_magic_error(magic: int) -> DlogError:
    """Makes the error of an old format, or of one that never was."""
    kind = InvalidRecordError if 0 <= magic < MAGIC else CorruptBatchError
    return kind(f"the batch has the magic {magic}; it must be {MAGIC}")
