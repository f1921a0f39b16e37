"""Batches into the topics of a Produce request, and its response back to partitions.  Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from distributedlog.client.accumulator import Batch
from distributedlog.client.view import ClusterView
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import UnknownTopicError
from distributedlog.model.ids import TopicPartition, Uuid
from distributedlog.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceData,
)

STRANGE_PRODUCER: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""The answers that say that a producer's batch does not follow what the leader knows of it."""
DOUBTFUL: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
"""Those after which nobody knows whether the batch will be there."""


def topics_of(batches: Iterable[Batch], view: ClusterView) -> tuple[list[TopicProduceData], dict[Uuid, str]]:
    """What a request says of each topic, and the names behind the ids with which the response may come."""
    names: dict[Uuid, str] = {}
    topics: dict[str, TopicProduceData] = {}
    for batch in batches:
        name = batch.partition.topic
        topic = view.topics.get(name)
        if topic is None:  # whoever shares the cluster's view has asked for other topics meanwhile
            raise UnknownTopicError(f"the topic {name} is not known any more")
        names[topic.topic_id] = name
        data = topics.setdefault(
            name, TopicProduceData(name=name, topic_id=topic.topic_id, partition_data=[])
        )
        data.partition_data.append(
            PartitionProduceData(index=batch.partition.partition, records=batch.encoded)
        )
    return list(topics.values()), names


def by_partition(
    response: ProduceResponse, names: Mapping[Uuid, str]
) -> dict[TopicPartition, PartitionProduceResponse]:
    return {
        TopicPartition(topic.name or names.get(topic.topic_id, ""), each.index): each
        for topic in response.responses
        for each in topic.partition_responses
    }
