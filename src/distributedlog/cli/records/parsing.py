"""Lines become records: plain, with a key in front, or JSON; and a record becomes its JSON.  Pure.

A JSON line is an object with any of `value`, `key`, `headers`, `timestamp_ms` and `partition`: what
`dlog topic consume -o json` prints, so that a topic can be copied, or kept in a file.  Text is UTF-8;
`"value_encoding": "base64"` says that it is bytes.  A value that is neither text nor null is sent as the JSON
that it is.  Headers are a list as printed, or an object of names and values.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from distributedlog.cli.output import json_bytes
from distributedlog.model.errors import InvalidRecordError
from distributedlog.model.ids import TopicPartition
from distributedlog.records.record import Header, Record

FIELDS: Final = frozenset(
    {"value", "key", "headers", "timestamp_ms", "partition", "value_encoding", "key_encoding"}
)
IGNORED: Final = frozenset({"type", "topic", "offset"})
"""What is printed about a record that belongs to where it was."""


class Addressed(NamedTuple):
    record: Record
    partition: int | None = None


def parse_plain(
    line: bytes,
    key_separator: bytes | None = None,
    headers: tuple[Header, ...] = (),
    *,
    empty_is_null: bool = False,
) -> Addressed:
    """The line is the value; or the key, the separator and the value."""
    key: bytes | None = None
    value: bytes | None = line
    if key_separator is not None:
        before, found, after = line.partition(key_separator)
        if found:
            key, value = before, after
    if empty_is_null:
        key, value = key or None, value or None
    return Addressed(Record(value, key, headers))


def record_fields(partition: TopicPartition, record: Record) -> dict[str, object]:
    """Returns what `parse_json` reads again as the same record."""
    return {
        "type": "record",
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **json_bytes("key", record.key),
        **json_bytes("value", record.value),
        "headers": [{"key": each.key, **json_bytes("value", each.value)} for each in record.headers],
    }


def parse_json(line: bytes, headers: tuple[Header, ...] = ()) -> Addressed:
    """Raises `InvalidRecordError` for what is not such an object."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidRecordError(f"it is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise InvalidRecordError("it is not a JSON object")
    unknown = fields.keys() - FIELDS - IGNORED
    if unknown:
        raise InvalidRecordError(f"it has unknown fields: {', '.join(sorted(unknown))}")
    record = Record(
        _as_bytes(fields, "value"),
        _as_bytes(fields, "key"),
        (*_headers_of(fields.get("headers")), *headers),
        _whole(fields, "timestamp_ms", -1),
    )
    partition = _whole(fields, "partition", -1)
    return Addressed(record, None if partition < 0 else partition)


def _as_bytes(fields: Mapping[str, Any], name: str) -> bytes | None:
    value = fields.get(name)
    if value is None:
        return None
    encoding = fields.get(f"{name}_encoding")
    if encoding == "base64":
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError, TypeError) as error:
            raise InvalidRecordError(f"its {name} is not base64: {error}") from error
    if encoding is not None:
        raise InvalidRecordError(f"its {name} has the unknown encoding {encoding!r}; there is base64")
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRecordError(f"its {name} is not Unicode: {error.reason}") from error


def _whole(fields: Mapping[str, Any], name: str, default: int) -> int:
    value = fields.get(name)
    if value is None:
        return default
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise InvalidRecordError(f"its {name} is {value!r}, which is no whole number of 64 bits")
    return value


def _headers_of(given: object) -> list[Header]:
    if given is None:
        return []
    if isinstance(given, dict):
        given = [{"key": key, "value": value} for key, value in given.items()]
    if not isinstance(given, list):
        raise InvalidRecordError("its headers are neither a list nor an object")
    headers = []
    for each in given:
        if not isinstance(each, dict) or not isinstance(each.get("key"), str):
            raise InvalidRecordError("a header of it has no key")
        headers.append(Header(each["key"], _as_bytes(each, "value")))
    return headers
