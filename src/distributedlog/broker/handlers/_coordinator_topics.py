"""The topics of coordinators: how they are made, and who leads the partition that a key falls on.

| topic                 | keys              | made when                                             |
|-----------------------|-------------------|-------------------------------------------------------|
| `__consumer_offsets`  | groups            | the first group is looked for, or joins a transaction |
| `__transaction_state` | transactional ids | the first transactional id is looked for              |

They are made by the settings of the cluster, and with no more replicas than there are brokers; not before
the brokers have registered that are sure to come.
"""

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from distributedlog.broker.cluster.listener_view import NO_NODE, endpoint_of
from distributedlog.broker.handlers._forwarding import forward
from distributedlog.broker.net.context import RequestContext
from distributedlog.controller.cluster_settings import read_cluster_setting
from distributedlog.controller.image import MetadataImage
from distributedlog.controller.placement import candidates
from distributedlog.controller.requests import CreateTopicsRequest, NewTopic, TopicsReply
from distributedlog.groups.placement import partition_of
from distributedlog.model.cluster_settings import (
    OFFSETS_TOPIC_PARTITIONS,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    OFFSETS_TOPIC_SEGMENT_BYTES,
    TRANSACTIONS_TOPIC_MIN_ISR,
    TRANSACTIONS_TOPIC_PARTITIONS,
    TRANSACTIONS_TOPIC_REPLICATION_FACTOR,
    TRANSACTIONS_TOPIC_SEGMENT_BYTES,
)
from distributedlog.model.config import SECOND_MS
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.model.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

if TYPE_CHECKING:
    from distributedlog.broker.services import Services
    from distributedlog.settings.node_settings import NodeSettings

logger = logging.getLogger(__name__)

CREATION_MS_MAX: Final = 5 * SECOND_MS


class Located(NamedTuple):
    """Where a coordinator is, or why it is nowhere."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    node_id: int = NO_NODE
    host: str = ""
    port: int = -1


def locate_coordinator(image: MetadataImage, topic_name: str, key: str, listener: str) -> Located:
    topic = image.topic_named(topic_name)
    if topic is None:
        return Located(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the topic {topic_name} is not there yet")
    partition = topic.partitions[partition_of(key, len(topic.partitions))]
    broker = image.brokers.get(partition.leader)
    endpoint = None if broker is None or broker.fenced else endpoint_of(broker, listener)
    if endpoint is None:
        return Located(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator cannot be reached now")
    return Located(node_id=partition.leader, host=endpoint.host, port=endpoint.port)


async def create_coordinator_topic(services: "Services", context: RequestContext, topic_name: str) -> None:
    """Has the topic made; whether that succeeded is seen in the image."""
    topic = _describe(services, topic_name)
    if topic is None:
        return
    wanted = CreateTopicsRequest((topic,))
    try:
        reply = await forward(services, context, wanted, TopicsReply, CREATION_MS_MAX)
    except DlogError as error:
        logger.debug("%s was not created: %s", topic_name, error)
    else:
        outcome = reply.topics[0].outcome
        if outcome.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            logger.warning("%s cannot be created: %s", topic_name, outcome.message)


def _describe(services: "Services", topic_name: str) -> NewTopic | None:
    """Returns None while brokers have yet to register: a topic keeps the replicas it is created with."""
    image = services.metadata.image
    configs = [("cleanup.policy", "compact")]
    if topic_name == OFFSETS_TOPIC:
        partitions, factor, segment_bytes = (
            OFFSETS_TOPIC_PARTITIONS,
            OFFSETS_TOPIC_REPLICATION_FACTOR,
            OFFSETS_TOPIC_SEGMENT_BYTES,
        )
        configs.append(("compression.type", "producer"))
    else:
        assert topic_name == TRANSACTIONS_TOPIC
        partitions, factor, segment_bytes = (
            TRANSACTIONS_TOPIC_PARTITIONS,
            TRANSACTIONS_TOPIC_REPLICATION_FACTOR,
            TRANSACTIONS_TOPIC_SEGMENT_BYTES,
        )
        configs.append(("compression.type", "uncompressed"))
    registered, wanted = len(candidates(image)), read_cluster_setting(image, factor)
    if registered < min(wanted, _count_voting_brokers(services.settings)):
        logger.info("%s is not created yet: %d of %d brokers are there", topic_name, registered, wanted)
        return None
    replicas = max(1, min(wanted, registered))
    if topic_name == TRANSACTIONS_TOPIC:
        min_isr = min(read_cluster_setting(image, TRANSACTIONS_TOPIC_MIN_ISR), replicas)
        configs.append(("min.insync.replicas", str(min_isr)))
    configs.append(("segment.bytes", str(read_cluster_setting(image, segment_bytes))))
    return NewTopic(
        name=topic_name,
        num_partitions=read_cluster_setting(image, partitions),
        replication_factor=replicas,
        configs=tuple(configs),
    )


def _count_voting_brokers(settings: "NodeSettings") -> int:
    """The brokers that there will be for sure: where a broker votes, so do the others that stand beside it.
    Voters that only vote say nothing of brokers."""
    return len(settings.controller_quorum_voters) if settings.is_controller else 1
