"""Single records become batches: each in its place, in its order, within the limits of its topic."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.client.partitioner import partition_of
from distributedlog.gateway._generated import broker_service_pb2 as pb
from distributedlog.gateway.batches import (
    BATCH_BYTES_MAX,
    BATCH_RECORDS_MAX,
    HEADERS_MAX,
    LONG_KEY_BYTES,
    RECORDS_MAX,
    STEP_RECORDS,
    STICKY_BYTES,
    TOPICS_MAX,
    Batches,
    Partitioner,
    check_records,
    make_batches,
    record_bytes,
    record_of,
)
from distributedlog.model.errors import InvalidRequestError
from distributedlog.model.ids import TopicPartition
from distributedlog.records.record import Header, decode_batch, encode_batch
from tests.unit.gateway.stage import turns_during

NOW_MS = 1_700_000_000_000


def record(topic: str = "t", value: bytes | None = b"v", **fields: Any) -> pb.ProduceRecord:
    return pb.ProduceRecord(topic=topic, value=value, **fields)


def made(request: pb.ProduceRequest, **partition_counts: int) -> Batches:
    async def story() -> Batches:
        with ThreadPoolExecutor(1) as threads:
            return await make_batches(request, partition_counts, Partitioner(0, threads))

    return asyncio.run(story())


def chosen(batches: Batches) -> dict[int, int]:
    """The partition of each record."""
    return {
        at: partition.partition
        for partition, of_partition in batches.items()
        for indexes in of_partition
        for at in indexes
    }


headers = st.lists(
    st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)).map(
        lambda each: pb.RecordHeader(key=each[0], value=each[1])
    ),
    max_size=3,
)
records = st.builds(
    record,
    topic=st.sampled_from(["a", "b"]),
    value=st.none() | st.binary(max_size=300),
    key=st.none() | st.binary(max_size=20),
    partition=st.none() | st.integers(0, 2),
    headers=headers,
    timestamp_ms=st.none() | st.integers(0, 2**62),
)


@settings(deadline=None, max_examples=100)
@given(st.lists(records, min_size=1, max_size=30))
def test_every_record_is_in_one_batch_in_order_and_unchanged(asked: list[pb.ProduceRecord]) -> None:
    batches = made(pb.ProduceRequest(records=asked), a=3, b=3)
    seen: list[int] = []
    for partition, of_partition in batches.items():
        indexes = [at for batch in of_partition for at in batch]
        assert indexes == sorted(indexes)
        seen += indexes
        for batch in of_partition:
            stored = decode_batch(encode_batch([record_of(asked[at], NOW_MS) for at in batch]))
            for at, each in zip(batch, stored, strict=True):
                check_same(asked[at], each)
                assert asked[at].topic == partition.topic
    assert sorted(seen) == list(range(len(asked)))


def check_same(asked: pb.ProduceRecord, stored: Any) -> None:
    assert stored.key == (asked.key if asked.HasField("key") else None)
    assert stored.value == (asked.value if asked.HasField("value") else None)
    assert stored.timestamp_ms == (asked.timestamp_ms if asked.HasField("timestamp_ms") else NOW_MS)
    assert stored.headers == tuple(
        Header(each.key, each.value if each.HasField("value") else None) for each in asked.headers
    )


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=40), st.integers(1, 50))
def test_a_key_goes_where_kafkas_clients_put_it(key: bytes, partition_count: int) -> None:
    batches = made(pb.ProduceRequest(records=[record(key=key)]), t=partition_count)
    assert chosen(batches) == {0: partition_of(key, partition_count)}


def test_a_long_key_goes_to_the_same_place_as_a_client_would_put_it() -> None:
    key = b"k" * (LONG_KEY_BYTES + 1)
    assert chosen(made(pb.ProduceRequest(records=[record(key=key)]), t=7)) == {0: partition_of(key, 7)}


def test_records_without_a_key_go_round_the_partitions() -> None:
    request = pb.ProduceRequest(records=[record(value=bytes(STICKY_BYTES)) for _ in range(6)])
    placed = chosen(made(request, t=3))
    assert [placed[at] for at in range(6)] == [0, 1, 2, 0, 1, 2]


def test_a_record_that_is_too_large_stands_alone() -> None:
    large = BATCH_BYTES_MAX + 1
    asked = [record(value=bytes(size), partition=0) for size in (10, 10, large, 10, 10)]
    assert made(pb.ProduceRequest(records=asked), t=1) == {TopicPartition("t", 0): [[0, 1], [2], [3, 4]]}


def test_a_batch_has_a_bounded_number_of_records() -> None:
    asked = [record(value=b"", partition=0)] * (BATCH_RECORDS_MAX + 1)
    (batches,) = made(pb.ProduceRequest(records=asked), t=1).values()
    assert [len(each) for each in batches] == [BATCH_RECORDS_MAX, 1]


def test_the_loop_serves_others_while_a_large_call_is_gone_through() -> None:
    request = pb.ProduceRequest(records=[record(partition=0)] * RECORDS_MAX)

    async def story() -> int:
        with ThreadPoolExecutor(1) as threads:
            return await turns_during(make_batches(request, {"t": 1}, Partitioner(0, threads)))

    assert asyncio.run(story()) >= RECORDS_MAX // STEP_RECORDS
    assert asyncio.run(turns_during(check_records(request))) >= RECORDS_MAX // STEP_RECORDS


def test_records_of_a_topic_that_cannot_be_written_are_left_out() -> None:
    asked = [record("a"), record("b"), record("a")]
    assert chosen(made(pb.ProduceRequest(records=asked), a=1)) == {0: 0, 2: 0}


@settings(deadline=None, max_examples=50)
@given(records)
def test_the_size_of_a_record_is_never_estimated_too_low(asked: pb.ProduceRecord) -> None:
    assert len(encode_batch([record_of(asked, NOW_MS)])) - 61 <= record_bytes(asked)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (pb.ProduceRequest(), "1 to 10000 records, not 0"),
        (pb.ProduceRequest(records=[record()] * (RECORDS_MAX + 1)), "not 10001"),
        (pb.ProduceRequest(records=[record()], acks=17), "no acks 17"),  # type: ignore[arg-type]
        (pb.ProduceRequest(records=[record(), record(partition=-1)]), "record 1 names partition -1"),
        (pb.ProduceRequest(records=[record(timestamp_ms=-1)]), "record 0 has the timestamp -1"),
        (
            pb.ProduceRequest(records=[record(headers=[pb.RecordHeader(key="h")] * (HEADERS_MAX + 1))]),
            "1001 headers",
        ),
        (pb.ProduceRequest(records=[record(f"t{n}") for n in range(TOPICS_MAX + 1)]), "at most 100 topics"),
    ],
)
def test_what_cannot_be_meant_is_refused(request_: pb.ProduceRequest, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        asyncio.run(check_records(request_))


def test_the_topics_of_a_call_are_named_once() -> None:
    asked = pb.ProduceRequest(records=[record("b"), record("a"), record("b")])
    assert asyncio.run(check_records(asked)) == ["b", "a"]
