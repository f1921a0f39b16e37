"""DescribeQuorum: asks the active controller who keeps the metadata log, and how far.

The log is the partition 0 of the topic that Kafka calls `__cluster_metadata`; there is no other quorum, so
any other partition is UNKNOWN_TOPIC_OR_PARTITION.  From 2 on the voters' addresses between nodes are told.
"""

from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Final

from distributedlog.broker.context import RequestContext
from distributedlog.broker.dispatch import handles
from distributedlog.broker.handlers._asking import ask
from distributedlog.broker.handlers._topics import METADATA_TOPIC
from distributedlog.controller import requests as controller
from distributedlog.controller.image import MetadataImage
from distributedlog.controller.requests import QuorumReply, ReplicaProgress
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import ZERO_UUID
from distributedlog.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from distributedlog.protocol.schema import Message

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

METADATA_PARTITION: Final = 0
CONTROL_LISTENER: Final = "CONTROLLER"
"""What Kafka calls the listener that controllers reach each other at."""


def _refuse(
    request: DescribeQuorumRequest, context: RequestContext, code: ErrorCode, text: str
) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error_code=code, error_message=text, topics=[])


@handles(DescribeQuorumRequest, versions=(0, 2), refuse=_refuse)
def describe_quorum(
    services: "Services", request: DescribeQuorumRequest, context: RequestContext
) -> Awaitable[Message]:
    return _describe(services, request, context)


async def _describe(
    services: "Services", request: DescribeQuorumRequest, context: RequestContext
) -> DescribeQuorumResponse:
    timeout_ms = services.settings.request_timeout_ms
    quorum = await ask(services, context, controller.DescribeQuorumRequest(), QuorumReply, timeout_ms)
    image = services.metadata.image
    topics = []
    for topic in request.topics:
        partitions = [
            _told(quorum, image)
            if _is_the_log(topic.topic_name, each.partition_index)
            else _unknown(each.partition_index)
            for each in topic.partitions
        ]
        topics.append(TopicData(topic_name=topic.topic_name, partitions=partitions))
    return DescribeQuorumResponse(topics=topics, nodes=_nodes(services))


def _is_the_log(topic: str, partition_index: int) -> bool:
    return topic == METADATA_TOPIC and partition_index == METADATA_PARTITION


def _unknown(partition_index: int) -> PartitionData:
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


def _told(quorum: QuorumReply, image: MetadataImage) -> PartitionData:
    return PartitionData(
        partition_index=METADATA_PARTITION,
        leader_id=quorum.leader_id,
        leader_epoch=quorum.term,
        high_watermark=quorum.high_watermark,
        current_voters=_replicas(quorum.voters, image),
        observers=_replicas(quorum.observers, image),
    )


def _replicas(replicas: Iterable[ReplicaProgress], image: MetadataImage) -> list[ReplicaState]:
    states = []
    for node_id, log_end_offset, heard_ms, caught_up_ms in replicas:
        broker = image.brokers.get(node_id)
        states.append(
            ReplicaState(
                replica_id=node_id,
                replica_directory_id=broker.log_dirs[0] if broker and broker.log_dirs else ZERO_UUID,
                log_end_offset=log_end_offset,
                last_fetch_timestamp=heard_ms,
                last_caught_up_timestamp=caught_up_ms,
            )
        )
    return states


def _nodes(services: "Services") -> list[Node]:
    return [
        Node(
            node_id=voter.node_id,
            listeners=[Listener(name=CONTROL_LISTENER, host=voter.host, port=voter.port)],
        )
        for voter in services.settings.controller_quorum_voters
    ]
