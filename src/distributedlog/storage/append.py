"""What may be appended: the checks a batch passes, and the stamp it gets, before it is written.

Pure.  A produced batch is judged by its header and checksum and, with `record.validation=full` (the default),
by the frame of every record, as Kafka does: a record that cannot be decoded would stop every consumer and
compaction for good.  With `header` it is opened only where a rule of the topic speaks of its records (a
compacted topic wants a key in every record, and a topic with a compression of its own has them compressed
anew).

What a few compressed bytes hold is up to who sent them.  So a batch that is opened may hold at most
OPENED_RECORDS_MAX records and, opened, be OPENED_RATIO times as large as a message may be (at least
OPENED_BYTES_MIN): some tens of milliseconds.  How long it takes shows only when it is opened: so a batch
that `takes_long` can be opened as far as a budget goes (`validate_quickly`), or on another thread
(`prepare`), which needs no interpreter lock for most of it; it is then appended as it is, if the rules are
still the same.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from distributedlog.model.buffers import Buffer, MutableBuffer
from distributedlog.model.config import INT64_MAX, KIB, MIB, LogConfig
from distributedlog.model.errors import (
    BatchListTooLargeError,
    CorruptBatchError,
    DlogError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
    RejectedRecordsError,
)
from distributedlog.model.limits import RecordLimits
from distributedlog.records.batch import (
    LOG_OVERHEAD,
    BatchHeader,
    check_batch,
    clear_append_time,
    place_batch,
    read_header,
    stamp_append_time,
)
from distributedlog.records.checksum import crc32c
from distributedlog.records.compression import Codec
from distributedlog.records.kernel import check_replicated_batches, count_keyless
from distributedlog.records.layout import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    HEADER_STRUCT,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAGIC_AT,
    BatchRun,
)
from distributedlog.records.record import (
    check_records,
    decode_batch,
    decompress_records,
    find_keyless_records,
    rebuild_batch,
)


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
"""The codecs by `compression.type`; "producer" is not among them."""

NAMED_RECORDS_MAX = 100
"""How many of the wrong records of a batch an error names."""
NAMED_LIMITS: Final = RecordLimits(
    batch_bytes_max=64 * KIB, decompressed_bytes_max=1 * MIB, records_max=NAMED_RECORDS_MAX
)
"""The limits of a batch that is opened for an error alone."""

OPENED_RATIO: Final = 32
OPENED_BYTES_MIN: Final = 32 * MIB
"""How far a batch is opened, of messages' size and at least.  Not of its own: producers fill their batches by
what they come to when compressed, so that 16 KB of very regular data are 16 MB."""
OPENED_RECORDS_MAX: Final = 1_000_000
"""How many records a batch may have that is opened, for whatever reason: more than any client puts into one.
Compaction makes an object of each."""

LONG_BYTES: Final = 1 * MIB
"""A batch that is not compressed and above this size takes longer to walk than a request may take."""
GZIP_COST: Final = 4
"""How much longer than the others gzip takes for as many bytes."""

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
    validates: bool = True
    """Whether every record of a client's batch is walked."""

    @classmethod
    def of(cls, config: LogConfig, limits: RecordLimits) -> "AppendRules":
        codec = CODECS.get(config.compression_type)
        validates = config.record_validation == "full"
        if config.compacts or codec is not None or validates:
            limits = limit_opened(config, limits)
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
            validates=validates,
        )

    @property
    def opens(self) -> bool:
        """Whether records of a client's batch are looked at, or written anew."""
        return self.validates or self.compacts or self.codec is not None

    def takes_long(self, data: Buffer) -> bool:
        """Whether `prepare` may take long for a client's batch, as far as can be seen from outside."""
        if not self.opens:
            return False
        return len(data) > LONG_BYTES or _codec_of(data) != 0 or bool(self.codec)

    def validate_quickly(self, data: Buffer, budget: int) -> int | None:
        """Validates a batch at once if that takes no more than `budget`, in bytes, and returns what is left.
        None if it takes more: then nothing is known of the batch.  Raises what `validate` would."""
        codec = _codec_of(data)
        cost = GZIP_COST if codec == Codec.GZIP else 1
        if len(data) * cost > budget or (self.codec is not None and self.codec != codec):
            return None
        opened_bytes_max = min(self.limits.decompressed_bytes_max, budget // cost)
        limits = self.limits._replace(decompressed_bytes_max=opened_bytes_max)
        try:
            opened_bytes = self._validate(data, limits, False)
        except RecordTooLargeError:
            return None  # or it is too large for everybody, which is found out again
        return budget - opened_bytes * cost

    def prepare(self, data: MutableBuffer) -> MutableBuffer:
        """Returns a client's batches as they may be appended with `is_validated`: in the topic's own
        compression, with every record checked.  Raises what an append would.

        Any thread may call it; most of the time others run meanwhile.
        """
        data = self.recompress(data, _CLIENT)
        if self.validates or self.compacts:
            self.validate(data)
        return data

    def validate(self, data: Buffer) -> None:
        """Raises unless every record of the batches in `data` can be decoded.  Any thread may call it.

        What passed may be appended with `is_validated`.
        """
        self._validate(data, self.limits, True)

    def _validate(self, data: Buffer, opened_limits: RecordLimits, releases_lock: bool) -> int:
        """Returns how many bytes were opened."""
        limits = self.limits._replace(batch_bytes_max=self.batch_bytes_max)
        position = opened_bytes = 0
        while position < len(data):
            header = _check_client_batch(data, position, limits)
            if not header.is_control:
                opened_bytes += _check_records(
                    data, position, header, opened_limits, self.compacts, releases_lock
                )
            position += header.size
        return opened_bytes

    def recompress(self, data: MutableBuffer, origin: Origin) -> MutableBuffer:
        """Returns what clients send, in the topic's own compression; what has it already stays as it is."""
        if origin is not _CLIENT or self.codec is None:
            return data
        batches: list[Buffer] = []
        position = 0
        limits = self.limits._replace(batch_bytes_max=self.batch_bytes_max)
        while position < len(data):
            header = _check_client_batch(data, position, limits)
            whole = memoryview(data)[position : position + header.size]
            if header.is_control or header.codec == self.codec:
                batches.append(whole)
            else:
                records = decompress_records(data, position, header, self.limits)
                batches.append(rebuild_batch(header, records, header.record_count, codec=self.codec))
            position += header.size
        return bytearray().join(batches)

    def place(
        self,
        data: MutableBuffer,
        base_offset: int,
        leader_epoch: int,
        now_ms: int,
        origin: Origin,
        is_validated: bool = False,
    ) -> list[BatchHeader]:
        """Gives the batches in `data` their offsets, in place; their headers, if all are acceptable."""
        # Unpacked at once: this runs for every append.
        (
            append_bytes_max, bytes_max, records_max, compacts, stamps_time, before_ms, after_ms, limits, _,
            validates,
        ) = self  # fmt: skip
        headers: list[BatchHeader] = []
        position, end, offset = 0, len(data), base_offset
        if end > append_bytes_max:
            raise BatchListTooLargeError(f"{end} bytes do not fit a segment of {append_bytes_max}")
        is_broker = origin is not _CLIENT
        _, opened_bytes_max, _, headers_max = limits
        keyless_max = 0 if compacts else records_max
        oldest_ms, newest_ms = -INT64_MAX, INT64_MAX
        if not stamps_time and not is_broker:
            oldest_ms = now_ms - before_ms
            newest_ms = now_ms + after_ms
        walks = (compacts or (validates and not is_broker)) and not is_validated
        while position < end:
            try:
                header = place_batch(
                    data, position, offset, leader_epoch, bytes_max, records_max, oldest_ms, newest_ms,
                    is_broker,
                )  # fmt: skip
            except CorruptBatchError as error:
                raise _find_cause(data, position, error) from error
            except InvalidTimestampError as error:
                raise _name_records(data, position, oldest_ms, newest_ms, error) from error
            _, length, _, _, _, attributes, last_offset_delta, _, _, _, _, _, _ = header
            batch_end = position + LOG_OVERHEAD + length
            # One walk finds nearly every batch sound; of the others `_check_records` says what is wrong.
            if (
                walks
                and not attributes & CONTROL_BIT
                and (
                    attributes & CODEC_MASK
                    or length > opened_bytes_max
                    or not 0
                    <= count_keyless(data, position + HEADER_BYTES, batch_end, header, headers_max, False)
                    <= keyless_max
                )
            ):
                _check_records(data, position, header, limits, compacts, False)
            if stamps_time:
                stamp_append_time(data, position, now_ms)
                header = read_header(data, position)
            elif attributes & LOG_APPEND_TIME_BIT and not is_broker:
                clear_append_time(data, position)
                header = read_header(data, position)
            headers.append(header)
            position = batch_end
            offset += last_offset_delta + 1
        if not headers:
            raise CorruptBatchError("there is no batch to append")
        if len(headers) > 1 and any(header.producer_id >= 0 for header in headers):
            raise InvalidRecordError(
                "a batch with a producer id is appended alone: its sequence is checked by itself"
            )
        return headers


def _check_client_batch(data: Buffer, position: int, limits: RecordLimits) -> BatchHeader:
    try:
        return check_batch(data, position, limits=limits)
    except CorruptBatchError as error:
        raise _find_cause(data, position, error) from error


def _find_cause(data: Buffer, position: int, error: CorruptBatchError) -> DlogError:
    """Returns the error for a batch whose header contradicts itself.

    If its checksum is right it came as it was sent: it is invalid, and to send it again would not help.
    """
    if len(data) - position >= HEADER_BYTES and data[position + MAGIC_AT] == MAGIC:
        fields = HEADER_STRUCT.unpack_from(data, position)
        end = position + LOG_OVERHEAD + fields[1]
        if position + HEADER_BYTES <= end <= len(data):
            crc = crc32c(memoryview(data)[position + ATTRIBUTES_AT : end])
            if crc == fields[4]:
                return InvalidRecordError(str(error))
    return error


def _name_records(
    data: Buffer, position: int, oldest_ms: int, newest_ms: int, error: InvalidTimestampError
) -> InvalidTimestampError:
    """Returns the error with the records whose time is out of bounds; without them if they are too many to be
    opened for that, or unsound."""
    try:
        records = decode_batch(data, position, limits=NAMED_LIMITS, check_crc=False)
    except DlogError:
        return error
    text = f"its time does not lie between {oldest_ms} and {newest_ms}"
    wrong = (at for at, each in enumerate(records) if not oldest_ms <= each.timestamp_ms <= newest_ms)
    return InvalidTimestampError(str(error), tuple((at, text) for at in wrong))


def limit_opened(config: LogConfig, limits: RecordLimits) -> RecordLimits:
    """The limits for whoever opens what clients sent."""
    opened_bytes_max = max(OPENED_BYTES_MIN, OPENED_RATIO * config.max_message_bytes)
    return limits._replace(
        decompressed_bytes_max=min(limits.decompressed_bytes_max, opened_bytes_max),
        records_max=min(limits.records_max, OPENED_RECORDS_MAX),
    )


def _check_records(
    data: Buffer,
    position: int,
    header: BatchHeader,
    limits: RecordLimits,
    compacts: bool,
    releases_lock: bool,
) -> int:
    """Returns how many bytes the records are; raises unless all are sound."""
    body = decompress_records(data, position, header, limits)
    if check_records(body, header, limits, releases_lock=releases_lock) and compacts:
        keyless, named = find_keyless_records(body, header, limits, named_max=NAMED_RECORDS_MAX)
        raise RejectedRecordsError(
            f"a compacted topic takes no record without a key; {keyless} of the batch have none",
            tuple((at, "it has no key") for at in named),
        )
    return len(body)


def _codec_of(data: Buffer) -> int:
    return data[ATTRIBUTES_AT + 1] & CODEC_MASK


def check_follower_append(data: Buffer, end_offset: int, leader_epoch: int, limits: RecordLimits) -> BatchRun:
    """Returns batches that come with their offsets and must continue the log at `end_offset`, up to the first
    one of an epoch above `leader_epoch`.

    Gaps are right (the leader's log may be compacted), going back is not.  A cut batch at the end, as a
    fetch with a byte limit returns it, is left out; a first one is not: a leader gives at least one whole.
    """
    run = check_replicated_batches(data, end_offset, leader_epoch, limits.batch_bytes_max, limits.records_max)
    if not run.headers:
        raise CorruptBatchError("there is no batch to append")
    return run


def cut_at_segments(
    headers: list[BatchHeader], active_bytes: int, segment_bytes: int, offsets_max: int
) -> Iterator[tuple[list[BatchHeader], int]]:
    """Yields the batches in parts, with their bytes, each of which fits a segment as a leader would fill it:
    the first what the active one has room for, if that is any.  One batch larger than a segment is a part
    by itself, and so is what lies more than `offsets_max` behind the part's first offset."""
    part: list[BatchHeader] = []
    length, room = 0, segment_bytes - active_bytes
    for header in headers:
        size = LOG_OVERHEAD + header.batch_length
        if part and (length + size > room or header.last_offset - part[0].base_offset > offsets_max):
            yield part, length
            part, length, room = [], 0, segment_bytes
        elif not part and size > room:
            room = segment_bytes
        part.append(header)
        length += size
    yield part, length
