"""What may be appended: the checks a batch passes, and the stamp it gets, before it is written.

Pure.  A produced batch is judged by its header and checksum; its records are opened only where a rule of
the topic speaks of them (a compacted topic wants a key in every record, and a topic with a compression of its
own has them compressed anew).

Opening happens on the thread that serves everybody, and what a few compressed bytes hold is up to who sent
them.  So a batch that must be opened may hold at most KEYED_RECORDS_MAX records and, opened, be OPENED_RATIO
times as large as a message may be (at least OPENED_BYTES_MIN), and PLAUSIBLE_RATIO times as large as it is
itself (at least PLAUSIBLE_BYTES_MIN): a few milliseconds for a few bytes, some tens at worst.
"""

from enum import Enum
from typing import Final, NamedTuple

from distributedlog.model.buffers import Buffer, MutableBuffer
from distributedlog.model.config import INT64_MAX, MIB, LogConfig, RecordLimits
from distributedlog.model.errors import (
    BatchListTooLargeError,
    CorruptBatchError,
    InvalidRecordError,
    RejectedRecordsError,
    UnexpectedOffsetError,
)
from distributedlog.records.batch import (
    LOG_OVERHEAD,
    BatchHeader,
    check_batch,
    place_batch,
    read_header,
    stamp_append_time,
)
from distributedlog.records.compression import Codec
from distributedlog.records.record import decompress_records, keyless_records, rebuild_batch


class Origin(Enum):
    """Who appends.  It decides which rules apply."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    """A broker's own records: group and transaction state, markers."""
    REPLICATION = "replication"
    """A leader accepted them before: they are checked for damage, not judged again."""


CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
"""By `compression.type`; "producer" is not among them."""

NAMED_RECORDS_MAX = 100
"""Of those that are wrong in a batch: so many are named."""

OPENED_RATIO: Final = 16
OPENED_BYTES_MIN: Final = 16 * MIB
PLAUSIBLE_RATIO: Final = 100
PLAUSIBLE_BYTES_MIN: Final = 4 * MIB
KEYED_RECORDS_MAX: Final = 1_000_000
"""More than any client puts into a batch; compaction makes an object of each."""

_CLIENT = Origin.CLIENT  # looked up once: an enum's members are slow to reach


class AppendResult(NamedTuple):
    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 unless the topic stamps records itself."""
    is_duplicate: bool = False
    """The batch stood in the log already; the offsets are those of its first writing."""


class AppendRules(NamedTuple):
    """What a topic's settings come to for an append: worked out once, and not for each of them."""

    append_bytes_max: int
    batch_bytes_max: int
    records_max: int
    compacts: bool
    stamps_time: bool
    before_max_ms: int
    after_max_ms: int
    limits: RecordLimits
    codec: Codec | None = None
    """What every batch is stored as; None: as it came."""

    @classmethod
    def of(cls, config: LogConfig, limits: RecordLimits) -> "AppendRules":
        codec = CODECS.get(config.compression_type)
        if config.compacts or codec is not None:
            limits = _limits_of_opened(config, limits)
        return cls(
            append_bytes_max=config.segment_bytes,
            batch_bytes_max=min(limits.batch_bytes_max, config.max_message_bytes),
            records_max=limits.records_max,
            compacts=config.compacts,
            stamps_time=config.message_timestamp_type == "LogAppendTime",
            before_max_ms=config.message_timestamp_before_max_ms,
            after_max_ms=config.message_timestamp_after_max_ms,
            limits=limits,
            codec=codec,
        )

    def recompressed(self, data: MutableBuffer, origin: Origin) -> MutableBuffer:
        """What clients send, in the topic's own compression; what has it already stays as it is."""
        if origin is not _CLIENT or self.codec is None:
            return data
        batches: list[Buffer] = []
        position = 0
        limits = self.limits._replace(batch_bytes_max=self.batch_bytes_max)
        while position < len(data):
            header = check_batch(data, position, limits=limits)
            whole = memoryview(data)[position : position + header.size]
            if header.is_control or header.codec == self.codec:
                batches.append(whole)
            else:
                records = _opened(data, position, header, self.limits)
                batches.append(rebuild_batch(header, records, header.record_count, codec=self.codec))
            position += header.size
        return bytearray().join(batches)

    def place(
        self, data: MutableBuffer, base_offset: int, leader_epoch: int, now_ms: int, origin: Origin
    ) -> list[BatchHeader]:
        """Gives the batches in `data` their offsets, in place; their headers, if all are acceptable."""
        # Unpacked at once: this runs for every append.
        append_bytes_max, bytes_max, records_max, compacts, stamps_time, before_ms, after_ms, limits, _ = self
        headers: list[BatchHeader] = []
        position, end, offset = 0, len(data), base_offset
        if end > append_bytes_max:
            raise BatchListTooLargeError(f"{end} bytes do not fit a segment of {append_bytes_max}")
        is_broker = origin is not _CLIENT
        oldest_ms, newest_ms = -INT64_MAX, INT64_MAX
        if not stamps_time and not is_broker:
            oldest_ms = now_ms - before_ms
            newest_ms = now_ms + after_ms
        while position < end:
            header = place_batch(
                data, position, offset, leader_epoch, bytes_max, records_max, oldest_ms, newest_ms, is_broker
            )
            if compacts and not header.is_control:
                _check_keys(data, position, header, limits)
            if stamps_time:
                stamp_append_time(data, position, now_ms)
                header = read_header(data, position)
            headers.append(header)
            position += LOG_OVERHEAD + header.batch_length
            offset += header.last_offset_delta + 1
        if not headers:
            raise CorruptBatchError("there is no batch to append")
        if len(headers) > 1 and any(header.producer_id >= 0 for header in headers):
            raise InvalidRecordError(
                "a batch with a producer id is appended alone: its sequence is checked by itself"
            )
        return headers


def _limits_of_opened(config: LogConfig, limits: RecordLimits) -> RecordLimits:
    opened_bytes_max = max(OPENED_BYTES_MIN, OPENED_RATIO * config.max_message_bytes)
    return limits._replace(
        decompressed_bytes_max=min(limits.decompressed_bytes_max, opened_bytes_max),
        records_max=min(limits.records_max, KEYED_RECORDS_MAX),
    )


def _opened(data: Buffer, position: int, header: BatchHeader, limits: RecordLimits) -> Buffer:
    """The records of a batch, if they are not implausibly many bytes."""
    if header.codec is not Codec.NONE:
        plausible_bytes_max = max(PLAUSIBLE_BYTES_MIN, PLAUSIBLE_RATIO * header.size)
        if plausible_bytes_max < limits.decompressed_bytes_max:
            limits = limits._replace(decompressed_bytes_max=plausible_bytes_max)
    return decompress_records(data, position, header, limits)


def _check_keys(data: Buffer, position: int, header: BatchHeader, limits: RecordLimits) -> None:
    body = _opened(data, position, header, limits)
    keyless, named = keyless_records(body, header, limits, named_max=NAMED_RECORDS_MAX)
    if keyless:
        raise RejectedRecordsError(
            f"a compacted topic takes no record without a key; {keyless} of the batch have none",
            tuple((at, "it has no key") for at in named),
        )


def check_follower_append(data: Buffer, end_offset: int, limits: RecordLimits) -> list[BatchHeader]:
    """The headers of batches that come with their offsets and must continue the log at `end_offset`.

    Gaps are right (the leader's log may be compacted), going back is not.  A cut batch at the end, as a
    fetch with a byte limit returns it, is for the caller to leave out.
    """
    headers: list[BatchHeader] = []
    position, end = 0, len(data)
    while position < end:
        header = check_batch(data, position, limits=limits)
        if header.base_offset < end_offset:
            raise UnexpectedOffsetError(
                f"a batch starts at offset {header.base_offset}; the log ends at {end_offset}"
            )
        headers.append(header)
        end_offset = header.next_offset
        position += header.size
    if not headers:
        raise CorruptBatchError("there is no batch to append")
    return headers
