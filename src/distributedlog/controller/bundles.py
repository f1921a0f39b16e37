"""One entry of the metadata log: the records of one change, all or none.

    frame i8 = 1 | count uvarint | (id uvarint | version uvarint | size uvarint | body) each

The log's own checksum covers the entry, so there is none here.  Whatever the bytes are, decoding gives
records or raises: MalformedMessageError for what is broken, UnsupportedVersionError for what is newer than we
are.  Counts and sizes are compared with what is left, and with the limits, before anything is made.
"""

from collections.abc import Sequence
from typing import Final

from distributedlog.controller.records import (
    RECORD_IDS,
    RECORDS,
    ClientQuotaChanged,
    ConfigChanged,
    Versioned,
)
from distributedlog.model.buffers import Buffer
from distributedlog.model.config import MIB
from distributedlog.model.errors import MalformedMessageError, PolicyViolationError, UnsupportedVersionError
from distributedlog.protocol.codec import decode_all, encode_bytes
from distributedlog.protocol.primitives import read_uvarint, uvarint
from distributedlog.protocol.schema import VERSION_MAX

FRAME_VERSION: Final = 1
BUNDLE_RECORDS_MAX: Final = 16_384
BUNDLE_BYTES_MAX: Final = 8 * MIB
ELEMENTS_PER_RECORD_MAX: Final = 10_000
"""Replicas, endpoints, directories: elements of the arrays of one record."""
RECORD_HEAD_BYTES_MIN: Final = 3
RECORDS_SURE_TO_FIT: Final = 4_096
TEXT_SURE_TO_FIT: Final = 1 * MIB
"""Characters, of up to four bytes each."""


def encode_bundle(records: Sequence[Versioned]) -> bytes:
    if not 0 < len(records) <= BUNDLE_RECORDS_MAX:
        raise MalformedMessageError(f"{len(records)} records are no bundle: 1 to {BUNDLE_RECORDS_MAX} are")
    parts = [bytes([FRAME_VERSION]), uvarint(len(records))]
    for message, version in records:
        body = encode_bytes(message, version)
        parts += (uvarint(RECORD_IDS[type(message)]), uvarint(version), uvarint(len(body)), body)
    bundle = b"".join(parts)
    if len(bundle) > BUNDLE_BYTES_MAX:
        raise MalformedMessageError(f"a bundle of {len(bundle)} bytes is over {BUNDLE_BYTES_MAX}")
    return bundle


def check_fits(records: Sequence[Versioned]) -> None:
    """Refuses what could not be one entry, while it can still be refused."""
    if len(records) <= RECORDS_SURE_TO_FIT and _text_length(records) <= TEXT_SURE_TO_FIT:
        return
    try:
        encode_bundle(records)
    except MalformedMessageError as error:
        raise PolicyViolationError(f"too much to be done at once, ask in parts: {error}") from error


def _text_length(records: Sequence[Versioned]) -> int:
    length = 0
    for message, _ in records:
        if isinstance(message, ConfigChanged):
            length += len(message.resource_name) + len(message.name) + len(message.value or "")
        elif isinstance(message, ClientQuotaChanged):
            length += sum(len(each.entity_name or "") for each in message.entity)
    return length


def decode_bundle(data: Buffer) -> list[Versioned]:
    try:
        return _decode(data)
    except IndexError as error:
        raise MalformedMessageError("a bundle is cut short") from error


def _decode(data: Buffer) -> list[Versioned]:
    if len(data) > BUNDLE_BYTES_MAX:
        raise MalformedMessageError(f"a bundle of {len(data)} bytes is over {BUNDLE_BYTES_MAX}")
    if data[0] != FRAME_VERSION:
        raise UnsupportedVersionError(
            f"a bundle of frame version {data[0]}; this version knows {FRAME_VERSION}"
        )
    count, position = read_uvarint(data, 1)
    left = len(data) - position
    if not 0 < count <= BUNDLE_RECORDS_MAX or count * RECORD_HEAD_BYTES_MIN > left:
        raise MalformedMessageError(f"a bundle of {left} bytes cannot hold {count} records")
    view = memoryview(data)
    records = []
    for _ in range(count):
        record, position = _decode_record(view, position)
        records.append(record)
    if position != len(data):
        raise MalformedMessageError(f"{len(data) - position} bytes follow a bundle")
    return records


def _decode_record(data: memoryview, position: int) -> tuple[Versioned, int]:
    number, position = read_uvarint(data, position)
    version, position = read_uvarint(data, position)
    size, position = read_uvarint(data, position)
    if size > len(data) - position:
        raise MalformedMessageError(f"a record has {size} bytes, of which {len(data) - position} are there")
    schema = RECORDS.get(number)
    if schema is None or version > schema.versions[1] or version > VERSION_MAX:
        name = schema.__name__ if schema else f"a record of id {number}"
        raise UnsupportedVersionError(
            f"{name} in version {version} is newer than this version: install a newer one"
        )
    end = position + size
    message = decode_all(schema, version, data[position:end], elements_max=ELEMENTS_PER_RECORD_MAX)
    return Versioned(message, version), end
