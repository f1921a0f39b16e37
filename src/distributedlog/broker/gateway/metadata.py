"""What GetMetadata answers, from one metadata image.

Brokers that are fenced are left out.  A broker is named by its address for Kafka's clients, and by its
gateway's.  Topics are named as asked, each once; none named means all.  How much is answered is bounded by
what fits a message; beyond that the caller must name topics.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from distributedlog.broker.addresses import Endpoint as Address
from distributedlog.broker.gateway.failures import failure
from distributedlog.broker.handlers._cluster import NO_NODE, controller_for_clients, endpoint_of, nodes_on
from distributedlog.broker.handlers._topics import error_of_absent, in_order
from distributedlog.control._generated import broker_service_pb2 as pb
from distributedlog.controller.image import MetadataImage, Topic
from distributedlog.model.errors import InvalidRequestError, PolicyViolationError

TOPICS_MAX: Final = 1_000
"""That one call names."""
PARTITIONS_MAX: Final = 50_000
"""In one answer; about 2 MiB."""
STEP_PARTITIONS: Final = 1_000


async def metadata_of(
    image: MetadataImage,
    names: Iterable[str],
    *,
    client_listener: str,
    gateway_listener: str,
    partitions_max: int = PARTITIONS_MAX,
) -> pb.GetMetadataResponse:
    """In steps, so that the loop serves others in between; the image does not change."""
    nodes = nodes_on(image, client_listener)
    controller_id = controller_for_clients(image, nodes)
    response = pb.GetMetadataResponse(
        cluster_id=image.cluster_id,
        controller_id=None if controller_id == NO_NODE else controller_id,
        brokers=[
            pb.BrokerInfo(
                broker_id=node.node_id,
                host=node.host,
                port=node.port,
                rack=node.rack,
                gateway=_gateway(image, node.node_id, gateway_listener),
            )
            for node in nodes
        ],
    )
    asked = list(dict.fromkeys(names)) or sorted(image.topic_ids)
    partitions, step = 0, 0
    for name in asked:
        topic = image.topic_named(name)
        if topic is None:
            refused = failure(error_of_absent(name), f"there is no topic {name[:300]!r}")
            response.topics.add(name=name, failure=refused)
            continue
        partitions += len(topic.partitions)
        if partitions > partitions_max:
            raise PolicyViolationError(
                f"there are more than {partitions_max} partitions to tell of: name fewer topics"
            )
        response.topics.append(_describe(topic))
        if partitions // STEP_PARTITIONS > step:
            step = partitions // STEP_PARTITIONS
            await asyncio.sleep(0)
    return response


def check_names(names: Iterable[str]) -> None:
    count = sum(1 for _ in names)
    if count > TOPICS_MAX:
        raise InvalidRequestError(f"{count} topics are named; {TOPICS_MAX} are allowed")


def _gateway(image: MetadataImage, broker_id: int, listener: str) -> str | None:
    endpoint = endpoint_of(image.brokers[broker_id], listener)
    return None if endpoint is None else str(Address(endpoint.host, endpoint.port))


def _describe(topic: Topic) -> pb.TopicInfo:
    return pb.TopicInfo(
        name=topic.name,
        topic_id=topic.topic_id.bytes16,
        partitions=[
            pb.PartitionInfo(
                partition=partition_id,
                leader=None if partition.leader == NO_NODE else partition.leader,
                leader_epoch=partition.leader_epoch,
                replicas=partition.replicas,
                isr=partition.isr,
            )
            for partition_id, partition in in_order(topic)
        ],
    )
