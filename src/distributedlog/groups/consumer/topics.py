"""What a coordinator sees of the cluster's topics, and of groups' own settings.  The broker gives it, from
its image of the metadata.

Nothing here is replayed: two coordinators may see the topics at different times.  What was made of them (an
assignment, the topics that a pattern stood for) is written down, and that is replayed.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from distributedlog.model.ids import Uuid


class TopicIdPartition(NamedTuple):
    """A partition, by its topic's id: a later topic of the same name has others."""

    topic_id: Uuid
    partition: int


TopicIdPartitions = frozenset[TopicIdPartition]
NO_PARTITIONS: TopicIdPartitions = frozenset()


class TopicView(NamedTuple):
    topic_id: Uuid
    name: str
    partition_count: int


class Topics(Protocol):
    """The topics of one metadata image.  The marks are compared with `is`: the same object means that
    nothing has changed."""

    @property
    def mark(self) -> object:
        """A mark that changes with all topics and their partitions."""
        ...

    @property
    def names_mark(self) -> object:
        """A mark of the names: topics come and go less often than their partitions change."""
        ...

    @property
    def version(self) -> int:
        """The version of the metadata as a whole; it only rises."""
        ...

    def named(self, name: str) -> TopicView | None: ...

    def name_of(self, topic_id: Uuid) -> str | None: ...

    def names(self) -> Iterable[str]:
        """Returns the names that a pattern may stand for: internal topics are not among them."""
        ...

    def group_settings(self, group_id: str) -> Mapping[str, str]:
        """Those that the group has for itself."""
        ...


class NoTopics:
    """The topics of a coordinator that nobody has shown any."""

    mark: object = None
    names_mark: object = None
    version = 0

    def named(self, name: str) -> TopicView | None:
        return None

    def name_of(self, topic_id: Uuid) -> str | None:
        return None

    def names(self) -> Iterable[str]:
        return ()

    def group_settings(self, group_id: str) -> Mapping[str, str]:
        return {}


NO_TOPICS = NoTopics()
