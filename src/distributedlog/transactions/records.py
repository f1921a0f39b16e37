"""The records of a transaction coordinator, and their bytes in `__transaction_state`.

    key      TransactionLogKey, version 0
    value    TransactionLogValue: version 0, or 1 where there is something to say that 0 has no field for (a
             client of version 2, another producer id before or after this one); null: the id is forgotten

These are what Kafka's brokers write, so that either reads the other's.  Keys of two other versions are those
of sinks (`sinks/records`); keys of others are passed over, and stay in the log.  A value of a version or a
state that is not known is an error, which whoever loads the log counts and logs.
"""

from collections.abc import Hashable, Iterable
from typing import Final, NamedTuple

from distributedlog.model.buffers import Buffer
from distributedlog.model.errors import MalformedMessageError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.transaction_records import (
    PartitionsOfTopic,
    TransactionLogKey,
    TransactionLogValue,
)
from distributedlog.protocol.versioned import decode_versioned, encode_versioned, version_of
from distributedlog.transactions.sinks.records import (
    SinkRecord,
    decode_sink_record,
    encode_sink_record,
    group_by_topic,
)
from distributedlog.transactions.transaction import (
    NO_PRODUCER_ID,
    VERSION_CLASSIC,
    Transaction,
    TransactionState,
)

KEY_VERSION: Final = 0


class TransactionRecord(NamedTuple):
    transactional_id: str
    value: Transaction | None


Record = TransactionRecord | SinkRecord


def record_key(record: Record) -> Hashable:
    """Returns what compaction goes by."""
    if isinstance(record, TransactionRecord):
        return record.transactional_id
    return (type(record), record[:-1])


def encode_record(record: Record) -> tuple[bytes, bytes | None]:
    """Returns key and value."""
    if not isinstance(record, TransactionRecord):
        return encode_sink_record(record)
    key = encode_versioned(TransactionLogKey(transactional_id=record.transactional_id), KEY_VERSION)
    return key, None if record.value is None else _encode_value(record.value)


def encode_records(records: Iterable[Record]) -> list[tuple[bytes, bytes | None]]:
    return [encode_record(record) for record in records]


def _encode_value(found: Transaction) -> bytes:
    value = TransactionLogValue(
        producer_id=found.producer_id,
        previous_producer_id=found.previous_producer_id,
        next_producer_id=found.next_producer_id,
        producer_epoch=found.producer_epoch,
        transaction_timeout_ms=found.timeout_ms,
        transaction_status=found.state,
        transaction_partitions=_by_topic(found),
        transaction_last_update_timestamp_ms=found.last_update_ms,
        transaction_start_timestamp_ms=found.start_ms,
        client_transaction_version=found.version,
    )
    others = (found.previous_producer_id, found.next_producer_id)
    is_plain = found.version == VERSION_CLASSIC and others == (NO_PRODUCER_ID, NO_PRODUCER_ID)
    return encode_versioned(value, 0 if is_plain else 1)


def _by_topic(found: Transaction) -> list[PartitionsOfTopic] | None:
    if found.state is TransactionState.EMPTY:
        return None
    return group_by_topic(found.partitions)


def decode_record(key: Buffer | None, value: Buffer | None) -> Record | None:
    """Decodes a record; None for a kind that is not known."""
    if key is None:
        raise MalformedMessageError("a record of the transactions topic has no key")
    version = version_of(key)
    if version != KEY_VERSION:
        return decode_sink_record(version, key, value)
    transactional_id = decode_versioned(TransactionLogKey, key)[1].transactional_id
    if value is None:
        return TransactionRecord(transactional_id, None)
    return TransactionRecord(transactional_id, _decode_value(decode_versioned(TransactionLogValue, value)[1]))


def _decode_value(value: TransactionLogValue) -> Transaction:
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise MalformedMessageError(
            f"a transaction has the state {value.transaction_status}, which is never written"
        ) from None
    return Transaction(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(each.topic, partition)
            for each in value.transaction_partitions or ()
            for partition in each.partition_ids
        ),
        last_update_ms=value.transaction_last_update_timestamp_ms,
        start_ms=value.transaction_start_timestamp_ms,
        version=value.client_transaction_version,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
    )
