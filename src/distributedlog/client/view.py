"""What a client knows of a cluster, out of Metadata responses.  Pure and immutable.

A view is never right for sure, only recent: whoever acts on it is told by the broker when it is stale.
`merged` lays a newer answer over it: a response about some topics leaves the others as they were; one about
all topics forgets those that it does not name.  Of two descriptions of one partition the one with the higher
leader epoch stays, since a broker that lags may answer after one that does not.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from distributedlog.client.addresses import Address
from distributedlog.client.errors import as_error_code, check_response
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import ZERO_UUID, TopicPartition, Uuid
from distributedlog.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

NO_NODE: Final = -1


class LeaderHint(Protocol):
    """The leader of a partition, as Produce and Fetch responses name it."""

    leader_id: int
    leader_epoch: int


class NodeHint(Protocol):
    """Where a broker is, as these responses say it."""

    node_id: int
    host: str
    port: int
    rack: str | None


class BrokerView(NamedTuple):
    node_id: int
    address: Address
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionView:
    index: int
    leader_id: int
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    error: ErrorCode = ErrorCode.NONE

    @property
    def has_leader(self) -> bool:
        return self.leader_id != NO_NODE

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)


class TopicView(NamedTuple):
    name: str
    partitions: tuple[PartitionView, ...] = ()
    """The partitions in the order of their indexes."""
    topic_id: Uuid = ZERO_UUID
    is_internal: bool = False
    error: ErrorCode = ErrorCode.NONE

    @property
    def is_led(self) -> bool:
        """Whether every partition can be asked for."""
        return bool(self.partitions) and all(each.has_leader for each in self.partitions)

    @property
    def replication_factor(self) -> int:
        return max((len(each.replicas) for each in self.partitions), default=0)

    def partition(self, index: int) -> PartitionView | None:
        if 0 <= index < len(self.partitions) and self.partitions[index].index == index:
            return self.partitions[index]
        return next((each for each in self.partitions if each.index == index), None)


class ClusterView(NamedTuple):
    cluster_id: str | None = None
    controller_id: int = NO_NODE
    brokers: Mapping[int, BrokerView] = MappingProxyType({})
    topics: Mapping[str, TopicView] = MappingProxyType({})

    def merged(self, newer: "ClusterView", *, is_complete: bool) -> "ClusterView":
        topics = {} if is_complete else dict(self.topics)
        for name, topic in newer.topics.items():
            topics[name] = _newest(self.topics.get(name), topic)
        return newer._replace(topics=MappingProxyType(topics))

    def partition(self, partition: TopicPartition) -> PartitionView | None:
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.partition(partition.partition)

    def leader_of(self, partition: TopicPartition) -> int | None:
        """The broker that leads it, as far as this view knows one."""
        found = self.partition(partition)
        return found.leader_id if found is not None and found.has_leader else None

    def moved(
        self, partition: TopicPartition, leader: "LeaderHint", nodes: "Iterable[NodeHint]"
    ) -> "ClusterView | None":
        """The view with the leader that a broker named when it refused a request (KIP-951); None if that is
        no news, or says not where the leader is."""
        topic = self.topics.get(partition.topic)
        known = None if topic is None else topic.partition(partition.partition)
        named = {each.node_id: each for each in nodes}.get(leader.leader_id)
        is_reachable = named is not None or leader.leader_id in self.brokers
        if topic is None or known is None or leader.leader_epoch <= known.leader_epoch or not is_reachable:
            return None
        brokers = dict(self.brokers)
        if named is not None:
            brokers[named.node_id] = BrokerView(named.node_id, Address(named.host, named.port), named.rack)
        newer = replace(known, leader_id=leader.leader_id, leader_epoch=leader.leader_epoch)
        partitions = tuple(newer if each is known else each for each in topic.partitions)
        topics = {**self.topics, topic.name: topic._replace(partitions=partitions)}
        return self._replace(brokers=MappingProxyType(brokers), topics=MappingProxyType(topics))

    def name_of(self, topic_id: Uuid) -> str | None:
        return next((each.name for each in self.topics.values() if each.topic_id == topic_id), None)


class SeenEpochs:
    """The latest leader epochs that were seen, also of what a view does not know any more.

    A view is given up now and then (KIP-899), and what comes next may come from a broker that was stopped for
    a while and takes itself for a leader still.  What has been read from a later leader is not there.
    """

    def __init__(self) -> None:
        self._of: dict[str, tuple[Uuid, dict[int, int]]] = {}
        """The id of each topic, and the epochs by partition.  Topics without an id are left out."""

    def note(self, view: ClusterView) -> None:
        for topic in view.topics.values():
            if topic.topic_id == ZERO_UUID:
                continue
            topic_id, epochs = self._of.get(topic.name, (topic.topic_id, {}))
            if topic_id != topic.topic_id:
                epochs = {}
            self._of[topic.name] = topic.topic_id, epochs
            for each in topic.partitions:
                epochs[each.index] = max(each.leader_epoch, epochs.get(each.index, -1))

    def checked(self, view: ClusterView) -> ClusterView:
        """The view, in which partitions have no leader of whose leaders it knows an earlier one."""
        topics = {name: self._checked(topic) for name, topic in view.topics.items()}
        return view._replace(topics=MappingProxyType(topics))

    def _checked(self, topic: TopicView) -> TopicView:
        topic_id, epochs = self._of.get(topic.name, (ZERO_UUID, {}))
        if topic_id == ZERO_UUID or topic_id != topic.topic_id:
            return topic
        partitions = tuple(
            replace(each, leader_id=NO_NODE, leader_epoch=epochs[each.index])
            if 0 <= each.leader_epoch < epochs.get(each.index, -1)
            else each
            for each in topic.partitions
        )
        return topic if partitions == topic.partitions else topic._replace(partitions=partitions)


def _newest(known: TopicView | None, newer: TopicView) -> TopicView:
    if known is None or known.topic_id != newer.topic_id:  # another topic under the same name
        return newer
    partitions = []
    for partition in newer.partitions:
        before = known.partition(partition.index)
        is_older = before is not None and 0 <= partition.leader_epoch < before.leader_epoch
        partitions.append(before if before is not None and is_older else partition)
    return newer._replace(partitions=tuple(partitions))


def view_of(response: MetadataResponse) -> ClusterView:
    """Raises if the response as a whole is an error; errors of topics stay with their topics."""
    check_response(response.error_code, "the cluster's metadata")
    brokers = {
        each.node_id: BrokerView(each.node_id, Address(each.host, each.port), each.rack)
        for each in response.brokers
    }
    topics = {each.name: _topic_of(each, each.name) for each in response.topics if each.name is not None}
    return ClusterView(
        response.cluster_id, response.controller_id, MappingProxyType(brokers), MappingProxyType(topics)
    )


def _topic_of(topic: MetadataResponseTopic, name: str) -> TopicView:
    partitions = sorted(map(_partition_of, topic.partitions), key=lambda each: each.index)
    return TopicView(
        name, tuple(partitions), topic.topic_id, topic.is_internal, as_error_code(topic.error_code)
    )


def _partition_of(partition: MetadataResponsePartition) -> PartitionView:
    return PartitionView(
        partition.partition_index,
        partition.leader_id,
        partition.leader_epoch,
        tuple(partition.replica_nodes),
        tuple(partition.isr_nodes),
        tuple(partition.offline_replicas),
        as_error_code(partition.error_code),
    )
