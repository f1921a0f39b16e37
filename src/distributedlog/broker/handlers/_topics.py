"""What clients are told of topics: which are internal, and who can be asked about a partition.

    a partition's leader                        its id     its error
    has an address on the client's listener     itself     none
    is not a registered broker, or there is none     -1    LEADER_NOT_AVAILABLE
    is registered without such an address            -1    LISTENER_NOT_FOUND

A replica is offline if its broker is fenced, unknown, or without an address on the listener.
"""

from typing import Final, NamedTuple

from distributedlog.broker.handlers._cluster import NO_NODE, endpoint_of
from distributedlog.controller.image import MetadataImage, Partition, Topic
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import InvalidNameError
from distributedlog.model.ids import check_topic_name

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Kept by coordinators.  They are made by these alone, since nobody else knows how they must be set up."""
METADATA_TOPIC: Final = "__cluster_metadata"
"""Kafka's name for the metadata log, which is no topic: nobody may create one of that name."""


def error_of_absent(name: str) -> ErrorCode:
    """Of a name that no topic has."""
    try:
        check_topic_name(name)
    except InvalidNameError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def in_order(topic: Topic) -> list[tuple[int, Partition]]:
    """The partitions with their numbers."""
    # Numbers differ, so partitions are never compared.
    return sorted(topic.partitions.items())


class Reach(NamedTuple):
    """Whom a client of one listener can reach."""

    registered: frozenset[int]
    addressed: frozenset[int]
    """Registered, with an address on the listener."""
    online: frozenset[int]
    """Addressed, and not fenced."""

    def leader(self, partition: Partition) -> tuple[int, ErrorCode]:
        if partition.leader in self.addressed:
            return partition.leader, ErrorCode.NONE
        if partition.leader in self.registered:
            return NO_NODE, ErrorCode.LISTENER_NOT_FOUND
        return NO_NODE, ErrorCode.LEADER_NOT_AVAILABLE

    def offline(self, partition: Partition) -> list[int]:
        if self.online.issuperset(partition.replicas):
            return []
        return [each for each in partition.replicas if each not in self.online]


def reach_of(image: MetadataImage, listener: str) -> Reach:
    addressed = [each for each in image.brokers.values() if endpoint_of(each, listener) is not None]
    return Reach(
        frozenset(image.brokers),
        frozenset(each.broker_id for each in addressed),
        frozenset(each.broker_id for each in addressed if not each.fenced),
    )
