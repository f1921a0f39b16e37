"""Levels: which versions of records may be written, and which can be read.

The cluster has one level of the feature `dlog.metadata.version`, set by a record.  A broker says when it
registers which levels it knows; the level is raised only when every registered broker knows the new one, and
a broker that does not know the present level is not registered.  So a cluster of mixed versions keeps working
until an operator raises the level.

| level | writes                                                                                        |
|-------|-----------------------------------------------------------------------------------------------|
| 1     | RegisterBroker 1, PartitionCreated 0, PartitionChanged 0: an ISR keeps its last member        |
| 2     | RegisterBroker 3, PartitionCreated 2, PartitionChanged 2: eligible leader replicas, disk ids  |
| 3     | ClientQuotaChanged 0: quotas                                                                  |
| 4     | RegisterBroker 3 with the host that a broker runs on                                          |
| 5     | ControllerRegistered 0, ControllerForgotten 0: voters that come and go                        |

The record that raises the level stands in the log before the first that needs it.  If it does not commit,
neither does anything behind it; so no reader ever meets a record above a level that is committed.  A reader
that meets a level, a version or a kind beyond what it knows raises UnsupportedVersionError and reads no
further: guessing would make its image differ from everyone else's.

There is no way down: a lower level could not hold what a higher one wrote.

The feature `group.version` is Kafka's, and says nothing about records of metadata: at level 1 coordinators
serve consumer groups (KIP-848), at level 0, where a cluster of earlier software is, they refuse.  New ones
begin at 1; others are raised by an operator, once every broker knows it, in the same way.

The feature `transaction.version` is Kafka's too: clients that see level 2 end transactions in its way, with
an epoch for each (KIP-890), others in the classic one.  A log of transactions is read the same at any level.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from distributedlog.controller.records import (
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
    Versioned,
)
from distributedlog.model.errors import UnsupportedVersionError
from distributedlog.protocol.schema import Message

METADATA_FEATURE: Final = "dlog.metadata.version"
GROUP_FEATURE: Final = "group.version"
GROUP_LEVEL_CONSUMER: Final = 1
TRANSACTION_FEATURE: Final = "transaction.version"
TRANSACTION_LEVEL_EPOCHS: Final = 2
LEVEL_MIN: Final = 1
LEVEL_ELIGIBLE_LEADERS: Final = 2
LEVEL_QUOTAS: Final = 3
LEVEL_HOSTS: Final = 4
LEVEL_CONTROLLERS: Final = 5
LEVEL_MAX: Final = 5

FEATURES: Final[Mapping[str, tuple[int, int]]] = {
    METADATA_FEATURE: (LEVEL_MIN, LEVEL_MAX),
    GROUP_FEATURE: (0, GROUP_LEVEL_CONSUMER),
    TRANSACTION_FEATURE: (0, TRANSACTION_LEVEL_EPOCHS),
}
"""The levels that this version knows: a broker registers with these."""

_ALWAYS: Final[Mapping[type[Message], int]] = {
    BrokerRegistrationChange: 1,
    ClusterCreated: 0,
    ConfigChanged: 0,
    ControllerElected: 0,
    FeatureLevelSet: 0,
    NoOp: 0,
    ProducerIdsTaken: 0,
    TopicCreated: 0,
    TopicRemoved: 0,
    UnregisterBroker: 0,
}
_ELIGIBLE: Final[Mapping[type[Message], int]] = {
    **_ALWAYS,
    RegisterBroker: 3,
    PartitionCreated: 2,
    PartitionChanged: 2,
}
_QUOTAS: Final[Mapping[type[Message], int]] = {**_ELIGIBLE, ClientQuotaChanged: 0}
LEVELS: Final[Mapping[int, Mapping[type[Message], int]]] = {
    1: {**_ALWAYS, RegisterBroker: 1, PartitionCreated: 0, PartitionChanged: 0},
    2: _ELIGIBLE,
    3: _QUOTAS,
    4: _QUOTAS,
    5: {**_QUOTAS, ControllerRegistered: 0, ControllerForgotten: 0},
}


class SupportsGet(Protocol):
    """The levels of a cluster, by feature."""

    def get(self, key: str, default: int, /) -> int: ...


def versioned(records: Iterable[Message], level: int) -> list[Versioned]:
    """The records in the versions that this level writes."""
    versions = LEVELS[level]
    return [Versioned(record, versions[type(record)]) for record in records]


def has_eligible_leaders(level: int) -> bool:
    return level >= LEVEL_ELIGIBLE_LEADERS


def has_quotas(level: int) -> bool:
    return level >= LEVEL_QUOTAS


def has_hosts(level: int) -> bool:
    return level >= LEVEL_HOSTS


def has_controllers(level: int) -> bool:
    return level >= LEVEL_CONTROLLERS


def has_consumer_groups(features: SupportsGet) -> bool:
    return features.get(GROUP_FEATURE, 0) >= GROUP_LEVEL_CONSUMER


def check_level_known(name: str, level: int, level_max: int) -> None:
    """A log of a level beyond ours cannot be read: saying so is all that is left."""
    known_max = level_max if name == METADATA_FEATURE else FEATURES.get(name, (0, 0))[1]
    if level > known_max:
        raise UnsupportedVersionError(
            f"the cluster is at level {level} of {name}; this version knows up to {known_max}: "
            "install a newer one"
        )
