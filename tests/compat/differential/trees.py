"""An answer as a tree of plain values that can be compared with another broker's.

    struct      a dict by field, of the fields that the version has
    array       of structs that have a key (see `KEYS`): a dict by key, as their order means nothing to
                clients; otherwise a list
    error code  its name
    records     a list of batches, each a dict of its header's fields and its records

What two sound brokers must answer differently becomes a symbol: ids that a broker makes are numbered as they
appear (`<producer id 1>`), so that the same id is the same symbol throughout one probe; ports, directories,
clocks and free space become one symbol each.  Texts for people become `<text>`: that there is one is
compared, its words are not.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import ZERO_UUID, Uuid
from distributedlog.protocol.kinds import Records
from distributedlog.protocol.schema import Struct, plain
from distributedlog.records.batch import read_header
from distributedlog.records.layout import BatchHeader
from distributedlog.records.record import decode_batch

Tree = Any
"""A dict by field or key, a list, or a plain value."""

TEXT: Final = "<text>"
ID_OF: Final = "id of "
"""What stands for a topic's id begins so, and goes on with its name."""
KEYS: Final = (
    ("resource_type", "resource_name"),
    ("entity_type",),
    ("api_key",),
    ("group_id",),
    ("partition_index",),
    ("partition_id",),
    ("index",),
    ("partition",),
    ("feature",),
    ("user",),
    ("log_dir",),
    ("broker_id",),
    ("node_id",),
    ("replica_id",),
    ("transactional_id",),
    ("producer_id",),
    ("member_id",),
    ("key",),
    ("name",),
    ("topic",),
    ("topic_name",),
    ("topic_id",),
    ("resource_name",),
)
"""The keys: by the first of these whose fields an array's structs have, they are told apart."""
ORDERED: Final = frozenset({"synonyms", "record_errors"})
"""Arrays whose order is part of the answer."""

_TEXTS: Final = frozenset({"error_message", "documentation", "batch_index_error_message"})
_NUMBERED: Final = {
    "producer_id": ("producer id", -1),
    "ongoing_txn_producer_id": ("producer id", -1),
    "session_id": ("fetch session", 0),
    "member_id": ("member id", ""),
    "leader": ("member id", ""),
}
"""Ids that a broker makes, and the value that stands for none."""
_SYMBOLS: Final = {
    "port": "<port>",
    "cluster_id": "<cluster id>",
    "log_dir": "<directory>",
    "finalized_features_epoch": "<epoch>",
    "last_fetch_timestamp": "<time>",
    "last_caught_up_timestamp": "<time>",
    "transaction_start_time_ms": "<time>",
    "total_bytes": "<bytes>",
    "usable_bytes": "<bytes>",
}
"""What depends on the machine or the moment, where it is known at all: a negative value is kept."""
_ERROR_CODES: Final = frozenset({"error_code", "partition_error_code", "topic_config_error_code"})


class Symbols:
    """What stands for the ids of one broker in one probe."""

    def __init__(self) -> None:
        self._by_raw: dict[tuple[str, object], str] = {}
        self._counts: dict[str, int] = {}

    def give(self, kind: str, raw: object, symbol: str) -> None:
        self._by_raw[kind, raw] = symbol

    def of(self, kind: str, raw: object) -> str:
        known = self._by_raw.get((kind, raw))
        if known is None:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            known = self._by_raw[kind, raw] = f"<{kind} {self._counts[kind]}>"
        return known


def tree_of(message: Struct, version: int, symbols: Symbols) -> dict[str, Tree]:
    """The fields that the version has; a tagged field that was not sent has its default."""
    tree: dict[str, Tree] = {}
    for each in message.fields:
        if each.is_in(version):
            value = getattr(message, each.name)
            is_records = isinstance(plain(each.kind), Records)
            tree[each.name] = (
                _batches(value, symbols) if is_records else _value(each.name, value, version, symbols)
            )
    if message.unknown_tags:
        tree["unknown_tags"] = {str(tag): data.hex() for tag, data in message.unknown_tags}
    return tree


def _value(name: str, value: Any, version: int, symbols: Symbols) -> Tree:
    if isinstance(value, Struct):
        return tree_of(value, version, symbols)
    if isinstance(value, list):
        return _elements(name, value, version, symbols)
    if isinstance(value, Uuid):
        return "<zero>" if value == ZERO_UUID else symbols.of("uuid", value)
    if value is None:
        return None
    if name in _ERROR_CODES:
        return error_name(value)
    if name in _TEXTS:
        return TEXT if value else value
    if name in _NUMBERED:
        kind, nothing = _NUMBERED[name]
        return value if value == nothing else symbols.of(kind, value)
    if name in _SYMBOLS:
        return value if isinstance(value, int) and value < 0 else _SYMBOLS[name]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return value


def error_name(code: int) -> str:
    return ErrorCode(code).name if code in set(ErrorCode) else f"error {code}"


def _elements(name: str, values: list[Any], version: int, symbols: Symbols) -> Tree:
    if not values or not isinstance(values[0], Struct):
        return [_value(name, each, version, symbols) for each in values]
    trees = [tree_of(each, version, symbols) for each in values]
    key = None if name in ORDERED else _key_of(trees[0])
    if key is None:
        return trees
    keyed: dict[str, Tree] = {}
    for tree in trees:
        called = label = ":".join(_part_of_path(tree[part]) for part in key)
        count = 1
        while label in keyed:  # given twice
            count += 1
            label = f"{called}#{count}"
        keyed[label] = tree
    return keyed


def _part_of_path(value: Tree) -> str:
    """A topic goes by its name also in versions that have its id instead."""
    return str(value).removeprefix(ID_OF).replace("/", "|")


def _key_of(tree: Mapping[str, Tree]) -> tuple[str, ...] | None:
    return next((key for key in KEYS if all(part in tree for part in key)), None)


# --- records -----------------------------------------------------------------------------------


def _batches(payload: Any, symbols: Symbols) -> Tree:
    if payload is None:
        return None
    data = bytes(payload)
    return list(_each_batch(data, symbols))


def _each_batch(data: bytes, symbols: Symbols) -> Iterator[Tree]:
    position = 0
    while position < len(data):
        try:
            header = read_header(data, position)
            records = decode_batch(data, position)
        except DlogError as error:
            yield {"undecodable": type(error).__name__, "bytes": len(data) - position}
            return
        yield {**_header(header, symbols), "records": [_record(each, header) for each in records]}
        position += header.size


def _header(header: BatchHeader, symbols: Symbols) -> dict[str, Tree]:
    fields = header._asdict()
    if header.has_producer_id:
        fields["producer_id"] = symbols.of("producer id", header.producer_id)
        fields["crc"] = "<crc>"
    if header.is_log_append_time:
        fields["max_timestamp"] = "<time>"
        fields["crc"] = "<crc>"
    if header.is_control:
        fields["base_timestamp"] = fields["max_timestamp"] = "<time>"
    return fields


def _record(record: Any, header: BatchHeader) -> dict[str, Tree]:
    fields: dict[str, Tree] = record._asdict()
    if header.is_log_append_time or header.is_control:
        fields["timestamp_ms"] = "<time>"
    return fields
