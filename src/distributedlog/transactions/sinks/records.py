"""The records of sinks, and their bytes in `__transaction_state`.

    key 1000    a query: its batch, the decision with its winners, the last committed batch
    key 1001    a producer id of a query's pool, with the attempt that holds it and the partitions it wrote to

One record for each attempt and not one that grows: a batch of many attempts would be written again with each.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from distributedlog.model.buffers import Buffer
from distributedlog.model.errors import MalformedMessageError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.sink_records import (
    SinkLeaseKey,
    SinkLeaseValue,
    SinkQueryKey,
    SinkQueryValue,
    SinkWinner,
)
from distributedlog.protocol.messages.transaction_records import PartitionsOfTopic
from distributedlog.protocol.versioned import decode_versioned, encode_versioned
from distributedlog.statemachine.pending import Producer
from distributedlog.transactions.sinks.query import SINK_STATES, Lease, SinkQuery
from distributedlog.transactions.transaction import TransactionState

QUERY_KEY_VERSION: Final = 1000
LEASE_KEY_VERSION: Final = 1001
VALUE_VERSION: Final = 0
WINNER_BYTES: Final = 11
"""What one winner takes in a record."""
QUERY_OVERHEAD_BYTES: Final = 128
"""More than a query's record takes besides its id and its winners."""


class SinkQueryRecord(NamedTuple):
    query_id: str
    value: SinkQuery | None


class SinkLeaseRecord(NamedTuple):
    query_id: str
    producer_id: int
    value: Lease | None


SinkRecord = SinkQueryRecord | SinkLeaseRecord


def encode_sink_record(record: SinkRecord) -> tuple[bytes, bytes | None]:
    """Returns key and value."""
    if isinstance(record, SinkQueryRecord):
        key = encode_versioned(SinkQueryKey(query_id=record.query_id), QUERY_KEY_VERSION)
        return key, None if record.value is None else _encode_query(record.value)
    lease_key = SinkLeaseKey(query_id=record.query_id, producer_id=record.producer_id)
    value = None if record.value is None else _encode_lease(record.value)
    return encode_versioned(lease_key, LEASE_KEY_VERSION), value


def _encode_query(query: SinkQuery) -> bytes:
    value = SinkQueryValue(
        token=query.token,
        batch_token=query.batch_token,
        batch_id=query.batch_id,
        state=query.state,
        timeout_ms=query.timeout_ms,
        winners=[SinkWinner(producer_id=each[0], producer_epoch=each[1]) for each in query.winners],
        committed_batch_id=query.committed_batch_id,
        start_timestamp_ms=query.start_ms,
        last_update_timestamp_ms=query.last_update_ms,
    )
    return encode_versioned(value, VALUE_VERSION)


def _encode_lease(lease: Lease) -> bytes:
    value = SinkLeaseValue(
        producer_epoch=lease.epoch,
        attempt_id=lease.attempt_id,
        partitions=group_by_topic(lease.partitions),
        last_update_timestamp_ms=lease.last_update_ms,
    )
    return encode_versioned(value, VALUE_VERSION)


def group_by_topic(partitions: Iterable[TopicPartition]) -> list[PartitionsOfTopic]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return [PartitionsOfTopic(topic=topic, partition_ids=ids) for topic, ids in topics.items()]


def decode_sink_record(version: int, key: Buffer, value: Buffer | None) -> SinkRecord | None:
    """Decodes a record whose key has this version; None for a kind that is not known."""
    if version == QUERY_KEY_VERSION:
        query_id = decode_versioned(SinkQueryKey, key)[1].query_id
        query = None if value is None else _decode_query(decode_versioned(SinkQueryValue, value)[1])
        return SinkQueryRecord(query_id, query)
    if version == LEASE_KEY_VERSION:
        lease_key = decode_versioned(SinkLeaseKey, key)[1]
        lease = None if value is None else _decode_lease(decode_versioned(SinkLeaseValue, value)[1])
        return SinkLeaseRecord(lease_key.query_id, lease_key.producer_id, lease)
    return None


def _decode_query(value: SinkQueryValue) -> SinkQuery:
    if value.state not in SINK_STATES:
        raise MalformedMessageError(f"a sink's query has the state {value.state}, which is never written")
    return SinkQuery(
        token=value.token,
        batch_token=value.batch_token,
        batch_id=value.batch_id,
        state=TransactionState(value.state),
        timeout_ms=value.timeout_ms,
        winners=tuple(Producer(each.producer_id, each.producer_epoch) for each in value.winners),
        committed_batch_id=value.committed_batch_id,
        start_ms=value.start_timestamp_ms,
        last_update_ms=value.last_update_timestamp_ms,
    )


def _decode_lease(value: SinkLeaseValue) -> Lease:
    return Lease(
        epoch=value.producer_epoch,
        attempt_id=value.attempt_id,
        partitions=frozenset(
            TopicPartition(each.topic, partition)
            for each in value.partitions
            for partition in each.partition_ids
        ),
        last_update_ms=value.last_update_timestamp_ms,
    )


def query_size_bound(query_id: str, winner_count: int) -> int:
    """Returns at least as many bytes as a query's record with so many winners takes in a batch."""
    return QUERY_OVERHEAD_BYTES + len(query_id.encode()) + WINNER_BYTES * winner_count
