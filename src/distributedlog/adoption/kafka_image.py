"""What Kafka's metadata records say in the end: its topics, their partitions and settings.  Pure.

Kafka's log is replayed as Kafka does it: a record counts when it is reached, those of a transaction when that
ends, and never if it was aborted or not ended.  A record that cannot follow (a partition of no topic) means
that part of the log is missing: ConsensusError.

Of a partition more is kept than in our own image: in which log directory of each replica it is, by the
directory's id.  Of what is not taken over (users, access rules, tokens) only how much there was.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from distributedlog.adoption.kafka_records import (
    AccessRuleRemoved,
    AccessRuleSet,
    ControllerRegistered,
    TokenIssued,
    TokenRemoved,
    TransactionAborted,
    TransactionBegun,
    TransactionEnded,
    UserRemoved,
    UserSet,
)
from distributedlog.controller.image import Partition, changed
from distributedlog.controller.records import (
    ClientQuotaChanged,
    ConfigChanged,
    FeatureLevelSet,
    PartitionChanged,
    PartitionCreated,
    ProducerIdsTaken,
    RegisterBroker,
    TopicCreated,
    TopicRemoved,
    UnregisterBroker,
)
from distributedlog.model.errors import ConsensusError
from distributedlog.model.ids import Uuid
from distributedlog.protocol.schema import Message

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4

QuotaParts = tuple[tuple[str, str | None], ...]
"""Whom a quota is for: type and name of each part; no name is the default."""


@dataclass(slots=True)
class KafkaPartition:
    state: Partition
    directories: tuple[Uuid, ...] = ()
    """The directory of each replica; empty where Kafka did not say."""

    def directory_of(self, broker_id: int) -> Uuid | None:
        if broker_id not in self.state.replicas or len(self.directories) != len(self.state.replicas):
            return None
        return self.directories[self.state.replicas.index(broker_id)]


@dataclass(slots=True)
class KafkaTopic:
    name: str
    topic_id: Uuid
    partitions: dict[int, KafkaPartition] = field(default_factory=dict)


class KafkaImage:
    """Give it every record in order, then look."""

    def __init__(self) -> None:
        self.topics: dict[Uuid, KafkaTopic] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.brokers: dict[int, RegisterBroker] = {}
        self.controllers: set[int] = set()
        self.next_producer_id = 0
        self.users: set[tuple[str, int]] = set()
        self.tokens: set[str] = set()
        self.access_rules: set[Uuid] = set()
        self.quotas: dict[QuotaParts, dict[str, float]] = {}
        self._transaction: list[Message] | None = None

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction is open: what came since its beginning does not count yet."""
        return self._transaction is not None

    def topic_named(self, name: str) -> KafkaTopic | None:
        return next((each for each in self.topics.values() if each.name == name), None)

    def settings_of(self, kind: int, name: str) -> Mapping[str, str]:
        return self.configs.get((kind, name), {})

    def apply(self, message: Message) -> None:
        if isinstance(message, TransactionBegun):
            if self._transaction is not None:
                raise ConsensusError("a transaction of the metadata log begins within another")
            self._transaction = []
        elif isinstance(message, TransactionEnded | TransactionAborted):
            held, self._transaction = self._transaction, None
            if held is None:
                raise ConsensusError("a transaction of the metadata log ends that never began")
            for each in held if isinstance(message, TransactionEnded) else ():
                self._count(each)
        elif self._transaction is not None:
            self._transaction.append(message)
        else:
            self._count(message)

    def _count(self, message: Message) -> None:
        apply = _APPLY.get(type(message))
        if apply is not None:
            apply(self, message)

    def topic(self, topic_id: Uuid) -> KafkaTopic:
        topic = self.topics.get(topic_id)
        if topic is None:
            raise ConsensusError(f"a record speaks of the topic {topic_id}, of which nothing was said before")
        return topic


# --- one function for each record --------------------------------------------------------------


def _topic_created(to: KafkaImage, record: TopicCreated) -> None:
    to.topics[record.topic_id] = KafkaTopic(record.name, record.topic_id)


def _topic_removed(to: KafkaImage, record: TopicRemoved) -> None:
    topic = to.topic(record.topic_id)
    del to.topics[record.topic_id]
    to.configs.pop((TOPIC_RESOURCE, topic.name), None)


def _partition_created(to: KafkaImage, record: PartitionCreated) -> None:
    state = Partition(
        tuple(record.replicas),
        tuple(record.isr),
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        record.leader_recovery_state,
        tuple(record.eligible_leader_replicas or ()),
        tuple(record.last_known_elr or ()),
    )
    partitions = to.topic(record.topic_id).partitions
    partitions[record.partition_id] = KafkaPartition(state, tuple(record.directories))


def _partition_changed(to: KafkaImage, record: PartitionChanged) -> None:
    topic = to.topic(record.topic_id)
    partition = topic.partitions.get(record.partition_id)
    if partition is None:
        raise ConsensusError(f"a record changes {topic.name}-{record.partition_id}, which was never made")
    partition.state = changed(partition.state, record)
    if record.directories is not None:
        partition.directories = tuple(record.directories)


def _config_changed(to: KafkaImage, record: ConfigChanged) -> None:
    settings = to.configs.setdefault((record.resource_type, record.resource_name), {})
    if record.value is None:
        settings.pop(record.name, None)
    else:
        settings[record.name] = record.value


def _feature_level_set(to: KafkaImage, record: FeatureLevelSet) -> None:
    to.features[record.name] = record.feature_level


def _register_broker(to: KafkaImage, record: RegisterBroker) -> None:
    to.brokers[record.broker_id] = record


def _unregister_broker(to: KafkaImage, record: UnregisterBroker) -> None:
    to.brokers.pop(record.broker_id, None)


def _producer_ids_taken(to: KafkaImage, record: ProducerIdsTaken) -> None:
    to.next_producer_id = max(to.next_producer_id, record.next_producer_id)


def _controller_registered(to: KafkaImage, record: ControllerRegistered) -> None:
    to.controllers.add(record.controller_id)


def _user_set(to: KafkaImage, record: UserSet) -> None:
    to.users.add((record.name, record.mechanism))


def _user_removed(to: KafkaImage, record: UserRemoved) -> None:
    to.users.discard((record.name, record.mechanism))


def _token_issued(to: KafkaImage, record: TokenIssued) -> None:
    to.tokens.add(record.token_id)


def _token_removed(to: KafkaImage, record: TokenRemoved) -> None:
    to.tokens.discard(record.token_id)


def _access_rule_set(to: KafkaImage, record: AccessRuleSet) -> None:
    to.access_rules.add(record.id)


def _access_rule_removed(to: KafkaImage, record: AccessRuleRemoved) -> None:
    to.access_rules.discard(record.id)


def _quota_changed(to: KafkaImage, record: ClientQuotaChanged) -> None:
    entity = tuple((each.entity_type, each.entity_name) for each in record.entity)
    limits = to.quotas.setdefault(entity, {})
    if record.remove:
        limits.pop(record.key, None)
    else:
        limits[record.key] = record.value


_APPLY: Final[Mapping[type[Message], Callable[[KafkaImage, Any], None]]] = {
    TopicCreated: _topic_created,
    TopicRemoved: _topic_removed,
    PartitionCreated: _partition_created,
    PartitionChanged: _partition_changed,
    ConfigChanged: _config_changed,
    FeatureLevelSet: _feature_level_set,
    RegisterBroker: _register_broker,
    UnregisterBroker: _unregister_broker,
    ProducerIdsTaken: _producer_ids_taken,
    ControllerRegistered: _controller_registered,
    UserSet: _user_set,
    UserRemoved: _user_removed,
    TokenIssued: _token_issued,
    TokenRemoved: _token_removed,
    AccessRuleSet: _access_rule_set,
    AccessRuleRemoved: _access_rule_removed,
    ClientQuotaChanged: _quota_changed,
}
"""A record that is not here says nothing about what is taken over."""
