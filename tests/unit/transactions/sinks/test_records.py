"""The records of sinks, there and back."""

import pytest

from distributedlog.model.errors import MalformedMessageError
from distributedlog.statemachine import Producer
from distributedlog.transactions.records import decode_record, encode_record, record_key
from distributedlog.transactions.sinks.query import Lease, SinkQuery
from distributedlog.transactions.sinks.records import (
    SinkLeaseRecord,
    SinkQueryRecord,
    SinkRecord,
    query_size_bound,
)
from distributedlog.transactions.transaction import TransactionState
from tests.unit.transactions.sinks.stage import P0, P1

DECIDED = SinkQuery(
    token=2**60,
    batch_token=2**59,
    batch_id=7,
    state=TransactionState.PREPARE_COMMIT,
    timeout_ms=300_000,
    winners=(Producer(1, 0), Producer(2**62, 32_000)),
    committed_batch_id=7,
    start_ms=1,
    last_update_ms=2,
)
RECORDS: list[SinkRecord] = [
    SinkQueryRecord("q", DECIDED),
    SinkLeaseRecord("q", 5, Lease(epoch=4, attempt_id="1-0", partitions=frozenset({P0, P1}))),
    SinkLeaseRecord("q", 5, Lease(epoch=5)),
    SinkLeaseRecord("q", 5, None),
    SinkQueryRecord("q", None),
]


@pytest.mark.parametrize("record", RECORDS)
def test_a_record_comes_back_as_it_was(record: SinkRecord) -> None:
    assert decode_record(*encode_record(record)) == record


def test_records_of_one_thing_alone_share_a_key() -> None:
    keys = [encode_record(each)[0] for each in RECORDS]
    assert keys[4] == keys[0] != keys[1] == keys[2] == keys[3]
    assert [record_key(each) == record_key(RECORDS[1]) for each in RECORDS] == [
        False,
        True,
        True,
        True,
        False,
    ]


def test_a_query_has_a_state_that_is_written() -> None:
    key, value = encode_record(RECORDS[0])
    assert value is not None
    at = 2 + 3 * 8
    assert value[at] == TransactionState.PREPARE_COMMIT
    with pytest.raises(MalformedMessageError, match="never written"):
        decode_record(key, value[:at] + b"\x00" + value[at + 1 :])


def test_the_bound_of_a_query_holds() -> None:
    key, value = encode_record(RECORDS[0])
    assert value is not None
    assert len(key) + len(value) <= query_size_bound("q", 2)
