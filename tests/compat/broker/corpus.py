"""The records that every client writes and every other reads, each with the trait that it stands for.

A client that lacks a trait (see features.py) writes the corpus without it.
"""

import base64
from typing import Any, NamedTuple

from distributedlog.records.record import Record, encode_batch
from tests.compat.broker.features import ABSENT, TIMESTAMPS

NOW_MS = 1_760_000_000_000
LARGE_BYTES = 300_000
MESSAGE_BYTES_MAX = 1_048_588
"""The default of message.max.bytes: 1 MiB, and the 12 bytes that a batch does not count as its length."""
CLIENT_BYTES_MAX = 8 * 1024 * 1024
"""What clients are told is theirs to send, so that it is the broker who says no."""


class Entry(NamedTuple):
    trait: str
    record: dict[str, Any]


def text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode("ascii")


def record(
    value: bytes | None,
    key: bytes | None = None,
    headers: list[tuple[str, bytes | None]] | None = None,
    timestamp: int | None = None,
) -> dict[str, Any]:
    return {
        "key": text(key),
        "value": text(value),
        "headers": [[name, text(content)] for name, content in headers or []],
        "timestamp": timestamp,
    }


def _records() -> list[Entry]:
    letters = bytes(range(ord("A"), ord("Z") + 1))
    return [
        Entry("keys", record(b"value", b"key")),
        Entry("keys", record(letters * 40, "ключ".encode())),
        Entry("null keys", record(b"no key")),
        Entry("empty keys", record(b"value", b"")),
        Entry("one byte", record(b"1")),
        Entry("empty values", record(b"", b"key")),
        Entry("binary values", record(bytes(range(256)), bytes(range(0, 256, 7)))),
        *(
            Entry("many in a batch", record(b"value %d" % number, b"%d" % (number % 7)))
            for number in range(200)
        ),
        Entry("large values", record(letters * (LARGE_BYTES // len(letters)), b"large")),
        Entry("tombstones", record(None, b"key")),
        Entry("null key and value", record(None)),
        Entry("headers", record(b"v", b"k", [("a", b"1"), ("ünï", "wörth".encode()), ("empty", b"")])),
        Entry("repeated headers", record(b"v", b"k", [("a", b"1"), ("a", b"2"), ("b", b"3")])),
        Entry("null headers", record(b"v", b"k", [("null", None), ("a", b"1")])),
        Entry("headers on a tombstone", record(None, b"k", [("a", b"1")])),
    ]


def corpus_for(client: str) -> list[Entry]:
    """What this client can write, with rising timestamps if it sets them."""
    entries = [entry for entry in _records() if (client, entry.trait) not in ABSENT]
    if (client, TIMESTAMPS) not in ABSENT:
        for number, entry in enumerate(entries):
            entry.record["timestamp"] = NOW_MS + 1000 * number
    return entries


def largest_value() -> bytes:
    """Returns a value with which, and nothing else in it, a batch is as large as the broker takes."""
    near = MESSAGE_BYTES_MAX - 100
    overhead = _batch_bytes(near) - near
    size = MESSAGE_BYTES_MAX - overhead
    assert _batch_bytes(size) == MESSAGE_BYTES_MAX
    return b"x" * size


def _batch_bytes(value_bytes: int) -> int:
    return len(encode_batch([Record(bytes(value_bytes), None, (), NOW_MS, 0)]))
