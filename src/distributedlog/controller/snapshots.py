"""An image in bytes: the records that would make it, in bundles.

    magic "DLMS" | format i8 = 1 | offset i64 | (size u32 | bundle) each | size u32 = 0

The first bundle opens with the feature levels, so that a reader that is too old says so before it reads what
it cannot.  Equal images give equal bytes: all is sorted.  `snapshot_chunks` makes them piece by piece, so
that no more than a piece need be in memory besides the image.  Records that cannot make an image raise
ConsensusError, as in `image`.
"""

from collections.abc import Iterator
from itertools import islice
from struct import Struct as Layout
from struct import error as struct_error
from typing import Final

from distributedlog.controller.bundles import BUNDLE_BYTES_MAX, decode_bundle, encode_bundle
from distributedlog.controller.features import LEVEL_MAX, has_eligible_leaders, versioned
from distributedlog.controller.image import Broker, ControllerRegistration, MetadataImage, Partition, Topic
from distributedlog.controller.quotas import quota_records
from distributedlog.controller.records import (
    BrokerEndpoint,
    BrokerFeature,
    ClusterCreated,
    ConfigChanged,
    ControllerElected,
    ControllerRegistered,
    FeatureLevelSet,
    PartitionCreated,
    ProducerIdsTaken,
    RegisterBroker,
    TopicCreated,
)
from distributedlog.model.buffers import Buffer
from distributedlog.model.errors import MalformedMessageError, UnsupportedVersionError
from distributedlog.protocol.schema import Message

MAGIC: Final = b"DLMS"
FORMAT: Final = 1
RECORDS_PER_CHUNK: Final = 1_024

_HEAD: Final = Layout(">4sbq")
_SIZE: Final = Layout(">I")


def image_records(image: MetadataImage) -> Iterator[Message]:
    """The records that make this image out of an empty one."""
    for name, level in sorted(image.features.items()):
        yield FeatureLevelSet(name=name, feature_level=level)
    if image.cluster_id:
        yield ClusterCreated(cluster_id=image.cluster_id)
    if image.epoch:
        yield ControllerElected(controller_id=image.controller_id, epoch=image.epoch)
    if image.next_producer_id:
        yield ProducerIdsTaken(broker_id=-1, next_producer_id=image.next_producer_id)
    for _, controller in sorted(image.controllers.items()):
        yield controller_record(controller)
    for _, broker in sorted(image.brokers.items()):
        yield broker_record(broker)
    for name, topic_id in sorted(image.topic_ids.items()):
        yield TopicCreated(name=name, topic_id=topic_id)
        yield from _partition_records(image.topics[topic_id], has_eligible_leaders(image.level))
    for resource, settings in sorted(image.configs.items(), key=lambda each: each[0]):
        for name, value in sorted(settings.items()):
            yield ConfigChanged(
                resource_type=resource.kind, resource_name=resource.name, name=name, value=value
            )
    yield from quota_records((entity, dict(limits.items())) for entity, limits in image.quotas.items())


def controller_record(controller: ControllerRegistration) -> ControllerRegistered:
    return ControllerRegistered(
        controller_id=controller.controller_id,
        directory_id=controller.directory_id,
        incarnation=controller.incarnation,
        host=controller.host,
        port=controller.port,
    )


def broker_record(broker: Broker) -> RegisterBroker:
    return RegisterBroker(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            BrokerEndpoint(name=name, host=host, port=port, security_protocol=protocol)
            for name, host, port, protocol in broker.endpoints
        ],
        features=[
            BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, low, high in broker.features
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
        host=broker.host,
    )


def _partition_records(topic: Topic, with_eligible: bool) -> Iterator[Message]:
    for partition_id, partition in sorted(topic.partitions.items()):
        yield partition_record(topic, partition_id, partition, with_eligible)


def partition_record(
    topic: Topic, partition_id: int, partition: Partition, with_eligible: bool
) -> PartitionCreated:
    return PartitionCreated(
        partition_id=partition_id,
        topic_id=topic.topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing),
        adding_replicas=list(partition.adding),
        leader=partition.leader,
        leader_recovery_state=partition.recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        eligible_leader_replicas=list(partition.elr) if with_eligible and partition.elr else None,
        last_known_elr=list(partition.last_known_elr) if with_eligible and partition.last_known_elr else None,
        directories=list(partition.directories) if with_eligible else [],
        original_replicas=list(partition.original) or None,
    )


def snapshot_chunks(image: MetadataImage) -> Iterator[bytes]:
    yield _HEAD.pack(MAGIC, FORMAT, image.offset)
    records = image_records(image)
    while chunk := list(islice(records, RECORDS_PER_CHUNK)):
        bundle = encode_bundle(versioned(chunk, image.level))
        yield _SIZE.pack(len(bundle)) + bundle
    yield _SIZE.pack(0)


def encode_snapshot(image: MetadataImage) -> bytes:
    return b"".join(snapshot_chunks(image))


def decode_snapshot(data: Buffer, *, level_max: int = LEVEL_MAX) -> MetadataImage:
    """The image; whatever the bytes are, raises for what is broken or newer than `level_max`."""
    try:
        magic, format_, offset = _HEAD.unpack_from(data)
        if magic != MAGIC:
            raise MalformedMessageError("this is no snapshot of metadata")
        if format_ != FORMAT:
            raise UnsupportedVersionError(f"a snapshot of format {format_}; this version knows {FORMAT}")
        return _decode_bundles(memoryview(data), offset, level_max)
    except struct_error as error:
        raise MalformedMessageError("a snapshot is cut short") from error


def _decode_bundles(data: memoryview, offset: int, level_max: int) -> MetadataImage:
    image = MetadataImage()
    position = _HEAD.size
    records: list[Message] = []
    while True:
        (size,) = _SIZE.unpack_from(data, position)
        position += _SIZE.size
        if size == 0:
            break
        if size > BUNDLE_BYTES_MAX or size > len(data) - position:
            raise MalformedMessageError(
                f"a bundle has {size} bytes, of which {len(data) - position} are there"
            )
        bundle = [message for message, _ in decode_bundle(data[position : position + size])]
        records += bundle
        position += size
    if position != len(data):
        raise MalformedMessageError(f"{len(data) - position} bytes follow a snapshot")
    return image.apply(records, offset, level_max=level_max) if records else image
