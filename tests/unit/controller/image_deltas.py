"""The inverse of `diff`: what a delta says, applied to the older image, is the newer one."""

from typing import TypeVar

from distributedlog.controller.deltas import ImageDelta, PartitionDelta
from distributedlog.controller.image import MetadataImage, Partition, Topic
from distributedlog.controller.persistent_map import Change, PersistentMap

K = TypeVar("K")
V = TypeVar("V")


def apply_delta(delta: ImageDelta, old: MetadataImage) -> MetadataImage:
    """Returns the newer image, out of the older."""
    topics, topic_ids = old.topics, old.topic_ids
    for topic in delta.topics_removed:
        topics = topics.delete(topic.topic_id)
        topic_ids = topic_ids.delete(topic.name)
    for topic in delta.topics_created:
        topics = topics.set(topic.topic_id, topic)
        topic_ids = topic_ids.set(topic.name, topic.topic_id)
    for change in delta.partitions:
        topic = topics[change.topic.topic_id]
        topics = topics.set(topic.topic_id, topic._replace(partitions=_edited_partitions(topic, change)))
    return MetadataImage(
        *delta.scalars,
        _edited(old.features, delta.features),
        _edited(old.brokers, delta.brokers),
        topics,
        topic_ids,
        _edited(old.configs, delta.configs),
        _edited(old.quotas, delta.quotas),
        _edited(old.controllers, delta.controllers),
    )


def _edited_partitions(topic: Topic, delta: PartitionDelta) -> PersistentMap[int, Partition]:
    if delta.new is None:
        return topic.partitions.delete(delta.partition_id)
    return topic.partitions.set(delta.partition_id, delta.new)


def _edited(before: PersistentMap[K, V], edits: tuple[Change[K, V], ...]) -> PersistentMap[K, V]:
    for edit in edits:
        before = before.delete(edit.key) if edit.new is None else before.set(edit.key, edit.new)
    return before
