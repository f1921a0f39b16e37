"""Levels: which versions of records may be written, and which can be read.

The cluster has one level of the feature `dlog.metadata.version`, set by a record.  A broker says when it
registers which levels it knows; the level is raised only when every registered broker knows the new one, and
a broker that does not know the present level is not registered.  So a cluster of mixed versions keeps working
until an operator raises the level.

| level | writes                                                                                        |
|-------|-----------------------------------------------------------------------------------------------|
| 1     | RegisterBroker 1, PartitionCreated 0, PartitionChanged 0: an ISR keeps its last member        |
| 2     | RegisterBroker 3, PartitionCreated 2, PartitionChanged 2: eligible leader replicas, disk ids  |

The record that raises the level stands in the log before the first that needs it.  If it does not commit,
neither does anything behind it; so no reader ever meets a record above a level that is committed.  A reader
that meets a level, a version or a kind beyond what it knows raises UnsupportedVersionError and reads no
further: guessing would make its image differ from everyone else's.

There is no way down: a lower level could not hold what a higher one wrote.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from distributedlog.controller.records import (
    BrokerRegistrationChange,
    ClusterCreated,
    ConfigChanged,
    ControllerElected,
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
LEVEL_MIN: Final = 1
LEVEL_ELIGIBLE_LEADERS: Final = 2
LEVEL_MAX: Final = 2

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
LEVELS: Final[Mapping[int, Mapping[type[Message], int]]] = {
    1: {**_ALWAYS, RegisterBroker: 1, PartitionCreated: 0, PartitionChanged: 0},
    2: {**_ALWAYS, RegisterBroker: 3, PartitionCreated: 2, PartitionChanged: 2},
}


def versioned(records: Iterable[Message], level: int) -> list[Versioned]:
    """The records in the versions that this level writes."""
    versions = LEVELS[level]
    return [Versioned(record, versions[type(record)]) for record in records]


def has_eligible_leaders(level: int) -> bool:
    return level >= LEVEL_ELIGIBLE_LEADERS


def check_level_known(name: str, level: int, level_max: int) -> None:
    """A log of a level beyond ours cannot be read: saying so is all that is left."""
    known_max = level_max if name == METADATA_FEATURE else 0
    if level > known_max:
        raise UnsupportedVersionError(
            f"the cluster is at level {level} of {name}; this version knows up to {known_max}: "
            "install a newer one"
        )
