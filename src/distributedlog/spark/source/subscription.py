"""Which topics and partitions a reader is about.  Pure.

Exactly one of three options says it: names, a pattern, or partitions one by one.  What a pattern means is
looked at again and again while a query runs, so that new topics join it; internal topics never do.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from distributedlog.client.view import TopicView
from distributedlog.model.errors import ConfigError, DlogError
from distributedlog.model.ids import TopicPartition, check_topic_name
from distributedlog.spark.source.offsets import parse_partitions

WAYS: Final = ("subscribe", "subscribePattern", "assign")
LABEL_LENGTH_MAX: Final = 200
TOPICS_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class Subscription:
    names: tuple[str, ...] | None = None
    """None: those that the pattern finds."""
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] | None = None
    """None: all that the topics have."""

    @property
    def label(self) -> str:
        """What it is about, in a few words."""
        text = self.pattern or ",".join(self.names or ())
        if len(text) <= LABEL_LENGTH_MAX:
            return text
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def includes(self, name: str) -> bool:
        """Returns whether it means a topic of this name."""
        if self.pattern is None:
            return name in (self.names or ())
        return re.search(self.pattern, name) is not None

    def matches(self, topic: TopicView) -> bool:
        return self.includes(topic.name) and (self.pattern is None or not topic.is_internal)

    def partitions_of(self, topics: Iterable[TopicView], *, must_exist: bool = True) -> list[TopicPartition]:
        """Those that are meant, in order.  Raises if one that was assigned must be there and is not."""
        there = [TopicPartition(topic.name, each.index) for topic in topics for each in topic.partitions]
        if self.partitions is None:
            return sorted(there)
        missing = sorted(set(self.partitions) - set(there))
        if missing and must_exist:
            raise ConfigError(f"assign names {', '.join(map(str, missing))}, which is not there")
        return [each for each in self.partitions if each not in missing]


def parse_subscription(given: Mapping[str, str]) -> Subscription:
    """Parses the subscription out of options whose names are in lower case."""
    ways = [name for name in WAYS if name.lower() in given]
    if len(ways) != 1:
        problem = (
            f"{' and '.join(ways)} say different things" if ways else "it is not said which topics to read"
        )
        raise ConfigError(f"{problem}: give one of {', '.join(WAYS)}")
    text = given[ways[0].lower()].strip()
    if ways[0] == "assign":
        partitions = parse_partitions(text, "assign")
        return Subscription(tuple(sorted({each.topic for each in partitions})), None, partitions)
    if ways[0] == "subscribePattern":
        return Subscription(pattern=_checked_pattern(text))
    names = tuple(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
    if not names or len(names) > TOPICS_MAX:
        raise ConfigError(f"subscribe is {text[:200]!r}: write names of topics, with commas between")
    try:
        return Subscription(tuple(map(check_topic_name, names)))
    except DlogError as error:
        raise ConfigError(f"subscribe: {error}") from error


def _checked_pattern(text: str) -> str:
    if not text:
        raise ConfigError("subscribePattern is empty")
    try:
        re.compile(text)
    except re.error as error:
        raise ConfigError(f"subscribePattern is {text!r}, which is no pattern: {error}") from error
    return text
