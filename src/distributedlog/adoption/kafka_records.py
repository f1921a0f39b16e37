"""The records of Kafka's metadata log, as far as they say something about what is taken over.  Pure.

    value of a record    frame uvarint = 1 | id uvarint | version uvarint | body

| ids                    | records                                    | here                                 |
|------------------------|--------------------------------------------|--------------------------------------|
| 0 to 5 9 12 14 15 17   | brokers, topics, settings, quotas, ...     | as in `controller.records`: the same |
| 7 8 20 21 28           | old fencing, nothing, of ZooKeeper, no ELR | passed over                          |
| 23 24 25               | begin, end and abort of a transaction      | what is between counts at its end    |
| 10 26, 11 22, 18 19    | tokens, users, access control              | counted, so that it can be said      |
| 27                     | a controller registered                    | counted: is this one of several?     |

An id or a version that is not here is of a Kafka that came later: UnsupportedVersionError, since what it says
may be about a topic.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from distributedlog.controller.bundles import ELEMENTS_PER_RECORD_MAX
from distributedlog.controller.records import RECORDS, BrokerEndpoint, BrokerFeature
from distributedlog.model.buffers import Buffer
from distributedlog.model.errors import MalformedMessageError, UnsupportedVersionError
from distributedlog.model.ids import Uuid
from distributedlog.protocol.codec import decode_all
from distributedlog.protocol.kinds import (
    BOOL,
    BYTES,
    INT8,
    INT32,
    INT64,
    STRING,
    UUID,
    array,
    nullable,
)
from distributedlog.protocol.primitives import read_uvarint
from distributedlog.protocol.schema import Message, field

FRAME_VERSION: Final = 1
OURS_FROM: Final = 100
"""Ids from here on are this project's own; Kafka has none so high."""


class BrokerFenced(Message, versions=(0, 0), flexible_since=0):
    id: int = field(INT32)
    epoch: int = field(INT64)


class BrokerUnfenced(Message, versions=(0, 0), flexible_since=0):
    id: int = field(INT32)
    epoch: int = field(INT64)


class TokenIssued(Message, versions=(0, 0), flexible_since=0):
    owner: str = field(STRING)
    requester: str = field(STRING)
    renewers: list[str] = field(array(STRING))
    issue_timestamp: int = field(INT64)
    max_timestamp: int = field(INT64)
    expiration_timestamp: int = field(INT64)
    token_id: str = field(STRING)


class TokenRemoved(Message, versions=(0, 0), flexible_since=0):
    token_id: str = field(STRING)


class UserSet(Message, versions=(0, 0), flexible_since=0):
    name: str = field(STRING)
    mechanism: int = field(INT8)
    salt: bytes = field(BYTES)
    stored_key: bytes = field(BYTES)
    server_key: bytes = field(BYTES)
    iterations: int = field(INT32)


class UserRemoved(Message, versions=(0, 0), flexible_since=0):
    name: str = field(STRING)
    mechanism: int = field(INT8)


class AccessRuleSet(Message, versions=(0, 0), flexible_since=0):
    id: Uuid = field(UUID)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    pattern_type: int = field(INT8)
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class AccessRuleRemoved(Message, versions=(0, 0), flexible_since=0):
    id: Uuid = field(UUID)


class ZooKeeperState(Message, versions=(0, 0), flexible_since=0):
    zk_migration_state: int = field(INT8)


class TransactionBegun(Message, versions=(0, 0), flexible_since=0):
    name: str | None = field(nullable(STRING), tag=0, default=None)


class TransactionEnded(Message, versions=(0, 0), flexible_since=0):
    pass


class TransactionAborted(Message, versions=(0, 0), flexible_since=0):
    reason: str | None = field(nullable(STRING), tag=0, default=None)


class ControllerRegistered(Message, versions=(0, 0), flexible_since=0):
    controller_id: int = field(INT32)
    incarnation_id: Uuid = field(UUID)
    zk_migration_ready: bool = field(BOOL)
    end_points: list[BrokerEndpoint] = field(array(BrokerEndpoint))
    features: list[BrokerFeature] = field(array(BrokerFeature))


class EligibleLeadersCleared(Message, versions=(0, 0), flexible_since=0):
    topic_name: str = field(STRING)
    """Empty: of all topics."""


KAFKA_RECORDS: Final[Mapping[int, type[Message]]] = {
    **{number: schema for number, schema in RECORDS.items() if number < OURS_FROM},
    7: BrokerFenced,
    8: BrokerUnfenced,
    10: TokenIssued,
    11: UserSet,
    18: AccessRuleSet,
    19: AccessRuleRemoved,
    21: ZooKeeperState,
    22: UserRemoved,
    23: TransactionBegun,
    24: TransactionEnded,
    25: TransactionAborted,
    26: TokenRemoved,
    27: ControllerRegistered,
    28: EligibleLeadersCleared,
}


class KafkaRecord(NamedTuple):
    message: Message
    version: int


def decode_kafka_record(value: Buffer | None) -> KafkaRecord:
    """Whatever the bytes are: a record, or MalformedMessageError, or UnsupportedVersionError."""
    if value is None:
        raise MalformedMessageError("a record of the metadata log has no value")
    try:
        frame, position = read_uvarint(value, 0)
        number, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
    except IndexError as error:
        raise MalformedMessageError("a record of the metadata log is cut short") from error
    if frame != FRAME_VERSION:
        raise UnsupportedVersionError(f"a record of frame version {frame}; {FRAME_VERSION} is known here")
    schema = KAFKA_RECORDS.get(number)
    if schema is None:
        raise UnsupportedVersionError(f"a record of the kind {number}, which is not known here")
    if not schema.versions[0] <= version <= schema.versions[1]:
        raise UnsupportedVersionError(
            f"a record of the kind {number} in version {version}; known are {schema.versions[0]} to "
            f"{schema.versions[1]}"
        )
    body = memoryview(value)[position:]
    return KafkaRecord(decode_all(schema, version, body, elements_max=ELEMENTS_PER_RECORD_MAX), version)
