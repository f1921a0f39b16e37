"""Positions as JSON: those of Spark's Kafka source, so that they can be pasted from one to the other.

    {"orders": {"0": 23, "1": -2}, "payments": {"0": -1}}

A number is the offset of the next record; where a query starts, -2 stands for the first one there is and -1
for the end.  What a query journals has only offsets, and beside each topic its id:

    {"orders": {"0": 23, "1": 40}, "orders@0LgvoGIPQOKRHn4tmTMCBQ": {}}

Why the id: a topic that was deleted and made again under the same name has other records at the same offsets,
and a query that goes on from its checkpoint must not read those as if nothing had happened.  Why in this
form: the checkpoint holds nothing else of ours; no topic's name has an `@` in it; and Spark's Kafka source,
which reads each entry as a map of partitions, finds none in this one and passes over it.  So a checkpoint can
be taken over in either direction, and a pasted position still knows which topic it was about.

Spark compares positions as text: topics and partitions are always written in the same order.  Pure.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from distributedlog.client.offset_specs import EARLIEST, LATEST
from distributedlog.model.errors import ConfigError, DlogError
from distributedlog.model.ids import (
    PARTITION_MAX,
    ZERO_UUID,
    TopicPartition,
    Uuid,
    check_topic_name,
)

ID_MARK: Final = "@"
OFFSET_MAX: Final = 2**63 - 1
TEXT_BYTES_MAX: Final = 64 * 1024 * 1024
OFFSETS_EXAMPLE: Final = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
PARTITIONS_EXAMPLE: Final = '{"topicA":[0,1],"topicB":[2,4]}'
_NONE: Final[Mapping[str, Uuid]] = MappingProxyType({})


@dataclass(frozen=True)
class Positions:
    """Where each partition stands, and which topics those are."""

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, Uuid] = field(default_factory=lambda: _NONE)
    """The ids of the topics whose id is known."""

    def as_json(self) -> dict[str, dict[str, int]]:
        """Returns what Spark journals.  The same positions are always the same text."""
        topics: dict[str, dict[str, int]] = {}
        for (topic, partition), offset in sorted(self.offsets.items()):
            topics.setdefault(topic, {})[str(partition)] = offset
        for topic in [each for each in topics if self.topic_ids.get(each, ZERO_UUID) != ZERO_UUID]:
            topics[f"{topic}{ID_MARK}{self.topic_ids[topic]}"] = {}
        return topics


def positions_of(decoded: object, option: str = "the offset") -> Positions:
    """Makes positions out of decoded JSON: what Spark journaled, or what somebody pasted."""
    offsets: dict[TopicPartition, int] = {}
    topic_ids: dict[str, Uuid] = {}
    for topic, partitions in _topics_of(decoded, option, OFFSETS_EXAMPLE).items():
        if not isinstance(partitions, dict):
            raise _unreadable(option, OFFSETS_EXAMPLE, decoded)
        name, mark, topic_id = topic.partition(ID_MARK)
        if mark and not partitions:
            topic_ids[_topic(name, option)] = _topic_id(topic_id, option)
            continue
        for index, offset in partitions.items():
            offsets[_partition(topic, index, option)] = _number(offset, option, decoded)
    return Positions(MappingProxyType(offsets), MappingProxyType(topic_ids))


def parse_positions(text: str, option: str) -> Positions:
    """Parses the positions of an option: -1 and -2 are allowed, other negative numbers are not."""
    found = positions_of(_decoded(text, option, OFFSETS_EXAMPLE), option)
    for partition, offset in found.offsets.items():
        if offset < 0 and offset not in (EARLIEST, LATEST):
            raise ConfigError(f"{option} has {offset} for {partition}: -2 is the first, -1 the end")
    if not found.offsets:
        raise ConfigError(f"{option} names no partition: write e.g. {OFFSETS_EXAMPLE}")
    return found


def parse_partitions(text: str, option: str) -> tuple[TopicPartition, ...]:
    """Parses the value of `assign`: `{"orders": [0, 2]}`."""
    decoded = _decoded(text, option, PARTITIONS_EXAMPLE)
    found: set[TopicPartition] = set()
    for topic, indexes in _topics_of(decoded, option, PARTITIONS_EXAMPLE).items():
        if not isinstance(indexes, list):
            raise _unreadable(option, PARTITIONS_EXAMPLE, decoded)
        found.update(_partition(topic, index, option) for index in indexes)
    if not found:
        raise ConfigError(f"{option} names no partition: write e.g. {PARTITIONS_EXAMPLE}")
    return tuple(sorted(found))


def parse_by_partition(text: str, option: str, example: str) -> dict[TopicPartition, str]:
    """Returns what stands beside each partition, as text: times may be numbers or words."""
    decoded = _decoded(text, option, example)
    found: dict[TopicPartition, str] = {}
    for topic, partitions in _topics_of(decoded, option, example).items():
        if not isinstance(partitions, dict):
            raise _unreadable(option, example, decoded)
        for index, value in partitions.items():
            if type(value) not in (int, str):
                raise _unreadable(option, example, decoded)
            found[_partition(topic, index, option)] = str(value)
    if not found:
        raise ConfigError(f"{option} names no partition: write e.g. {example}")
    return found


# --- pieces ------------------------------------------------------------------------------------


def _decoded(text: str, option: str, example: str) -> object:
    if len(text) > TEXT_BYTES_MAX:
        raise ConfigError(f"{option} is {len(text)} characters long; {TEXT_BYTES_MAX} fit")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unreadable(option, example, text) from error


def _topics_of(decoded: object, option: str, example: str) -> dict[str, Any]:
    if not isinstance(decoded, dict):
        raise _unreadable(option, example, decoded)
    return decoded


def _unreadable(option: str, example: str, decoded: object) -> ConfigError:
    text = decoded if isinstance(decoded, str) else json.dumps(decoded)
    return ConfigError(f"{option} is {text[:200]}, which cannot be read: write e.g. {example}")


def _topic(name: str, option: str) -> str:
    try:
        return check_topic_name(name)
    except DlogError as error:
        raise ConfigError(f"{option}: {error}") from error


def _topic_id(text: str, option: str) -> Uuid:
    try:
        return Uuid.parse(text)
    except DlogError as error:
        raise ConfigError(f"{option}: {error}") from error


def _partition(topic: str, index: object, option: str) -> TopicPartition:
    text = str(index) if type(index) in (int, str) else ""
    if not text.isascii() or not text.isdigit() or len(text) > 10 or int(text) > PARTITION_MAX:
        raise ConfigError(f"{option} has {index!r} for a partition of {topic!r}: write a whole number")
    return TopicPartition(_topic(topic, option), int(text))


def _number(offset: object, option: str, decoded: object) -> int:
    if type(offset) is not int or not -OFFSET_MAX <= offset <= OFFSET_MAX:
        raise _unreadable(option, OFFSETS_EXAMPLE, decoded)
    return offset
