"""The records of the metadata log.

Where Kafka's metadata log has the same record it has the same id, fields, types and tags here.  All versions
are flexible, so a field can be added as a tagged one.

| id  | record                   | versions | says                                                         |
|-----|--------------------------|----------|--------------------------------------------------------------|
| 0   | RegisterBroker           | 1, 3     | a broker's process: where it listens, its epoch; 3: its disks |
| 1   | UnregisterBroker         | 0        | the broker is gone for good                                  |
| 2   | TopicCreated             | 0        | a name has an id                                             |
| 3   | PartitionCreated         | 0, 2     | a partition, whole; 2: with eligible leader replicas         |
| 4   | ConfigChanged            | 0        | one setting; null removes it                                 |
| 5   | PartitionChanged         | 0, 2     | what of a partition changed                                  |
| 9   | TopicRemoved             | 0        | the topic, its partitions and its settings are gone          |
| 12  | FeatureLevelSet          | 0        | from here on, records of this level may follow               |
| 14  | ClientQuotaChanged       | 0        | one limit of a user, a client id or both; or its removal     |
| 15  | ProducerIdsTaken         | 0        | ids below this are given out                                 |
| 17  | BrokerRegistrationChange | 1        | fenced, unfenced, or in controlled shutdown                  |
| 20  | NoOp                     | 0        | nothing                                                      |
| 100 | ClusterCreated           | 0        | the cluster's id; ours                                       |
| 101 | ControllerElected        | 0        | the active controller from here on, and its epoch; ours      |
| 102 | ControllerRegistered     | 0        | where a controller is reached, and its storage; ours         |
| 103 | ControllerForgotten      | 0        | a controller is no voter, and its place is forgotten; ours   |

Kept free, for what they are in Kafka: 11 and 22 (users), 18 and 19 (access control).  Versions between those
named can be read; no level writes them.

Epochs.  A PartitionChanged raises the partition epoch by one, always; the leader epoch by one if it names a
leader, even the same one, or none (-1).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from distributedlog.model.ids import Uuid
from distributedlog.protocol.kinds import (
    BOOL,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    array,
    nullable,
)
from distributedlog.protocol.schema import Message, Struct, field

NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2
RECOVERED: Final = 0
RECOVERING: Final = 1
NO_RECOVERY_CHANGE: Final = -1
FENCE: Final = 1
UNFENCE: Final = -1
ORIGINAL_TAG: Final = 10_000
"""A tag that is not Kafka's: the order of the replicas before a move, which its cancellation restores."""

HOST_TAG: Final = 10_000
"""Likewise, of another record: the machine that a broker runs on."""

RESERVED_IDS: Final = frozenset({11, 18, 19, 22})


class BrokerEndpoint(Struct):
    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)
    security_protocol: int = field(INT16)


class BrokerFeature(Struct):
    name: str = field(STRING)
    min_supported_version: int = field(INT16)
    max_supported_version: int = field(INT16)


class RegisterBroker(Message, versions=(0, 3), flexible_since=0):
    broker_id: int = field(INT32)
    is_migrating_zk_broker: bool = field(BOOL, since=2, default=False)
    """Never set here."""
    incarnation_id: Uuid = field(UUID)
    broker_epoch: int = field(INT64)
    end_points: list[BrokerEndpoint] = field(array(BrokerEndpoint))
    features: list[BrokerFeature] = field(array(BrokerFeature))
    rack: str | None = field(nullable(STRING))
    fenced: bool = field(BOOL, default=True)
    in_controlled_shutdown: bool = field(BOOL, since=1, default=False)
    log_dirs: list[Uuid] = field(array(UUID), since=3, tag=0, default_factory=list)
    host: str | None = field(nullable(STRING), since=3, tag=HOST_TAG, default=None)
    """Written from level 4 on."""


class UnregisterBroker(Message, versions=(0, 0), flexible_since=0):
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64)


class BrokerRegistrationChange(Message, versions=(0, 2), flexible_since=0):
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64)
    fenced: int = field(INT8, tag=0, default=0)
    """1: fenced, -1: unfenced, 0: as it was."""
    in_controlled_shutdown: int = field(INT8, since=1, tag=1, default=0)
    """1: it is, 0: as it was."""
    log_dirs: list[Uuid] = field(array(UUID), since=2, tag=2, default_factory=list)


class TopicCreated(Message, versions=(0, 0), flexible_since=0):
    name: str = field(STRING)
    topic_id: Uuid = field(UUID)


class TopicRemoved(Message, versions=(0, 0), flexible_since=0):
    topic_id: Uuid = field(UUID)


class PartitionCreated(Message, versions=(0, 2), flexible_since=0):
    partition_id: int = field(INT32, default=-1)
    topic_id: Uuid = field(UUID)
    replicas: list[int] = field(array(INT32))
    isr: list[int] = field(array(INT32))
    removing_replicas: list[int] = field(array(INT32), default_factory=list)
    adding_replicas: list[int] = field(array(INT32), default_factory=list)
    leader: int = field(INT32, default=NO_LEADER)
    leader_recovery_state: int = field(INT8, tag=0, default=RECOVERED)
    leader_epoch: int = field(INT32, default=-1)
    partition_epoch: int = field(INT32, default=-1)
    directories: list[Uuid] = field(array(UUID), since=1, default_factory=list)
    """Empty unless one of them is lost: a broker has one log directory."""
    eligible_leader_replicas: list[int] | None = field(nullable(array(INT32)), since=2, tag=1, default=None)
    last_known_elr: list[int] | None = field(nullable(array(INT32)), since=2, tag=2, default=None)
    original_replicas: list[int] | None = field(nullable(array(INT32)), tag=ORIGINAL_TAG, default=None)


class PartitionChanged(Message, versions=(0, 2), flexible_since=0):
    """None, or the number that says so, is "as it was"."""

    partition_id: int = field(INT32, default=-1)
    topic_id: Uuid = field(UUID)
    isr: list[int] | None = field(nullable(array(INT32)), tag=0, default=None)
    leader: int = field(INT32, tag=1, default=NO_LEADER_CHANGE)
    replicas: list[int] | None = field(nullable(array(INT32)), tag=2, default=None)
    removing_replicas: list[int] | None = field(nullable(array(INT32)), tag=3, default=None)
    adding_replicas: list[int] | None = field(nullable(array(INT32)), tag=4, default=None)
    leader_recovery_state: int = field(INT8, tag=5, default=NO_RECOVERY_CHANGE)
    eligible_leader_replicas: list[int] | None = field(nullable(array(INT32)), since=2, tag=6, default=None)
    last_known_elr: list[int] | None = field(nullable(array(INT32)), since=2, tag=7, default=None)
    directories: list[Uuid] | None = field(nullable(array(UUID)), since=1, tag=8, default=None)
    original_replicas: list[int] | None = field(nullable(array(INT32)), tag=ORIGINAL_TAG, default=None)


class ConfigChanged(Message, versions=(0, 0), flexible_since=0):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    name: str = field(STRING)
    value: str | None = field(nullable(STRING))


class FeatureLevelSet(Message, versions=(0, 0), flexible_since=0):
    """Opens every log and every snapshot, so it can have no second version."""

    name: str = field(STRING)
    feature_level: int = field(INT16)


class QuotaEntityPart(Struct):
    entity_type: str = field(STRING)
    entity_name: str | None = field(nullable(STRING))
    """None: the default of all that have none of their own."""


class ClientQuotaChanged(Message, versions=(0, 0), flexible_since=0):
    entity: list[QuotaEntityPart] = field(array(QuotaEntityPart))
    key: str = field(STRING)
    value: float = field(FLOAT64)
    remove: bool = field(BOOL)


class ProducerIdsTaken(Message, versions=(0, 0), flexible_since=0):
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)
    next_producer_id: int = field(INT64)


class NoOp(Message, versions=(0, 0), flexible_since=0):
    pass


class ClusterCreated(Message, versions=(0, 0), flexible_since=0):
    cluster_id: str = field(STRING)


class ControllerElected(Message, versions=(0, 0), flexible_since=0):
    controller_id: int = field(INT32)
    epoch: int = field(INT64)


class ControllerRegistered(Message, versions=(0, 0), flexible_since=0):
    controller_id: int = field(INT32)
    directory_id: Uuid = field(UUID)
    """The data directory's id: what Kafka's tools name a voter by, beside its number."""
    incarnation: int = field(INT64)
    """That of its Raft storage, which a membership names (`raft/membership`)."""
    host: str = field(STRING)
    port: int = field(UINT16)


class ControllerForgotten(Message, versions=(0, 0), flexible_since=0):
    controller_id: int = field(INT32)


RECORDS: Final[Mapping[int, type[Message]]] = {
    0: RegisterBroker,
    1: UnregisterBroker,
    2: TopicCreated,
    3: PartitionCreated,
    4: ConfigChanged,
    5: PartitionChanged,
    9: TopicRemoved,
    12: FeatureLevelSet,
    14: ClientQuotaChanged,
    15: ProducerIdsTaken,
    17: BrokerRegistrationChange,
    20: NoOp,
    100: ClusterCreated,
    101: ControllerElected,
    102: ControllerRegistered,
    103: ControllerForgotten,
}
RECORD_IDS: Final[Mapping[type[Message], int]] = {record: number for number, record in RECORDS.items()}


class Versioned(NamedTuple):
    """A record and the version it is written in."""

    message: Message
    version: int
