"""What differs between two images.  Found by walking only what they do not share: the cost is the change's.

Brokers act on it: they start, stop and follow partitions, reload settings, and forget topics.  A topic that
was deleted and created again under its name is another topic: its old id is removed and the new one created.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from distributedlog.controller.image import (
    Broker,
    ConfigResource,
    MetadataImage,
    Partition,
    QuotaEntity,
    Quotas,
    Settings,
    Topic,
)
from distributedlog.controller.persistent_map import Change, PersistentMap, changes
from distributedlog.model.ids import Uuid

K = TypeVar("K")
V = TypeVar("V")


class PartitionDelta(NamedTuple):
    """A partition that was changed or added in a topic that both images have."""

    topic: Topic
    """As the newer image has it."""
    partition_id: int
    old: Partition | None
    new: Partition | None


class Scalars(NamedTuple):
    offset: int
    epoch: int
    controller_id: int
    cluster_id: str
    next_producer_id: int


class ImageDelta(NamedTuple):
    topics_created: tuple[Topic, ...]
    topics_removed: tuple[Topic, ...]
    partitions: tuple[PartitionDelta, ...]
    brokers: tuple[Change[int, Broker], ...]
    configs: tuple[Change[ConfigResource, Settings], ...]
    features: tuple[Change[str, int], ...]
    quotas: tuple[Change[QuotaEntity, Quotas], ...]
    scalars: Scalars
    """Of the newer image, changed or not."""

    def apply_to(self, old: MetadataImage) -> MetadataImage:
        """The newer image, out of the older."""
        topics, topic_ids = old.topics, old.topic_ids
        for topic in self.topics_removed:
            topics = topics.delete(topic.topic_id)
            topic_ids = topic_ids.delete(topic.name)
        for topic in self.topics_created:
            topics = topics.set(topic.topic_id, topic)
            topic_ids = topic_ids.set(topic.name, topic.topic_id)
        for delta in self.partitions:
            topic = topics[delta.topic.topic_id]
            topics = topics.set(topic.topic_id, topic._replace(partitions=_edited_partitions(topic, delta)))
        return MetadataImage(
            *self.scalars,
            _edited(old.features, self.features),
            _edited(old.brokers, self.brokers),
            topics,
            topic_ids,
            _edited(old.configs, self.configs),
            _edited(old.quotas, self.quotas),
        )


def diff(old: MetadataImage, new: MetadataImage) -> ImageDelta:
    created: list[Topic] = []
    removed: list[Topic] = []
    partitions: list[PartitionDelta] = []
    for change in changes(old.topics, new.topics):
        if change.new is None:
            removed.append(_there(change.old))
        elif change.old is None:
            created.append(change.new)
        else:
            partitions.extend(_partition_deltas(change))
    return ImageDelta(
        tuple(created),
        tuple(removed),
        tuple(partitions),
        tuple(changes(old.brokers, new.brokers)),
        tuple(changes(old.configs, new.configs)),
        tuple(changes(old.features, new.features)),
        tuple(changes(old.quotas, new.quotas)),
        Scalars(new.offset, new.epoch, new.controller_id, new.cluster_id, new.next_producer_id),
    )


def _there(topic: Topic | None) -> Topic:
    assert topic is not None, "a change has an old or a new side"
    return topic


def _partition_deltas(change: Change[Uuid, Topic]) -> Iterator[PartitionDelta]:
    old, new = _there(change.old), _there(change.new)
    for each in changes(old.partitions, new.partitions):
        yield PartitionDelta(new, each.key, each.old, each.new)


def _edited_partitions(topic: Topic, delta: PartitionDelta) -> PersistentMap[int, Partition]:
    if delta.new is None:
        return topic.partitions.delete(delta.partition_id)
    return topic.partitions.set(delta.partition_id, delta.new)


def _edited(before: PersistentMap[K, V], edits: tuple[Change[K, V], ...]) -> PersistentMap[K, V]:
    for edit in edits:
        before = before.delete(edit.key) if edit.new is None else before.set(edit.key, edit.new)
    return before
