"""The cluster as a client of one listener sees it: its brokers, its controller, its partitions' leaders.

A broker is *live* for a client if it is not fenced and has an address on the client's listener.

Clients send changes to whomever they take for the controller.  Every broker forwards changes to the active
controller, which may be a node that serves no clients; so clients are given a live broker, the active
controller itself if it is one.

    a partition's leader                             its id     its error
    has an address on the client's listener          itself     none
    is not a registered broker, or there is none     -1         LEADER_NOT_AVAILABLE
    is registered without such an address            -1         LISTENER_NOT_FOUND

librdkafka ends all it does with a broker that a Metadata response leaves out, and requests to a coordinator
that wait for that broker then wait for minutes (librdkafka issue 5511).  So clients built on it are told of
fenced brokers, too (`forgets_unlisted`): they try again to connect, and ask anew who coordinates.

A replica is offline if its broker is fenced, unknown, without an address on the listener, or has lost the
replica's log.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from distributedlog.controller.image import Broker, Endpoint, MetadataImage, Partition, Topic
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import InvalidNameError
from distributedlog.model.ids import check_topic_name

NO_NODE: Final = -1


class Node(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


def endpoint_of(broker: Broker, listener: str) -> Endpoint | None:
    return next((each for each in broker.endpoints if each.name == listener), None)


def nodes_on(image: MetadataImage, listener: str, *, with_fenced: bool = False) -> list[Node]:
    """The brokers that a client of this listener can be told of, in the order of their ids."""
    return sorted(_nodes(image, listener, with_fenced))


def _nodes(image: MetadataImage, listener: str, with_fenced: bool) -> Iterator[Node]:
    for broker in image.brokers.values():
        endpoint = endpoint_of(broker, listener)
        if endpoint is not None and (with_fenced or not broker.fenced):
            yield Node(broker.broker_id, endpoint.host, endpoint.port, broker.rack, broker.fenced)


def forgets_unlisted(software_name: str) -> bool:
    """Whether a client with this name of its software is to be told of fenced brokers."""
    return "rdkafka" in software_name or software_name.startswith("confluent-kafka")


def controller_for_clients(image: MetadataImage, nodes: list[Node]) -> int:
    live = [node.node_id for node in nodes if not node.is_fenced]
    if image.controller_id in live:
        return image.controller_id
    return live[0] if live else NO_NODE


def error_of_absent(name: str) -> ErrorCode:
    """Returns the error code for a name that no topic has."""
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
        if self.online.issuperset(partition.replicas) and not partition.directories:
            return []
        return [each for each in partition.replicas if each not in self.online or partition.is_lost(each)]


def reach_of(image: MetadataImage, listener: str) -> Reach:
    addressed = [each for each in image.brokers.values() if endpoint_of(each, listener) is not None]
    return Reach(
        frozenset(image.brokers),
        frozenset(each.broker_id for each in addressed),
        frozenset(each.broker_id for each in addressed if not each.fenced),
    )
