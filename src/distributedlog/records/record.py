"""Records: encode them into a batch, decode a batch into them, and take a batch apart for compaction.

`encode_batch` and `decode_batch` are inverse for every record: null and empty keys and values, headers,
any 64-bit timestamp.  Offsets are consecutive from the base unless `preserve_offsets`, with which gaps stay,
as compaction leaves them.  A record without a timestamp (-1) takes the default, if there is one.

Compaction works on bytes: `decompress_records` opens a batch, `find_record_spans` says where each record lies
and what its key is, and `rebuild_batch` makes a batch of the pieces that are kept.  A rebuilt batch keeps
its first and last offset, producer fields and sequence, so that nobody sees a gap in a producer's
sequences; it may have no records left.  If it is given a delete horizon, that moves into the base timestamp
field and the records' deltas are counted anew from there, so that their timestamps stay what they were.
"""

from collections.abc import Sequence

from distributedlog.model.buffers import Buffer
from distributedlog.model.errors import CorruptBatchError, InvalidRecordError, RecordTooLargeError
from distributedlog.model.limits import RecordLimits
from distributedlog.records.batch import check_batch
from distributedlog.records.checksum import crc32c
from distributedlog.records.compression import Codec, compress, decompress
from distributedlog.records.kernel import (
    ABSENT,
    UNSOUND,
    count_keyless,
    decode_records,
    encode_records,
    find_keyless,
    find_spans,
    find_timestamp,
    rebase_timestamps,
)
from distributedlog.records.layout import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_AT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    HEADER_STRUCT,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Header,
    Record,
    RecordSpan,
)

__all__ = [
    "Header",
    "Record",
    "RecordSpan",
    "check_records",
    "decode_batch",
    "decompress_records",
    "encode_batch",
    "find_record_by_time",
    "find_record_spans",
    "finish_batch",
    "rebuild_batch",
]

DEFAULT_LIMITS = RecordLimits()


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    log_append_time_ms: int | None = None,
    default_timestamp_ms: int = NO_TIMESTAMP,
    preserve_offsets: bool = False,
    last_offset_delta: int | None = None,
) -> bytearray:
    """One batch of the records.  `last_offset_delta` may lie behind the last record, as after compaction."""
    output, last_delta, base_timestamp, max_timestamp = encode_records(
        records, base_offset, default_timestamp_ms, preserve_offsets
    )
    if last_offset_delta is not None:
        if last_offset_delta < last_delta:
            raise InvalidRecordError(
                f"a last offset delta of {last_offset_delta} is before the last record's"
            )
        last_delta = last_offset_delta
    attributes = int(codec)
    attributes |= TRANSACTIONAL_BIT if is_transactional else 0
    attributes |= CONTROL_BIT if is_control else 0
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp = log_append_time_ms
    header = BatchHeader(
        base_offset, 0, leader_epoch, MAGIC, 0, attributes, max(last_delta, 0), base_timestamp, max_timestamp,
        producer_id, producer_epoch, base_sequence, len(records),
    )  # fmt: skip
    return finish_batch(output, header, level)


def finish_batch(output: bytearray, header: BatchHeader, level: int | None = None) -> bytearray:
    """Compresses the records that stand behind 61 free bytes, and writes the header there.

    Nothing is written that a reader with the default limits would refuse, however well it compresses.
    """
    codec = header.codec
    section_bytes = len(output) - HEADER_BYTES
    if section_bytes > DEFAULT_LIMITS.decompressed_bytes_max:
        raise RecordTooLargeError(
            f"the records of a batch have {section_bytes} bytes before compression; "
            f"{DEFAULT_LIMITS.decompressed_bytes_max} are allowed"
        )
    if codec != Codec.NONE:
        with memoryview(output) as view:
            body = compress(codec, view[HEADER_BYTES:], level)
        output = bytearray(HEADER_BYTES)
        output += body
    _write_header(output, header)
    return output


def _write_header(output: bytearray, header: BatchHeader) -> None:
    fields = header._replace(batch_length=len(output) - LOG_OVERHEAD, magic=MAGIC, crc=0)
    HEADER_STRUCT.pack_into(output, 0, *fields)
    with memoryview(output) as view:
        crc = crc32c(view[ATTRIBUTES_AT:])
    output[CRC_AT:ATTRIBUTES_AT] = crc.to_bytes(4, "big")


def decode_batch(
    buffer: Buffer, position: int = 0, *, limits: RecordLimits = DEFAULT_LIMITS, check_crc: bool = True
) -> list[Record]:
    """Every record of the batch at `position`, with absolute offsets and timestamps."""
    header = check_batch(buffer, position, limits=limits, check_crc=check_crc)
    section = decompress_records(buffer, position, header, limits)
    return decode_records(section, header, limits.headers_per_record_max)


def decompress_records(
    buffer: Buffer, position: int, header: BatchHeader, limits: RecordLimits = DEFAULT_LIMITS
) -> Buffer:
    """The records section of a batch that was checked: a view of it if it is not compressed."""
    end = position + header.size
    if end > len(buffer):
        raise CorruptBatchError(
            f"the batch is {header.size} bytes long, of which {len(buffer) - position} are there"
        )
    section = memoryview(buffer)[position + HEADER_BYTES : end]
    return decompress(header.attributes & CODEC_MASK, section, limits.decompressed_bytes_max)


def find_record_spans(
    records_section: Buffer, header: BatchHeader, limits: RecordLimits = DEFAULT_LIMITS
) -> list[RecordSpan]:
    """Returns where each record lies in a decompressed section."""
    return find_spans(records_section, header, limits.headers_per_record_max)


def check_records(
    records_section: Buffer,
    header: BatchHeader,
    limits: RecordLimits = DEFAULT_LIMITS,
    *,
    releases_lock: bool = False,
) -> int:
    """Raises unless every record of a decompressed section can be decoded; returns how many have no key.

    With `releases_lock` other threads run meanwhile.
    """
    keyless = count_keyless(
        records_section, 0, len(records_section), header, limits.headers_per_record_max, releases_lock
    )
    if keyless == UNSOUND:  # the cursor says what is wrong
        find_keyless(records_section, header, limits.headers_per_record_max, 0)
        raise InvalidRecordError("a record of the batch cannot be decoded")
    return keyless


def find_record_by_time(
    records_section: Buffer,
    header: BatchHeader,
    timestamp_ms: int,
    *,
    start: int,
    end: int,
    newest: bool = False,
) -> tuple[int, int] | None:
    """Returns offset and timestamp of the first record at or after a time, of those from `start` up to `end`;
    if `newest`, of the first that has the highest timestamp.

    No object is made of a record, and other threads run meanwhile.
    """
    offset, found_ms = find_timestamp(records_section, header, timestamp_ms, start, end, newest)
    if offset == UNSOUND:
        raise InvalidRecordError("a record of the batch cannot be decoded")
    return None if offset == ABSENT else (offset, found_ms)


def find_keyless_records(
    records_section: Buffer, header: BatchHeader, limits: RecordLimits = DEFAULT_LIMITS, *, named_max: int
) -> tuple[int, list[int]]:
    """Returns how many records of a decompressed section have no key, and the places of the first of them."""
    return find_keyless(records_section, header, limits.headers_per_record_max, named_max)


def rebuild_batch(
    header: BatchHeader,
    records_section: Buffer,
    record_count: int,
    *,
    codec: Codec | None = None,
    level: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """A batch in the place of `header`'s, with the records of a section made of its spans.

    The max timestamp is that of the records left (a log append time is that of all), or stays if none is.
    """
    if record_count == 0:
        return _empty_batch(header)
    headers_max = DEFAULT_LIMITS.headers_per_record_max
    header = header._replace(record_count=record_count)
    if codec is not None:
        header = header._replace(attributes=header.attributes & ~CODEC_MASK | codec)
    spans = find_spans(records_section, header, headers_max)
    header = header._replace(max_timestamp=max(span.timestamp_ms for span in spans))
    if delete_horizon_ms is not None:
        records_section = rebase_timestamps(records_section, header, delete_horizon_ms, headers_max)
        attributes = header.attributes | DELETE_HORIZON_BIT
        header = header._replace(base_timestamp=delete_horizon_ms, attributes=attributes)
    output = bytearray(HEADER_BYTES)
    output += records_section
    return finish_batch(output, header, level)


def _empty_batch(header: BatchHeader) -> bytearray:
    """Returns what stays of a batch without records: its offsets and its producer's sequence."""
    output = bytearray(HEADER_BYTES)
    attributes = header.attributes & (LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)
    _write_header(output, header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0))
    return output
