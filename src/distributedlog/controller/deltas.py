"""What differs between two images.  Found by walking only what they do not share: the cost is the change's.

Brokers act on it: they start, stop and follow partitions, reload settings, and forget topics.  A topic that
was deleted and created again under its name is another topic: its old id is removed and the new one created.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from distributedlog.controller.image import (
    Broker,
    ConfigResource,
    ControllerRegistration,
    MetadataImage,
    Partition,
    QuotaEntity,
    Quotas,
    Settings,
    Topic,
)
from distributedlog.controller.persistent_map import Change, changes
from distributedlog.model.ids import Uuid

K = TypeVar("K")
V = TypeVar("V")


class PartitionDelta(NamedTuple):
    """A partition that was changed or added in a topic that both images have."""

    topic: Topic
    """The topic as the newer image has it."""
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
    controllers: tuple[Change[int, ControllerRegistration], ...]
    scalars: Scalars
    """The scalars of the newer image, changed or not."""


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
        tuple(changes(old.controllers, new.controllers)),
        Scalars(new.offset, new.epoch, new.controller_id, new.cluster_id, new.next_producer_id),
    )


def _there(topic: Topic | None) -> Topic:
    assert topic is not None, "a change has an old or a new side"
    return topic


def _partition_deltas(change: Change[Uuid, Topic]) -> Iterator[PartitionDelta]:
    old, new = _there(change.old), _there(change.new)
    for each in changes(old.partitions, new.partitions):
        yield PartitionDelta(new, each.key, each.old, each.new)
