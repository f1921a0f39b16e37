"""A log's settings and every limit, under the names Kafka's users know.

`LogConfig` is frozen; a change makes a new one.  Each field carries its Kafka name, so the same
declaration serves Python callers (`LogConfig(segment_bytes=1 << 20)`), property files and admin requests
(`LogConfig.from_properties({"segment.bytes": "1048576"})`).
"""

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar, cast

from distributedlog.model.errors import ConfigError
from distributedlog.model.setting_text import read_boolean, read_list, read_number, read_whole_number

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
TIME_INDEX_ENTRY_BYTES = 12

CLEANUP_POLICIES = ("delete", "compact")
COMPRESSION_TYPES = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
RECORD_VALIDATIONS = ("full", "header")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


def _setting(default: Any, name: str, doc: str, **bounds: Any) -> Any:
    return field(default=default, metadata={"name": name, "doc": doc, **bounds})


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The settings of one partition's log."""

    segment_bytes: int = _setting(
        1 * GIB, "segment.bytes", "A segment that would grow past this is sealed and a new one begun.",
        low=1024, high=INT32_MAX,
    )  # fmt: skip
    segment_ms: int = _setting(
        7 * DAY_MS, "segment.ms", "A segment older than this is sealed although it is not full.", low=1
    )
    segment_jitter_ms: int = _setting(
        0, "segment.jitter.ms", "A random part of this is taken from segment.ms, to spread the work.", low=0
    )
    segment_index_bytes: int = _setting(
        10 * MIB, "segment.index.bytes",
        "The size an index may reach before its segment is sealed; one entry always fits.",
        low=4, high=INT32_MAX,
    )  # fmt: skip
    index_interval_bytes: int = _setting(
        4 * KIB, "index.interval.bytes", "One index entry is written for about this much log.",
        low=0, high=INT32_MAX,
    )  # fmt: skip
    max_message_bytes: int = _setting(
        1 * MIB + 12, "max.message.bytes", "The largest batch that is accepted, as compressed.",
        low=0, high=INT32_MAX,
    )  # fmt: skip
    cleanup_policy: tuple[str, ...] = _setting(
        ("delete",),
        "cleanup.policy",
        "delete, compact, both, or neither: then all is kept.",
        choices=CLEANUP_POLICIES,
    )
    retention_ms: int = _setting(
        7 * DAY_MS,
        "retention.ms",
        "Segments whose newest record is older are deleted; -1 keeps them.",
        low=-1,
    )
    retention_bytes: int = _setting(
        -1,
        "retention.bytes",
        "Oldest segments are deleted while the log is larger; a negative one sets no bound.",
        low=INT64_MIN,
    )
    delete_retention_ms: int = _setting(
        1 * DAY_MS, "delete.retention.ms", "How long a tombstone is kept after compaction has seen it.", low=0
    )
    min_cleanable_dirty_ratio: float = _setting(
        0.5, "min.cleanable.dirty.ratio", "The part of the log that must be uncompacted to start compaction.",
        low=0.0, high=1.0,
    )  # fmt: skip
    min_compaction_lag_ms: int = _setting(
        0, "min.compaction.lag.ms", "A record younger than this is never compacted away.", low=0
    )
    max_compaction_lag_ms: int = _setting(
        INT64_MAX,
        "max.compaction.lag.ms",
        "A record older than this is compacted at any dirty ratio.",
        low=1,
    )
    message_timestamp_type: str = _setting(
        "CreateTime", "message.timestamp.type", "Whose clock stamps a record.", choices=TIMESTAMP_TYPES
    )
    message_timestamp_before_max_ms: int = _setting(
        INT64_MAX, "message.timestamp.before.max.ms", "How far a timestamp may lie in the past.", low=0
    )
    message_timestamp_after_max_ms: int = _setting(
        1 * HOUR_MS, "message.timestamp.after.max.ms", "How far a timestamp may lie in the future.", low=0
    )
    compression_type: str = _setting(
        "producer", "compression.type", "What batches are stored as; 'producer' keeps what came.",
        choices=COMPRESSION_TYPES,
    )  # fmt: skip
    record_validation: str = _setting(
        "full", "record.validation",
        "What is checked of a produced batch: 'full' walks every record, 'header' ends at the checksum.",
        choices=RECORD_VALIDATIONS,
    )  # fmt: skip
    flush_messages: int = _setting(
        INT64_MAX, "flush.messages", "Sync after this many records, whoever waits.", low=1
    )
    flush_ms: int = _setting(
        INT64_MAX, "flush.ms", "Sync at least this often while there is unsynced data.", low=0
    )
    flush_on_commit: bool = _setting(
        True, "flush.on.commit", "Count a record as stored only once it is synced to the disk."
    )
    file_delete_delay_ms: int = _setting(
        1 * MINUTE_MS, "file.delete.delay.ms", "How long a deleted segment's files stay, for who reads them.",
        low=0,
    )  # fmt: skip
    producer_id_expiration_ms: int = _setting(
        1 * DAY_MS,
        "producer.id.expiration.ms",
        "An idempotent producer silent for this long is forgotten.",
        low=1,
        high=INT32_MAX,
    )

    by_name: ClassVar[Mapping[str, "Field[Any]"]]

    def __post_init__(self) -> None:
        for setting in fields(self):
            _check(setting, getattr(self, setting.name))

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def index_bytes_max(self) -> int:
        """What `segment.index.bytes` come to: an index holds one entry at least."""
        return max(self.segment_index_bytes, TIME_INDEX_ENTRY_BYTES)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> "LogConfig":
        """Reads Kafka's names and spellings; an unknown name is an error that says so."""
        values: dict[str, Any] = {}
        for name, text in properties.items():
            setting = cls.by_name.get(name)
            if setting is None:
                raise ConfigError(f"unknown setting {name!r}; known are {', '.join(sorted(cls.by_name))}")
            values[setting.name] = _parse(setting, text)
        return cls(**values)

    def to_properties(self) -> dict[str, str]:
        return {name: _spell(getattr(self, setting.name)) for name, setting in self.by_name.items()}


LogConfig.by_name = {cast(str, setting.metadata["name"]): setting for setting in fields(LogConfig)}


def _parse(setting: "Field[Any]", text: str) -> Any:
    if setting.type is str:
        return text.strip()
    return _READERS.get(setting.type, read_list)(setting.metadata["name"], text)


_READERS: Mapping[Any, Callable[[str, str], Any]] = {
    bool: read_boolean, int: read_whole_number, float: read_number,
}  # fmt: skip


def _kind(setting: "Field[Any]") -> str:
    return {bool: "true or false", int: "whole number", float: "number"}.get(cast(type, setting.type), "text")


def _spell(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


_TYPES: Mapping[Any, tuple[type, ...]] = {bool: (bool,), int: (int,), float: (int, float), str: (str,)}


def _check(setting: "Field[Any]", value: Any) -> None:
    bounds = setting.metadata
    types = _TYPES.get(setting.type)
    if types and (not isinstance(value, types) or (isinstance(value, bool) and setting.type is not bool)):
        raise ConfigError(f"{bounds['name']} cannot be {value!r}: it is a {_kind(setting)}")
    low, high, choices = bounds.get("low"), bounds.get("high", INT64_MAX), bounds.get("choices")
    if low is not None and not low <= value <= high:
        raise ConfigError(f"{bounds['name']} is {value}; it must lie between {low} and {high}")
    if choices is not None:
        values = value if isinstance(value, tuple) else (value,)
        wrong = [part for part in values if part not in choices]
        if wrong:
            raise ConfigError(f"{bounds['name']} is {_spell(value)!r}; it must be of {', '.join(choices)}")
