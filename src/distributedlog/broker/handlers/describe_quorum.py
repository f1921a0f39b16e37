"""DescribeQuorum: asks the active controller who keeps the metadata log, and how far.

The log is the partition 0 of the topic that Kafka calls `__cluster_metadata`; there is no other quorum, so
any other partition is UNKNOWN_TOPIC_OR_PARTITION.  From 2 on the addresses between nodes are in the response,
of all controllers that are registered or that the settings name: those that do not vote could.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from distributedlog.broker.handlers._forwarding import forward
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
from distributedlog.controller import requests as controller
from distributedlog.controller.image import MetadataImage
from distributedlog.controller.requests import QuorumReply, ReplicaProgress
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import ZERO_UUID, Uuid
from distributedlog.model.internal_topics import METADATA_TOPIC
from distributedlog.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

METADATA_PARTITION: Final = 0
CONTROL_LISTENER: Final = "CONTROLLER"
"""What Kafka calls the listener that controllers reach each other at."""


@handles(DescribeQuorumRequest, versions=(0, 2))
async def describe_quorum(
    services: "Services", request: DescribeQuorumRequest, context: RequestContext
) -> DescribeQuorumResponse:
    timeout_ms = services.settings.request_timeout_ms
    quorum = await forward(services, context, controller.DescribeQuorumRequest(), QuorumReply, timeout_ms)
    image = services.metadata.image
    topics = []
    for topic in request.topics:
        partitions = [
            _describe_partition(quorum, image)
            if _is_metadata_partition(topic.topic_name, each.partition_index)
            else _make_unknown_partition(each.partition_index)
            for each in topic.partitions
        ]
        topics.append(TopicData(topic_name=topic.topic_name, partitions=partitions))
    return DescribeQuorumResponse(topics=topics, nodes=_describe_nodes(services))


def _is_metadata_partition(topic: str, partition_index: int) -> bool:
    return topic == METADATA_TOPIC and partition_index == METADATA_PARTITION


def _make_unknown_partition(partition_index: int) -> PartitionData:
    return PartitionData(
        partition_index=partition_index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=f"the only quorum is that of {METADATA_TOPIC}-{METADATA_PARTITION}",
        leader_id=-1,
        leader_epoch=-1,
        high_watermark=-1,
        current_voters=[],
        observers=[],
    )


def _describe_partition(quorum: QuorumReply, image: MetadataImage) -> PartitionData:
    return PartitionData(
        partition_index=METADATA_PARTITION,
        leader_id=quorum.leader_id,
        leader_epoch=quorum.term,
        high_watermark=quorum.high_watermark,
        current_voters=_describe_replicas(quorum.voters, image),
        observers=_describe_replicas(quorum.observers, image),
    )


def _describe_replicas(replicas: Iterable[ReplicaProgress], image: MetadataImage) -> list[ReplicaState]:
    states = []
    for node_id, log_end_offset, heard_ms, caught_up_ms in replicas:
        states.append(
            ReplicaState(
                replica_id=node_id,
                replica_directory_id=_directory_of(node_id, image),
                log_end_offset=log_end_offset,
                last_fetch_timestamp=heard_ms,
                last_caught_up_timestamp=caught_up_ms,
            )
        )
    return states


def _directory_of(node_id: int, image: MetadataImage) -> Uuid:
    controller, broker = image.controllers.get(node_id), image.brokers.get(node_id)
    if controller is not None:
        return controller.directory_id
    return broker.log_dirs[0] if broker and broker.log_dirs else ZERO_UUID


def _describe_nodes(services: "Services") -> list[Node]:
    voters = services.settings.controller_quorum_voters
    addresses = {voter.node_id: (voter.host, voter.port) for voter in voters}
    addresses |= {
        each.controller_id: (each.host, each.port) for each in services.metadata.image.controllers.values()
    }
    return [
        Node(
            node_id=node_id,
            listeners=[Listener(name=CONTROL_LISTENER, host=host, port=port)],
        )
        for node_id, (host, port) in sorted(addresses.items())
    ]
