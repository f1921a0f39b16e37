"""Cutting a stream of records into batches that a log accepts.  Pure."""

from collections.abc import Iterable

from distributedlog.model.config import KIB, LogConfig
from distributedlog.model.errors import InvalidRecordError, RecordTooLargeError
from distributedlog.records.compression import Codec
from distributedlog.records.record import DEFAULT_LIMITS, Record, encode_batch

BATCH_BYTES = 256 * KIB
RECORD_OVERHEAD_BYTES = 32
"""More than the lengths, deltas and counts around a record's bytes ever take, but for huge deltas."""


def into_batches(
    records: Iterable[Record | bytes], codec: Codec, config: LogConfig, now_ms: int
) -> list[bytearray]:
    """Everything is encoded and measured before anything is appended: too large a record appends nothing."""
    target = min(BATCH_BYTES, batch_bytes_max(config))
    batches: list[bytearray] = []
    pending: list[Record] = []
    pending_bytes = 0
    for item in records:
        record = item if isinstance(item, Record) else _of_value(item)
        size = _estimate(record)
        if pending and pending_bytes + size > target:
            batches.append(_encode(pending, codec, config, now_ms))
            pending, pending_bytes = [], 0
        pending.append(record)
        pending_bytes += size
    if pending:
        batches.append(_encode(pending, codec, config, now_ms))
    return batches


def _of_value(value: object) -> Record:
    if value is not None and not isinstance(value, bytes):
        raise InvalidRecordError(f"a record is a Record or bytes, not {type(value).__name__}")
    return Record(value)


def _estimate(record: Record) -> int:
    if len(record.headers) > DEFAULT_LIMITS.headers_per_record_max:  # no reader would take it
        raise InvalidRecordError(
            f"a record has {len(record.headers)} headers; {DEFAULT_LIMITS.headers_per_record_max} are allowed"
        )
    headers = sum(len(header.key) * 4 + len(header.value or b"") + 10 for header in record.headers)
    return RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"") + headers


def _encode(records: list[Record], codec: Codec, config: LogConfig, now_ms: int) -> bytearray:
    batch = encode_batch(records, codec=codec, default_timestamp_ms=now_ms)
    if len(batch) > batch_bytes_max(config):
        raise RecordTooLargeError(
            f"a batch of {len(records)} record(s) has {len(batch)} bytes; max.message.bytes and "
            f"segment.bytes allow {batch_bytes_max(config)}"
        )
    return batch


def batch_bytes_max(config: LogConfig) -> int:
    """A batch must also fit into a segment."""
    return min(config.max_message_bytes, config.segment_bytes)
