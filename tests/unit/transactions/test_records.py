"""The records of transactions: Kafka's bytes, there and back."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.model.errors import MalformedMessageError
from distributedlog.model.ids import TopicPartition
from distributedlog.transactions.records import (
    TransactionRecord,
    decode_record,
    encode_record,
    record_key,
)
from distributedlog.transactions.sizes import size_bound
from distributedlog.transactions.transaction import Transaction, TransactionState

PARTITIONS = st.builds(
    TopicPartition, st.text("abcdefgh.-", min_size=1, max_size=30), st.integers(0, 2**31 - 1)
)
IDS = st.integers(-1, 2**63 - 1)
TIMES = st.integers(-1, 2**63 - 1)


@st.composite
def transactions(draw: st.DrawFn) -> Transaction:
    state = draw(st.sampled_from(TransactionState))
    return Transaction(
        producer_id=draw(IDS),
        producer_epoch=draw(st.integers(-1, 32767)),
        timeout_ms=draw(st.integers(0, 2**31 - 1)),
        state=state,
        partitions=frozenset()
        if state is TransactionState.EMPTY
        else draw(st.frozensets(PARTITIONS, max_size=20)),
        last_update_ms=draw(TIMES),
        start_ms=draw(TIMES),
        version=draw(st.integers(0, 2)),
        previous_producer_id=draw(IDS),
        next_producer_id=draw(IDS),
    )


RECORDS = st.builds(TransactionRecord, st.text(min_size=1, max_size=50), st.none() | transactions())


@given(RECORDS)
def test_a_record_comes_back_as_it_was(record: TransactionRecord) -> None:
    key, value = encode_record(record)
    assert decode_record(key, value) == record
    if record.value is not None:
        assert len(key) + len(value or b"") <= size_bound(record.transactional_id, record.value.partitions)


def test_the_bytes_are_those_of_kafka() -> None:
    found = Transaction(
        producer_id=7,
        producer_epoch=2,
        timeout_ms=60_000,
        state=TransactionState.ONGOING,
        partitions=frozenset({TopicPartition("t", 1), TopicPartition("t", 0)}),
        last_update_ms=5,
        start_ms=4,
    )
    key, value = encode_record(TransactionRecord("id", found))
    assert key == bytes.fromhex("0000 0002 6964")
    assert value == bytes.fromhex(
        "0000 0000000000000007 0002 0000ea60 01 00000001 0001 74 00000002 00000000 00000001"
        "0000000000000005 0000000000000004"
    )


def test_version_1_is_written_where_there_is_something_to_say_in_it() -> None:
    found = Transaction(producer_id=7, producer_epoch=2, timeout_ms=1)
    for other in (
        replace(found, version=2, state=TransactionState.COMPLETE_COMMIT),
        replace(found, previous_producer_id=6),
        replace(found, next_producer_id=8, state=TransactionState.PREPARE_COMMIT),
    ):
        key, value = encode_record(TransactionRecord("id", other))
        assert value is not None
        assert value[:2] == b"\x00\x01"
        assert decode_record(key, value) == ("id", other)


def test_other_kinds_are_passed_over_and_nonsense_is_refused() -> None:
    assert decode_record(b"\x00\x01\x00\x02id", b"") is None
    with pytest.raises(MalformedMessageError):
        decode_record(None, b"")
    key, value = encode_record(
        TransactionRecord("id", Transaction(producer_id=1, producer_epoch=0, timeout_ms=1))
    )
    assert value is not None
    with pytest.raises(MalformedMessageError):
        decode_record(key, value[:-1])
    dead = bytearray(value)
    dead[16] = 6
    with pytest.raises(MalformedMessageError, match="never written"):
        decode_record(key, bytes(dead))


def test_compaction_goes_by_the_id() -> None:
    assert record_key(TransactionRecord("id", None)) == "id"
