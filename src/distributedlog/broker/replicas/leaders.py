"""Where a client that asked the wrong broker finds the leader, so that it need not ask for metadata first.

A broker that has a replica knows the leader from it, as of the epoch it is in; else the image does.  One that
is isolated knows nobody: what it knows may be over.  The leader's address is given if it has one on the
client's listener and is not fenced.
"""

from typing import TYPE_CHECKING, NamedTuple

from distributedlog.broker.cluster.listener_view import NO_NODE, endpoint_of
from distributedlog.controller.image import Endpoint, MetadataImage
from distributedlog.model.ids import Uuid

if TYPE_CHECKING:
    from distributedlog.broker.replicas.partitions import PartitionSet

NO_EPOCH = -1


class Leader(NamedTuple):
    leader_id: int
    leader_epoch: int


class LeaderNode(NamedTuple):
    """A leader that can be reached."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Leaders:
    """Looked up for one response; `nodes` has each broker that was named once."""

    def __init__(self, partitions: "PartitionSet", image: MetadataImage, listener: str) -> None:
        self._partitions = partitions
        self._image = image
        self._listener = listener
        self.nodes: dict[int, LeaderNode] = {}

    def of(self, topic: str | Uuid, partition_id: int) -> Leader:
        leader = self._leader(topic, partition_id)
        broker = self._image.brokers.get(leader.leader_id)
        if broker is not None and not broker.fenced:
            endpoint: Endpoint | None = endpoint_of(broker, self._listener)
            if endpoint is not None:
                self.nodes[broker.broker_id] = LeaderNode(
                    broker.broker_id, endpoint.host, endpoint.port, broker.rack
                )
        return leader

    def _leader(self, topic: str | Uuid, partition_id: int) -> Leader:
        partitions, image = self._partitions, self._image
        if isinstance(topic, str):
            replica = partitions.get(topic, partition_id)
            known = image.topic_named(topic)
        else:
            replica = partitions.get_by_id(topic, partition_id)
            known = image.topics.get(topic)
        if replica is not None and replica.is_isolated:
            return Leader(NO_NODE, NO_EPOCH)
        if replica is not None:
            return Leader(replica.leader_id, replica.leader_epoch)
        state = known.partitions.get(partition_id) if known is not None else None
        return Leader(NO_NODE, NO_EPOCH) if state is None else Leader(state.leader, state.leader_epoch)
