"""The small text files, byte for byte as Kafka has them.  Only their codecs: `files` reads and writes them.

Beside the partitions, in a data directory:

    recovery-point-offset-checkpoint   up to where each partition was synced    \\
    replication-offset-checkpoint      each partition's high watermark           | offset checkpoints
    log-start-offset-checkpoint        log starts that no segment's name shows   |
    cleaner-offset-checkpoint          up to where each partition was compacted /
    meta.properties                    whose directory this is
    .kafka_cleanshutdown               there only after a clean shutdown
    .lock                              held by the process that owns the directory

and in each partition's own:

    leader-epoch-checkpoint            which leader wrote from which offset on
    partition.metadata                 the topic's id

An offset or epoch checkpoint is lines of UTF-8 text, each ended by a newline:

    0                                  the version
    2                                  how many entries follow
    orders 0 1234                      topic, partition, offset      (epochs: epoch, start offset)
    orders 1 99

An empty file is one without entries: Kafka creates them so.  `partition.metadata` is two lines with no
newline after the second; `meta.properties` is a Java properties file; the clean-shutdown file is JSON.

All are replaced atomically, so a crash leaves an old or a new one, never a mixture: what does not parse was
damaged, and is `CorruptLogError`.  Every count and number is checked before it is used.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from distributedlog.model.errors import CorruptLogError, InvalidNameError
from distributedlog.model.ids import PARTITION_MAX, ZERO_UUID, TopicPartition, Uuid, check_topic_name
from distributedlog.storage.epochs import EpochEntry

RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
LOG_START_FILE = "log-start-offset-checkpoint"
CLEANER_FILE = "cleaner-offset-checkpoint"
META_PROPERTIES_FILE = "meta.properties"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"
LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"

CHECKPOINT_BYTES_MAX = 64 * 1024 * 1024
PROPERTIES_BYTES_MAX = 1024 * 1024
CLEAN_SHUTDOWN_BYTES_MAX = 4096
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

_NUMBER = re.compile(r"[0-9]{1,19}", re.ASCII)
_COMMENT_MARKS = ("#", "!")
_BLANKS = " \t\f"
_KEY_AND_SEPARATOR = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_ESCAPED = re.compile(r"\\(u.{0,4}|.)", re.DOTALL)
_TO_ESCAPE_IN_KEY = re.compile(r"[\\=:#! ]|[^ -~]")
_TO_ESCAPE_IN_VALUE = re.compile(r"[\\=:#!]|^ |[^ -~]")
_ESCAPE_LETTERS = {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}
_ESCAPE_MEANINGS = {letter: meaning for meaning, letter in _ESCAPE_LETTERS.items()}


# --- lines -------------------------------------------------------------------------------------


def _decode_text(data: bytes, name: str, bytes_max: int) -> str:
    if len(data) > bytes_max:
        raise CorruptLogError(f"{name} is {len(data)} bytes long; more than {bytes_max} cannot be right")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptLogError(f"{name} is not UTF-8 text at byte {error.start}") from None


def _lines(text: str) -> list[str]:
    """Splits into lines as Java does: ended by a newline, a carriage return or both; the last one need not
    be."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def _number(text: str, what: str, name: str, high: int) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > high:
        raise CorruptLogError(f"{name}: {text[:40]!r} is not {what}")
    return int(text)


def _decode_entries(data: bytes, name: str, columns: int) -> list[list[str]]:
    """Checks version and count, and splits each entry into its columns."""
    lines = _lines(_decode_text(data, name, CHECKPOINT_BYTES_MAX))
    if lines and _number(lines[0], "a version", name, INT32_MAX) != 0:
        raise CorruptLogError(f"{name} is of version {lines[0]}; only version 0 is known")
    if len(lines) < 2:
        return []
    count = _number(lines[1], "a count of entries", name, INT32_MAX)
    if count != len(lines) - 2:
        raise CorruptLogError(f"{name} should have {count} entries and has {len(lines) - 2}")
    entries = [line.split() for line in lines[2:]]
    for at, entry in enumerate(entries):
        if len(entry) != columns:
            raise CorruptLogError(f"{name}: line {at + 3} has {len(entry)} fields and should have {columns}")
    return entries


def _encode_entries(lines: list[str]) -> bytes:
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode("utf-8")


# --- offset checkpoints ------------------------------------------------------------------------


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The same bytes for the same offsets: sorted by topic and partition."""
    return _encode_entries(
        [f"{topic} {number} {offset}" for (topic, number), offset in sorted(offsets.items())]
    )


def decode_offsets(data: bytes, name: str = "an offset checkpoint") -> dict[TopicPartition, int]:
    offsets = {}
    for topic, partition, offset in _decode_entries(data, name, columns=3):
        try:
            check_topic_name(topic)
        except InvalidNameError as error:
            raise CorruptLogError(f"{name}: {error}") from None
        key = TopicPartition(topic, _number(partition, "a partition", name, PARTITION_MAX))
        offsets[key] = _number(offset, "an offset", name, INT64_MAX)
    return offsets


# --- leader epochs -----------------------------------------------------------------------------


def encode_epochs(entries: Iterable[EpochEntry]) -> bytes:
    return _encode_entries([f"{epoch} {start_offset}" for epoch, start_offset in entries])


def decode_epochs(data: bytes, name: str = LEADER_EPOCH_FILE) -> list[EpochEntry]:
    return [
        EpochEntry(_number(epoch, "an epoch", name, INT32_MAX), _number(offset, "an offset", name, INT64_MAX))
        for epoch, offset in _decode_entries(data, name, columns=2)
    ]


# --- partition.metadata ------------------------------------------------------------------------


def encode_partition_metadata(topic_id: Uuid) -> bytes:
    return f"version: 0\ntopic_id: {topic_id}".encode("ascii")


def decode_partition_metadata(data: bytes, name: str = PARTITION_METADATA_FILE) -> Uuid:
    lines = _lines(_decode_text(data, name, PROPERTIES_BYTES_MAX))
    fields = [line.split(": ", 1) for line in lines]
    if [field[0] for field in fields] != ["version", "topic_id"] or any(len(field) != 2 for field in fields):
        raise CorruptLogError(f"{name} should have the lines 'version: 0' and 'topic_id: ID'")
    (_, version), (_, text) = fields
    if _number(version, "a version", name, INT32_MAX) != 0:
        raise CorruptLogError(f"{name} is of version {version}; only version 0 is known")
    return _topic_id(text, name)


def _topic_id(text: str, name: str) -> Uuid:
    topic_id = _uuid(text, name)
    if topic_id == ZERO_UUID:
        raise CorruptLogError(f"{name} holds the id of no topic: all zeros")
    return topic_id


def _uuid(text: str, name: str) -> Uuid:
    try:
        return Uuid.parse(text)
    except InvalidNameError as error:
        raise CorruptLogError(f"{name}: {error}") from None


# --- meta.properties ---------------------------------------------------------------------------


class MetaProperties(NamedTuple):
    """Whose directory this is.  Version 0, of ZooKeeper's days, may lack each of them."""

    cluster_id: str | None
    node_id: int | None
    directory_id: Uuid | None
    version: int = 1


def encode_meta_properties(meta: MetaProperties) -> bytes:
    """Encodes version 1, which Kafka writes too; without the date that Java puts into a comment."""
    if meta.cluster_id is None or meta.node_id is None:
        raise ValueError("a data directory belongs to a node of a cluster: both ids are needed")
    properties = {"cluster.id": meta.cluster_id}
    if meta.directory_id is not None:
        properties["directory.id"] = str(meta.directory_id)
    properties |= {"node.id": str(meta.node_id), "version": "1"}
    return encode_properties(properties)


def decode_meta_properties(data: bytes, name: str = META_PROPERTIES_FILE) -> MetaProperties:
    """Decodes the properties; unknown ones are passed over, as Kafka does."""
    properties = decode_properties(data, name)
    version = _number(properties.get("version", "0").strip(), "a version", name, INT32_MAX)
    if version not in (0, 1):
        raise CorruptLogError(f"{name} is of version {version}; only 0 and 1 are known")
    node = properties.get("node.id" if version else "broker.id")
    cluster_id, directory = properties.get("cluster.id"), properties.get("directory.id")
    if version and (node is None or cluster_id is None):
        raise CorruptLogError(f"{name} should name a cluster.id and a node.id")
    return MetaProperties(
        cluster_id,
        None if node is None else _number(node, "a node id", name, INT32_MAX),
        None if directory is None else _uuid(directory, name),
        version,
    )


# --- Java properties ---------------------------------------------------------------------------


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """One `key=value` a line, in the order given, under the empty comment that Kafka writes."""
    lines = [
        f"{_TO_ESCAPE_IN_KEY.sub(_escape, key)}={_TO_ESCAPE_IN_VALUE.sub(_escape, value)}"
        for key, value in properties.items()
    ]
    return "\n".join(["#", *lines, ""]).encode("ascii")


def decode_properties(data: bytes, name: str) -> dict[str, str]:
    """Decodes a properties file; the last value of a key counts."""
    properties = {}
    for line in _logical_lines(_decode_text(data, name, PROPERTIES_BYTES_MAX)):
        split = _KEY_AND_SEPARATOR.match(line)
        assert split is not None  # it matches even nothing
        properties[_unescape(split[1], name)] = _unescape(line[split.end() :], name)
    return properties


def _logical_lines(text: str) -> list[str]:
    """Returns the lines without comments and leading blanks; a backslash at the end joins the next."""
    logical: list[str] = []
    joins = False
    for natural in _lines(text):
        line = natural.lstrip(_BLANKS)
        if not joins and (not line or line.startswith(_COMMENT_MARKS)):
            continue
        if joins:
            logical[-1] += line
        else:
            logical.append(line)
        joins = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        if joins:
            logical[-1] = logical[-1][:-1]
    return logical


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if character in _ESCAPE_LETTERS:
        return "\\" + _ESCAPE_LETTERS[character]
    if " " <= character <= "~":
        return "\\" + character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex().upper()}" for at in range(0, len(units), 2))


def _unescape(text: str, name: str) -> str:
    def unescape(match: re.Match[str]) -> str:
        escaped = match[1]
        if escaped[0] != "u":
            return _ESCAPE_MEANINGS.get(escaped, escaped)
        if not re.fullmatch("u[0-9a-fA-F]{4}", escaped):
            raise CorruptLogError(f"{name}: \\{escaped} is not a character")
        return chr(int(escaped[1:], 16))

    units = _ESCAPED.sub(unescape, text)
    try:
        return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeDecodeError:
        raise CorruptLogError(f"{name} has half a character") from None


# --- .kafka_cleanshutdown ----------------------------------------------------------------------


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    return f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode("ascii")


def decode_clean_shutdown(data: bytes) -> int | None:
    """The broker epoch.  None if it says none: the file's being there means a clean shutdown all the same,
    and older versions left it empty."""
    if len(data) > CLEAN_SHUTDOWN_BYTES_MAX:
        return None
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    return epoch if type(epoch) is int and -1 <= epoch <= INT64_MAX else None
