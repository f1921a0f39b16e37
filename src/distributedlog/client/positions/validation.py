"""Asks a leader where epochs ended in its log: OffsetForLeaderEpoch, for positions of several partitions."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from distributedlog.client.metadata import Cluster
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

CONSUMER: Final = -1
"""The replica id of everyone who is not a replica."""


class Unsure(NamedTuple):
    """A position that is to be held against the log of a leader."""

    offset: int
    epoch: int
    """The epoch of the last record before it."""
    leader_epoch: int


async def epoch_ends(
    cluster: Cluster, leader: int, unsure: Mapping[TopicPartition, Unsure]
) -> dict[TopicPartition, EpochEndOffset] | None:
    """Each partition's answer; None: the broker does not serve the question."""
    connection = await cluster.connection(leader)
    if not connection.serves(OffsetForLeaderEpochRequest):
        return None
    topics: dict[str, list[OffsetForLeaderPartition]] = {}
    for (topic, index), each in unsure.items():
        topics.setdefault(topic, []).append(
            OffsetForLeaderPartition(
                partition=index, current_leader_epoch=each.leader_epoch, leader_epoch=each.epoch
            )
        )
    request = OffsetForLeaderEpochRequest(
        replica_id=CONSUMER,
        topics=[OffsetForLeaderTopic(topic=name, partitions=found) for name, found in topics.items()],
    )
    response = await cluster.call(connection, request, OffsetForLeaderEpochResponse)
    return {
        TopicPartition(topic.topic, each.partition): each
        for topic in response.topics
        for each in topic.partitions
    }
