"""The metadata of the cluster that the topics go to: one node, which is its only voter and its only broker.

    DIR/__cluster_metadata/raft-state       term 1, no vote
    DIR/__cluster_metadata/raft-snapshot    index 1: an image with the topics, their settings, and the broker

The cluster keeps Kafka's id, the topics theirs.  Every partition has the node as its only replica; it is in
sync and leads nothing yet, in an epoch above every epoch of the log, so that the controller's first election
raises it once more.  The broker stands there as it would after its own last stop, fenced, with the id of this
directory: so when it registers it is known to hold what it holds.  Its epoch is the one that the marker of a
clean stop must name for that stop to count (`ADOPTED_BROKER_EPOCH`).

Producer ids begin behind those that Kafka gave out: none is ever given to two.
"""

from collections.abc import Iterator
from typing import Final

from distributedlog.adoption.survey import AdoptedTopic, Survey
from distributedlog.controller.features import FEATURES
from distributedlog.controller.image import MetadataImage, ResourceType
from distributedlog.controller.records import (
    NO_LEADER,
    BrokerFeature,
    ClusterCreated,
    ConfigChanged,
    FeatureLevelSet,
    PartitionCreated,
    ProducerIdsTaken,
    RegisterBroker,
    TopicCreated,
)
from distributedlog.controller.snapshots import encode_snapshot
from distributedlog.data_directory.raft_storage import LogRaftStorage
from distributedlog.model.ids import Uuid
from distributedlog.ports.clock import Clock
from distributedlog.protocol.schema import Message
from distributedlog.raft import HardState, Membership, Snapshot
from distributedlog.storage.files import Files

ADOPTED_BROKER_EPOCH: Final = 0
FOUNDING_INDEX: Final = 1
FOUNDING_TERM: Final = 1


def adopted_image(survey: Survey, directory_id: Uuid, incarnation_id: Uuid) -> MetadataImage:
    records = _records(survey, directory_id, incarnation_id)
    return MetadataImage().apply(records, FOUNDING_INDEX - 1)


def _records(survey: Survey, directory_id: Uuid, incarnation_id: Uuid) -> Iterator[Message]:
    for name, (_, level) in FEATURES.items():
        yield FeatureLevelSet(name=name, feature_level=level)
    yield ClusterCreated(cluster_id=survey.cluster_id)
    if survey.next_producer_id:
        yield ProducerIdsTaken(broker_id=-1, next_producer_id=survey.next_producer_id)
    features = [
        BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in FEATURES.items()
    ]
    yield RegisterBroker(
        broker_id=survey.node_id,
        incarnation_id=incarnation_id,
        broker_epoch=ADOPTED_BROKER_EPOCH,
        end_points=[],
        features=features,
        rack=None,
        fenced=True,
        log_dirs=[directory_id],
    )
    for topic in survey.topics:
        yield from _topic_records(topic, survey.node_id)
    for resource, settings in sorted(survey.broker_settings.items()):
        for name, value in sorted(settings.items()):
            yield _setting(ResourceType.BROKER, resource, name, value)
    yield from survey.quotas


def _topic_records(topic: AdoptedTopic, node_id: int) -> Iterator[Message]:
    yield TopicCreated(name=topic.name, topic_id=topic.topic_id)
    for each in topic.partitions:
        yield PartitionCreated(
            partition_id=each.partition.partition,
            topic_id=topic.topic_id,
            replicas=[node_id],
            isr=[node_id],
            leader=NO_LEADER,
            leader_epoch=each.leader_epoch + 1,
            partition_epoch=0,
        )
    for name, value in sorted(topic.settings.items()):
        yield _setting(ResourceType.TOPIC, topic.name, name, value)


def _setting(kind: int, resource: str, name: str, value: str) -> ConfigChanged:
    return ConfigChanged(resource_type=kind, resource_name=resource, name=name, value=value)


def write_metadata(files: Files, directory: str, image: MetadataImage, node_id: int, clock: Clock) -> None:
    """Makes `directory` a voter's; whatever an earlier try left there goes first."""
    if files.is_directory(directory):
        files.remove_tree(directory)
    storage = LogRaftStorage(files, directory, clock)
    storage.format()
    storage.save_hard_state(HardState(FOUNDING_TERM))
    membership = Membership.of_voters(node_id)
    storage.save_snapshot(Snapshot(FOUNDING_INDEX, FOUNDING_TERM, membership, encode_snapshot(image)))
