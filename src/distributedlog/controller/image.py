"""The truth about the cluster at one offset of the metadata log: immutable, and cheap to succeed.

`image.apply(records, offset)` gives the next image.  It shares with the old one all that the records did not
touch, so a change among 10,000 partitions costs microseconds, and any number of readers may keep old ones.

    MetadataImage
      brokers    id -> Broker                 topics     topic id -> Topic -> partition id -> Partition
      topic_ids  name -> topic id             configs    (kind, name) -> name -> value
      features   name -> level                quotas     (type, name) each -> key -> limit
      controllers  id -> ControllerRegistration
      next_producer_id, cluster_id, controller_id, epoch, offset

Invariants: `topic_ids` and `topics` name each other; a resource without settings is not in `configs`, an
entity without limits not in `quotas`; what two images say is equal if they were made of the same records,
however these were bundled.

A record that cannot follow (a partition of no topic, an epoch that was overtaken) means that the log is not
what a controller wrote: ConsensusError, and the old image stands.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple

from distributedlog.controller.features import LEVEL_MAX, LEVEL_MIN, METADATA_FEATURE, check_level_known
from distributedlog.controller.persistent_map import PersistentMap
from distributedlog.controller.records import (
    FENCE,
    NO_LEADER_CHANGE,
    NO_RECOVERY_CHANGE,
    RECOVERED,
    UNFENCE,
    BrokerRegistrationChange,
    ClientQuotaChanged,
    ClusterCreated,
    ConfigChanged,
    ControllerElected,
    ControllerForgotten,
    ControllerRegistered,
    FeatureLevelSet,
    NoOp,
    PartitionChanged,
    PartitionCreated,
    ProducerIdsTaken,
    RegisterBroker,
    TopicCreated,
    TopicRemoved,
    UnregisterBroker,
)
from distributedlog.model.errors import ConsensusError
from distributedlog.model.ids import ZERO_UUID, Uuid
from distributedlog.protocol.schema import Message

NO_OFFSET: Final = -1
CLUSTER_DEFAULT: Final = ""
"""The name of the broker settings that hold for all brokers."""


UNASSIGNED_DIRECTORY: Final = ZERO_UUID
LOST_DIRECTORY: Final = Uuid((1).to_bytes(16, "big"))
"""Kafka's word for a replica whose directory is out of use; here, whose log is."""


class ResourceType(IntEnum):
    """The kinds of what has settings, as Kafka numbers them."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    """Levels of loggers: a broker's own, in memory, and in no image."""
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    kind: int
    name: str


class Endpoint(NamedTuple):
    name: str
    host: str
    port: int
    security_protocol: int = 0


class SupportedLevels(NamedTuple):
    name: str
    low: int
    high: int


class Broker(NamedTuple):
    broker_id: int
    incarnation_id: Uuid
    epoch: int
    endpoints: tuple[Endpoint, ...]
    features: tuple[SupportedLevels, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[Uuid, ...]
    host: str | None = None
    """The machine it runs on, if it says so; see `placement_host`."""

    @property
    def placement_host(self) -> str:
        """The machine on which this broker counts as standing: what it says, or else where it listens."""
        return self.host or self.endpoints[0].host

    @property
    def is_active(self) -> bool:
        """It may lead, and be in an ISR."""
        return not self.fenced and not self.in_controlled_shutdown


class ControllerRegistration(NamedTuple):
    """A node that votes, or could: where the others reach it, and what it votes with."""

    controller_id: int
    directory_id: Uuid
    incarnation: int
    """That of its Raft storage: a storage that lost something has another."""
    host: str
    port: int


class Partition(NamedTuple):
    replicas: tuple[int, ...]
    """The first one is preferred as leader."""
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    recovery_state: int = RECOVERED
    """RECOVERING: the leader was elected uncleanly and has not yet put its log in order."""
    elr: tuple[int, ...] = ()
    """The replicas outside of the ISR that are yet sure to hold all that is committed: the ISR was below
    min.insync.replicas since."""
    last_known_elr: tuple[int, ...] = ()
    """The leader of a partition that lost its ISR and its eligible leaders."""
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    directories: tuple[Uuid, ...] = ()
    """One for each replica if any is LOST; else none, for a broker has one log directory."""
    original: tuple[int, ...] = ()
    """The replicas before the move that is under way, in their order."""

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def replication_factor(self) -> int:
        """The number of replicas without those that a move is adding."""
        return len(self.replicas) - len(self.adding)

    def is_lost(self, broker_id: int) -> bool:
        """Whether the broker has said that it cannot open its log, or that it is gone."""
        return any(
            replica == broker_id and directory == LOST_DIRECTORY
            for replica, directory in zip(self.replicas, self.directories, strict=False)
        )


class Topic(NamedTuple):
    topic_id: Uuid
    name: str
    partitions: PersistentMap[int, Partition]


Settings = PersistentMap[str, str]
NO_SETTINGS: Final[Settings] = PersistentMap()
QuotaEntity = tuple[tuple[str, str | None], ...]
"""Whom a quota is for: type and name of each part, sorted; the name None is the default of that type."""
Quotas = PersistentMap[str, float]
NO_QUOTAS: Final[Quotas] = PersistentMap()


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """All that is known of the cluster after one entry of its log."""

    offset: int = NO_OFFSET
    epoch: int = 0
    """The epoch of the controller that wrote last."""
    controller_id: int = -1
    cluster_id: str = ""
    next_producer_id: int = 0
    features: PersistentMap[str, int] = field(default_factory=PersistentMap)
    brokers: PersistentMap[int, Broker] = field(default_factory=PersistentMap)
    topics: PersistentMap[Uuid, Topic] = field(default_factory=PersistentMap)
    topic_ids: PersistentMap[str, Uuid] = field(default_factory=PersistentMap)
    configs: PersistentMap[ConfigResource, Settings] = field(default_factory=PersistentMap)
    quotas: PersistentMap[QuotaEntity, Quotas] = field(default_factory=PersistentMap)
    controllers: PersistentMap[int, ControllerRegistration] = field(default_factory=PersistentMap)

    @property
    def level(self) -> int:
        return self.features.get(METADATA_FEATURE, LEVEL_MIN)

    def topic_named(self, name: str) -> Topic | None:
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def partition(self, topic_id: Uuid, partition_id: int) -> Partition | None:
        topic = self.topics.get(topic_id)
        return None if topic is None else topic.partitions.get(partition_id)

    def settings_of(self, kind: int, name: str) -> Settings:
        return self.configs.get(ConfigResource(kind, name), NO_SETTINGS)

    def is_active(self, broker_id: int) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def apply(
        self, records: Iterable[Message], offset: int, *, level_max: int = LEVEL_MAX
    ) -> "MetadataImage":
        """The image after one entry.  `level_max` is the highest level that this reader knows."""
        if offset <= self.offset:
            raise ConsensusError(f"the entry {offset} was applied already: the image is at {self.offset}")
        successor = _Successor(self, level_max)
        for record in records:
            _APPLY[type(record)](successor, record)
        return successor.image(offset)


class _Successor:
    """An image in the making.  Its attributes are those of the image, and may be assigned."""

    def __init__(self, image: MetadataImage, level_max: int) -> None:
        self.level_max = level_max
        self.epoch = image.epoch
        self.controller_id = image.controller_id
        self.cluster_id = image.cluster_id
        self.next_producer_id = image.next_producer_id
        self.features = image.features
        self.brokers = image.brokers
        self.topics = image.topics
        self.topic_ids = image.topic_ids
        self.configs = image.configs
        self.quotas = image.quotas
        self.controllers = image.controllers

    def image(self, offset: int) -> MetadataImage:
        return MetadataImage(
            offset,
            self.epoch,
            self.controller_id,
            self.cluster_id,
            self.next_producer_id,
            self.features,
            self.brokers,
            self.topics,
            self.topic_ids,
            self.configs,
            self.quotas,
            self.controllers,
        )

    def topic(self, topic_id: Uuid) -> Topic:
        topic = self.topics.get(topic_id)
        if topic is None:
            raise ConsensusError(f"a record speaks of the topic {topic_id}, which is not there")
        return topic

    def broker(self, broker_id: int, epoch: int) -> Broker:
        broker = self.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise ConsensusError(f"a record speaks of broker {broker_id} in epoch {epoch}: {broker}")
        return broker


# --- one function for each record --------------------------------------------------------------


def _feature_level_set(to: _Successor, record: FeatureLevelSet) -> None:
    check_level_known(record.name, record.feature_level, to.level_max)
    to.features = to.features.set(record.name, record.feature_level)


def _cluster_created(to: _Successor, record: ClusterCreated) -> None:
    to.cluster_id = record.cluster_id


def _controller_elected(to: _Successor, record: ControllerElected) -> None:
    to.controller_id, to.epoch = record.controller_id, record.epoch


def _controller_registered(to: _Successor, record: ControllerRegistered) -> None:
    registration = ControllerRegistration(
        record.controller_id, record.directory_id, record.incarnation, record.host, record.port
    )
    to.controllers = to.controllers.set(record.controller_id, registration)


def _controller_forgotten(to: _Successor, record: ControllerForgotten) -> None:
    if record.controller_id not in to.controllers:
        raise ConsensusError(f"a record forgets controller {record.controller_id}, which is not registered")
    to.controllers = to.controllers.delete(record.controller_id)


def _register_broker(to: _Successor, record: RegisterBroker) -> None:
    broker = Broker(
        broker_id=record.broker_id,
        incarnation_id=record.incarnation_id,
        epoch=record.broker_epoch,
        endpoints=tuple(
            Endpoint(each.name, each.host, each.port, each.security_protocol) for each in record.end_points
        ),
        features=tuple(
            SupportedLevels(each.name, each.min_supported_version, each.max_supported_version)
            for each in record.features
        ),
        rack=record.rack,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        log_dirs=tuple(record.log_dirs),
        host=record.host,
    )
    to.brokers = to.brokers.set(record.broker_id, broker)


def _unregister_broker(to: _Successor, record: UnregisterBroker) -> None:
    to.broker(record.broker_id, record.broker_epoch)
    to.brokers = to.brokers.delete(record.broker_id)


def _broker_registration_change(to: _Successor, record: BrokerRegistrationChange) -> None:
    broker = to.broker(record.broker_id, record.broker_epoch)
    fenced = {FENCE: True, UNFENCE: False}.get(record.fenced, broker.fenced)
    shutting_down = broker.in_controlled_shutdown or bool(record.in_controlled_shutdown)
    to.brokers = to.brokers.set(
        record.broker_id, broker._replace(fenced=fenced, in_controlled_shutdown=shutting_down)
    )


def _topic_created(to: _Successor, record: TopicCreated) -> None:
    if record.topic_id in to.topics or record.name in to.topic_ids:
        raise ConsensusError(f"the topic {record.name} ({record.topic_id}) is created a second time")
    to.topics = to.topics.set(record.topic_id, Topic(record.topic_id, record.name, PersistentMap()))
    to.topic_ids = to.topic_ids.set(record.name, record.topic_id)


def _topic_removed(to: _Successor, record: TopicRemoved) -> None:
    topic = to.topic(record.topic_id)
    to.topics = to.topics.delete(topic.topic_id)
    to.topic_ids = to.topic_ids.delete(topic.name)
    to.configs = to.configs.delete(ConfigResource(ResourceType.TOPIC, topic.name))


def _partition_created(to: _Successor, record: PartitionCreated) -> None:
    topic = to.topic(record.topic_id)
    partition = Partition(
        replicas=tuple(record.replicas),
        isr=tuple(record.isr),
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        recovery_state=record.leader_recovery_state,
        elr=tuple(record.eligible_leader_replicas or ()),
        last_known_elr=tuple(record.last_known_elr or ()),
        adding=tuple(record.adding_replicas),
        removing=tuple(record.removing_replicas),
        directories=tuple(record.directories),
        original=tuple(record.original_replicas or ()),
    )
    _put_partition(to, topic, record.partition_id, partition)


def _partition_changed(to: _Successor, record: PartitionChanged) -> None:
    topic = to.topic(record.topic_id)
    partition = topic.partitions.get(record.partition_id)
    if partition is None:
        raise ConsensusError(f"a record changes {topic.name}-{record.partition_id}, which is not there")
    _put_partition(to, topic, record.partition_id, changed(partition, record))


def _put_partition(to: _Successor, topic: Topic, partition_id: int, partition: Partition) -> None:
    partitions = topic.partitions.set(partition_id, partition)
    to.topics = to.topics.set(topic.topic_id, Topic(topic.topic_id, topic.name, partitions))


def changed(partition: Partition, record: PartitionChanged) -> Partition:
    """The partition after the record; the rule of both epochs stands here and nowhere else."""

    def now(given: list[int] | None, before: tuple[int, ...]) -> tuple[int, ...]:
        return before if given is None else tuple(given)

    same_leader = record.leader == NO_LEADER_CHANGE
    same_recovery = record.leader_recovery_state == NO_RECOVERY_CHANGE
    return Partition(
        replicas=now(record.replicas, partition.replicas),
        isr=now(record.isr, partition.isr),
        leader=partition.leader if same_leader else record.leader,
        leader_epoch=partition.leader_epoch + (not same_leader),
        partition_epoch=partition.partition_epoch + 1,
        recovery_state=partition.recovery_state if same_recovery else record.leader_recovery_state,
        elr=now(record.eligible_leader_replicas, partition.elr),
        last_known_elr=now(record.last_known_elr, partition.last_known_elr),
        adding=now(record.adding_replicas, partition.adding),
        removing=now(record.removing_replicas, partition.removing),
        directories=partition.directories if record.directories is None else tuple(record.directories),
        original=now(record.original_replicas, partition.original),
    )


def _config_changed(to: _Successor, record: ConfigChanged) -> None:
    resource = ConfigResource(record.resource_type, record.resource_name)
    before = to.configs.get(resource, NO_SETTINGS)
    after = before.delete(record.name) if record.value is None else before.set(record.name, record.value)
    to.configs = to.configs.set(resource, after) if after else to.configs.delete(resource)


def _client_quota_changed(to: _Successor, record: ClientQuotaChanged) -> None:
    parts = ((each.entity_type, each.entity_name) for each in record.entity)
    entity = tuple(sorted(parts, key=lambda part: part[0]))
    before = to.quotas.get(entity, NO_QUOTAS)
    after = before.delete(record.key) if record.remove else before.set(record.key, record.value)
    to.quotas = to.quotas.set(entity, after) if after else to.quotas.delete(entity)


def _producer_ids_taken(to: _Successor, record: ProducerIdsTaken) -> None:
    if record.next_producer_id <= to.next_producer_id:
        raise ConsensusError(f"producer ids below {to.next_producer_id} were given out already")
    to.next_producer_id = record.next_producer_id


def _no_op(to: _Successor, record: NoOp) -> None:
    pass


_APPLY: Final[Mapping[type[Message], Callable[[_Successor, Any], None]]] = {
    RegisterBroker: _register_broker,
    UnregisterBroker: _unregister_broker,
    BrokerRegistrationChange: _broker_registration_change,
    TopicCreated: _topic_created,
    TopicRemoved: _topic_removed,
    PartitionCreated: _partition_created,
    PartitionChanged: _partition_changed,
    ConfigChanged: _config_changed,
    ClientQuotaChanged: _client_quota_changed,
    FeatureLevelSet: _feature_level_set,
    ProducerIdsTaken: _producer_ids_taken,
    NoOp: _no_op,
    ClusterCreated: _cluster_created,
    ControllerElected: _controller_elected,
    ControllerRegistered: _controller_registered,
    ControllerForgotten: _controller_forgotten,
}
