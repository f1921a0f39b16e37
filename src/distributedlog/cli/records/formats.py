r"""`-f`: how a record is printed, in kcat's words.  Pure.

    %t topic      %p partition     %o offset      %T timestamp, in milliseconds since 1970
    %k key        %v or %s value   %h headers, as name=value,name=value
    %K length of the key, -1 for none             %S length of the value, -1 for none
    %% percent    \n \t \r \0 \\ \xHH             what they are everywhere

Keys, values and headers are printed as the bytes they are, unless there is a function that escapes them.  A
format that does not end in an escape gets a newline behind it.
"""

import re
from collections.abc import Callable
from typing import Final

from distributedlog.model.errors import ConfigError
from distributedlog.model.ids import TopicPartition
from distributedlog.records.record import Record

Piece = Callable[[TopicPartition, Record], bytes]
Format = Callable[[TopicPartition, Record], bytes]

_TOKEN = re.compile(
    r"%(?P<token>.)|\\x(?P<hex>[0-9A-Fa-f]{2})|\\(?P<escape>.)|(?P<text>[^%\\]+)|(?P<end>[%\\])", re.S
)
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def unescaped(text: str) -> bytes:
    r"""A separator as it is written on a command line: `\t` is a tab."""
    return b"".join(
        _escape(match) if match["text"] is None and match["token"] is None else match[0].encode()
        for match in _TOKEN.finditer(text)
    )


def _escape(match: "re.Match[str]") -> bytes:
    if match["hex"] is not None:
        return bytes([int(match["hex"], 16)])
    found = _ESCAPES.get(match["escape"] or "")
    if found is None:
        raise ConfigError(rf"{match[0]!r} is no escape; there are \n \t \r \0 \\ \xHH")
    return found


def compile_format(text: str, null: bytes = b"", *, escape: Callable[[bytes], bytes] | None = None) -> Format:
    """Returns a function that prints a record; `null` stands for a key or value that is not there.

    What comes from a record goes through `escape`; what the format says itself does not.
    """
    pieces: list[bytes | Piece] = []
    tokens = _tokens(null, escape or _as_it_is)
    ends_in_escape = False
    for match in _TOKEN.finditer(text):
        ends_in_escape = match["hex"] is not None or match["escape"] is not None
        if match["text"] is not None:
            pieces.append(match["text"].encode())
        elif match["token"] is not None:
            if match["token"] not in tokens:
                known = " ".join(f"%{token}" for token in tokens)
                raise ConfigError(f"%{match['token']} means nothing in a format; there are {known}")
            pieces.append(tokens[match["token"]])
        else:
            pieces.append(_escape(match))
    if not ends_in_escape:
        pieces.append(b"\n")

    def print_record(partition: TopicPartition, record: Record) -> bytes:
        return b"".join(piece if isinstance(piece, bytes) else piece(partition, record) for piece in pieces)

    return print_record


def _as_it_is(data: bytes) -> bytes:
    return data


def _tokens(null: bytes, escape: Callable[[bytes], bytes]) -> dict[str, Piece]:
    def value(_: TopicPartition, record: Record) -> bytes:
        return null if record.value is None else escape(record.value)

    def key(_: TopicPartition, record: Record) -> bytes:
        return null if record.key is None else escape(record.key)

    return {
        "t": lambda partition, _: partition.topic.encode(),
        "p": lambda partition, _: b"%d" % partition.partition,
        "o": lambda _, record: b"%d" % record.offset,
        "T": lambda _, record: b"%d" % record.timestamp_ms,
        "k": key,
        "v": value,
        "s": value,
        "h": lambda _, record: escape(_headers(record)),
        "K": lambda _, record: b"%d" % _length(record.key),
        "S": lambda _, record: b"%d" % _length(record.value),
        "%": lambda _partition, _record: b"%",
    }


def _length(field: bytes | None) -> int:
    return -1 if field is None else len(field)


def _headers(record: Record) -> bytes:
    return b",".join(
        header.key.encode() + b"=" + (b"NULL" if header.value is None else header.value)
        for header in record.headers
    )
