"""What GetMetadata answers, from the cluster's own metadata.

Brokers are named by their addresses for Kafka's clients.  Topics are named as asked, each once; none named
means all.  How much is answered is bounded by what fits a message; beyond that the caller must name topics.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from distributedlog.client.view import NO_NODE, ClusterView, TopicView
from distributedlog.gateway._generated import broker_service_pb2 as pb
from distributedlog.gateway.failures import failure
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import InvalidRequestError, PolicyViolationError

TOPICS_MAX: Final = 1_000
"""The topics that one call names."""
PARTITIONS_MAX: Final = 50_000
"""The partitions in one response; about 2 MiB."""
STEP_PARTITIONS: Final = 1_000


async def describe_cluster(
    view: ClusterView, names: Iterable[str], *, partitions_max: int = PARTITIONS_MAX
) -> pb.GetMetadataResponse:
    """Describes the cluster in steps, so that the loop serves others in between; a view does not change."""
    response = pb.GetMetadataResponse(
        cluster_id=view.cluster_id or "",
        controller_id=None if view.controller_id == NO_NODE else view.controller_id,
        brokers=[
            pb.BrokerInfo(
                broker_id=broker.node_id, host=broker.address.host, port=broker.address.port, rack=broker.rack
            )
            for _, broker in sorted(view.brokers.items())
        ],
    )
    partitions, step = 0, 0
    for name in list(dict.fromkeys(names)) or sorted(view.topics):
        topic = view.topics.get(name)
        if topic is None or topic.error is not ErrorCode.NONE:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
            response.topics.add(name=name, failure=failure(code, f"topic {name[:300]!r}: {code.name}"))
            continue
        partitions += len(topic.partitions)
        if partitions > partitions_max:
            raise PolicyViolationError(
                f"there are more than {partitions_max} partitions to describe: name fewer topics"
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


def _describe(topic: TopicView) -> pb.TopicInfo:
    return pb.TopicInfo(
        name=topic.name,
        topic_id=topic.topic_id.bytes16,
        partitions=[
            pb.PartitionInfo(
                partition=each.index,
                leader=each.leader_id if each.has_leader else None,
                leader_epoch=each.leader_epoch,
                replicas=each.replicas,
                isr=each.isr,
            )
            for each in topic.partitions
        ],
    )
