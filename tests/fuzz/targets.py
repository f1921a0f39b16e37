"""What is fuzzed: readers of bytes that come from outside, or from a disk that may be damaged.

A target takes bytes and returns or raises one of the errors it declares; anything else is a crash.  What it
came to is told as a short text, without numbers: an input that comes to something new is worth keeping.

    NAME:vN            a message of the protocol, in one version; if it can be read, it can be written and
                       read again, and is the same
    header             a request's header, as the server reads it
    batch …            a batch as a produce request has it, on a plain and on a compacted topic, its checksum
                       made right so that what lies behind it is reached; as a consumer, the compaction and
                       Arrow read it
    codec …            compressed bytes of each codec
    file …             what a broker reads back at a start: producer snapshots, checkpoints
"""

import re
import struct
from collections.abc import Callable, Iterator
from random import Random
from typing import Final, NamedTuple

from distributedlog.broker.net.request_queue import ELEMENTS_MAX
from distributedlog.model.config import MIB, LogConfig
from distributedlog.model.errors import DlogError, MalformedMessageError, UnsupportedVersionError
from distributedlog.model.limits import RecordLimits
from distributedlog.protocol.codec import decode, decode_all, encode_bytes
from distributedlog.protocol.framing import decode_request_header, encode_request
from distributedlog.protocol.messages.heartbeat import HeartbeatRequest
from distributedlog.protocol.schema import Message
from distributedlog.records.arrow import decode_to_arrow
from distributedlog.records.batch import check_batch, read_header
from distributedlog.records.checksum import crc32c
from distributedlog.records.compression import Codec, compress, decompress
from distributedlog.records.control import ControlType, EndMarker, encode_end_marker_batch
from distributedlog.records.kernel import UNSOUND, count_keyless
from distributedlog.records.layout import BatchHeader
from distributedlog.records.record import Header, Record, decode_batch, decompress_records, encode_batch
from distributedlog.storage.append import AppendRules, Origin
from distributedlog.storage.checkpoints import decode_offsets
from distributedlog.storage.producers import ProducerStates
from tests.unit.protocol.catalogue import MESSAGES, name_of, versions_of
from tests.unit.protocol.generator import random_message

NOW_MS: Final = 1_700_000_000_000
LIMITS: Final = RecordLimits(batch_bytes_max=4 * MIB, decompressed_bytes_max=4 * MIB, records_max=100_000)
PLAIN: Final = AppendRules.of(LogConfig(), LIMITS)
COMPACTED: Final = AppendRules.of(LogConfig(cleanup_policy=("compact",)), LIMITS)
STAMPED: Final = AppendRules.of(LogConfig(message_timestamp_type="LogAppendTime"), LIMITS)
SEEDS_PER_MESSAGE: Final = 2
_NUMBERS: Final = re.compile(r"[0-9a-f]*\d[0-9a-f]*|'[^']*'")


class Target(NamedTuple):
    name: str
    run: Callable[[bytearray], object]
    declared: tuple[type[Exception], ...]
    seeds: tuple[bytes, ...]


def outcome(target: Target, data: bytearray) -> str:
    """What it came to.  Raises what the target did not declare."""
    try:
        target.run(data)
    except target.declared as error:
        return f"{type(error).__name__}: {_NUMBERS.sub('#', str(error))[:120]}"
    return "read"


# --- the protocol ------------------------------------------------------------------------------


def _message_target(message: type[Message], version: int) -> Target:
    def run(data: bytearray) -> None:
        read, end = decode(message, version, data, elements_max=ELEMENTS_MAX)
        assert end <= len(data)
        written = encode_bytes(read, version)
        assert encode_bytes(decode_all(message, version, written), version) == written

    random = Random(f"{message.__name__} {version}")
    seeds = tuple(
        encode_bytes(random_message(message, version, random), version) for _ in range(SEEDS_PER_MESSAGE)
    )
    return Target(f"{name_of(message)}:v{version}", run, (MalformedMessageError,), seeds)


def protocol_targets() -> Iterator[Target]:
    for message in MESSAGES:
        for version in versions_of(message):
            yield _message_target(message, version)
    headers = tuple(
        b"".join(bytes(part) for part in encode_request(request, version, 7, "client"))[4:]  # type: ignore[arg-type]
        for version in (0, 4)
        for request in [HeartbeatRequest(group_id="g", generation_id=1, member_id="m")]
    )
    errors = (MalformedMessageError, UnsupportedVersionError)
    yield Target("header", lambda data: decode_request_header(data), errors, headers)


# --- records -----------------------------------------------------------------------------------


def _records() -> list[Record]:
    return [
        Record(b"value", b"key", timestamp_ms=NOW_MS),
        Record(None, b"tombstone", timestamp_ms=NOW_MS + 1, headers=(Header("h", b"v"), Header("n", None))),
        Record(b"x" * 100, None, timestamp_ms=NOW_MS),
    ]


def _batches() -> tuple[bytes, ...]:
    made = [bytes(encode_batch(_records(), codec=codec)) for codec in Codec]
    made.append(bytes(encode_batch(_records()[:1], producer_id=5, producer_epoch=1, base_sequence=3)))
    marker = encode_end_marker_batch(
        EndMarker(ControlType.COMMIT, 3), producer_id=9, producer_epoch=1, timestamp_ms=NOW_MS
    )
    return (*made, bytes(marker))


def _checked(data: bytearray) -> bytearray:
    """Returns it with its length and checksum made right, so that the rest is looked at, three times out of
    four."""
    if len(data) >= 61 and data[0] % 4:
        struct.pack_into(">i", data, 8, len(data) - 12)
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return data


def _place(rules: AppendRules) -> Callable[[bytearray], object]:
    return lambda data: rules.place(_checked(data), 1000, 3, NOW_MS, Origin.CLIENT)


def _decode_both(data: bytearray) -> None:
    """A consumer's reader and Arrow's agree on whether there is anything to read."""
    _checked(data)
    header = check_batch(data, 0, limits=LIMITS)
    records = _decode_as_walked(data, header)
    assert len(records) == header.record_count
    if not header.is_control:
        assert decode_to_arrow(data, limits=LIMITS).num_rows == header.record_count


def _decode_as_walked(data: bytearray, header: BatchHeader) -> list[Record]:
    """The walk of the records accepts what the decoder decodes, and nothing else."""
    section = decompress_records(data, 0, header, LIMITS)
    keyless = count_keyless(section, 0, len(section), header, LIMITS.headers_per_record_max, False)
    try:
        records = decode_batch(data, limits=LIMITS)
    except DlogError:
        assert keyless == UNSOUND
        raise
    assert keyless == sum(record.key is None for record in records)
    return records


def record_targets() -> Iterator[Target]:
    batches = _batches()
    runs: dict[str, Callable[[bytearray], object]] = {
        "batch header": lambda data: read_header(data),
        "batch plain": _place(PLAIN),
        "batch compacted": _place(COMPACTED),
        "batch stamped": _place(STAMPED),
        "batch decoded": _decode_both,
    }
    for name, run in runs.items():
        yield Target(name, run, (DlogError,), batches)
    for codec in Codec:
        yield Target(f"codec {codec.name}", _decompressing(codec), (DlogError,), _compressed(codec))


def _decompressing(codec: Codec) -> Callable[[bytearray], object]:
    return lambda data: decompress(codec, data, LIMITS.decompressed_bytes_max)


def _compressed(codec: Codec) -> tuple[bytes, ...]:
    return tuple(
        bytes(compress(codec, data)) for data in (b"", b"abc" * 50, bytes(3000), bytes(range(256)) * 3)
    )


# --- files -------------------------------------------------------------------------------------


def _snapshot(data: bytearray) -> None:
    if len(data) > 6 and data[-1] % 4:
        struct.pack_into(">I", data, 2, crc32c(bytes(data[6:])))
    states = ProducerStates.decode_snapshot(bytes(data))
    ProducerStates.decode_snapshot(states.encode_snapshot())


def file_targets() -> Iterator[Target]:
    states = ProducerStates()
    for number in range(3):
        batch = encode_batch(
            _records(), base_offset=10 * number, producer_id=number, producer_epoch=1, base_sequence=0
        )
        states.append(read_header(batch))
    yield Target("file snapshot", _snapshot, (DlogError,), (states.encode_snapshot(),))
    checkpoint = b"0\n2\norders 0 15\na-b.c 1 0\n"
    yield Target("file checkpoint", lambda data: decode_offsets(bytes(data)), (DlogError,), (checkpoint,))


def all_targets() -> list[Target]:
    return [*protocol_targets(), *record_targets(), *file_targets()]
