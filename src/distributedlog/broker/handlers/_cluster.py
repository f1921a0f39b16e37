"""What clients are told of the cluster: its brokers by the listener they asked on, its controller, what they
may do.

A broker is *live* for a client if it is not fenced and has an address on the client's listener.

Clients send changes to whomever they are told is the controller.  Every broker passes changes on to the real
one, which may be a node that serves no clients; so they are told a live broker, the active controller itself
if it is one.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from distributedlog.controller.image import Broker, Endpoint, MetadataImage

NO_NODE: Final = -1
NOT_ASKED_FOR: Final = -(2**31)
"""Instead of the set of allowed operations."""


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


# As Kafka numbers operations: 3 read, 4 write, 5 create, 6 delete, 7 alter, 8 describe, 9 act for the
# cluster, 10 describe settings, 11 alter settings, 12 write idempotently.  Without access control all are
# allowed.
TOPIC_OPERATIONS: Final = _bits(3, 4, 5, 6, 7, 8, 10, 11)
CLUSTER_OPERATIONS: Final = _bits(5, 7, 8, 9, 10, 11, 12)


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


def controller_for_clients(image: MetadataImage, nodes: list[Node]) -> int:
    live = [node.node_id for node in nodes if not node.is_fenced]
    if image.controller_id in live:
        return image.controller_id
    return live[0] if live else NO_NODE
