"""Single records become batches: each in its place, in its order, within the limits of its topic."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.broker.gateway.batches import (
    BATCH_RECORDS_MAX,
    HEADERS_MAX,
    LONG_KEY_BYTES,
    RECORDS_MAX,
    STEP_RECORDS,
    STICKY_BYTES,
    TOPICS_MAX,
    Placer,
    Round,
    TopicPlan,
    check,
    record_bytes,
    rounds_of,
)
from distributedlog.client.partitioner import partition_of
from distributedlog.control._generated import broker_service_pb2 as pb
from distributedlog.model.errors import InvalidRequestError
from distributedlog.records.record import Header, decode_batch
from tests.unit.broker.gateway.stage import record, turns_during

NOW_MS = 1_700_000_000_000


def made(request: pb.ProduceRequest, **plans: TopicPlan) -> tuple[list[Round], dict[int, int]]:
    async def story() -> tuple[list[Round], dict[int, int]]:
        with ThreadPoolExecutor(1) as threads:
            return await rounds_of(request, plans, Placer(0, threads), NOW_MS)

    return asyncio.run(story())


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
@given(st.lists(records, min_size=1, max_size=30), st.integers(100, 600))
def test_every_record_is_in_one_batch_in_order_and_unchanged(
    asked: list[pb.ProduceRecord], bytes_max: int
) -> None:
    plan = TopicPlan(3, (0, 2), bytes_max)
    rounds, placed = made(pb.ProduceRequest(records=asked), a=plan, b=plan)
    seen: dict[tuple[str, int], list[int]] = {}
    for batches in rounds:
        assert batches
        assert len({(batch.topic, batch.partition) for batch in batches}) == len(batches)
        for batch in batches:
            assert len(batch.data) <= bytes_max or len(batch.indexes) == 1
            seen.setdefault((batch.topic, batch.partition), []).extend(batch.indexes)
            for at, stored in zip(batch.indexes, decode_batch(batch.data), strict=True):
                check_same(asked[at], stored)
                assert (batch.topic, batch.partition) == (asked[at].topic, placed[at])
    assert all(indexes == sorted(indexes) for indexes in seen.values())
    assert sorted(at for indexes in seen.values() for at in indexes) == list(range(len(asked)))


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
    _, placed = made(pb.ProduceRequest(records=[record(key=key)]), t=TopicPlan(partition_count, (), 1000))
    assert placed == {0: partition_of(key, partition_count)}


def test_a_long_key_goes_to_the_same_place_as_a_client_would_put_it() -> None:
    key = b"k" * (LONG_KEY_BYTES + 1)
    _, placed = made(pb.ProduceRequest(records=[record(key=key)]), t=TopicPlan(7, (), 2**20))
    assert placed == {0: partition_of(key, 7)}


def test_records_without_a_key_go_round_the_partitions_that_are_led_here() -> None:
    request = pb.ProduceRequest(records=[record(value=bytes(STICKY_BYTES)) for _ in range(6)])
    _, placed = made(request, t=TopicPlan(5, (1, 4), 2**20))
    assert [placed[at] for at in range(6)] == [1, 4, 1, 4, 1, 4]


def test_records_without_a_key_go_somewhere_if_nothing_is_led_here() -> None:
    _, placed = made(pb.ProduceRequest(records=[record()]), t=TopicPlan(3, (), 1000))
    assert placed[0] in range(3)


def test_a_record_that_is_too_large_stands_alone() -> None:
    asked = [record(value=bytes(size), partition=0) for size in (10, 10, 5000, 10, 10)]
    rounds, _ = made(pb.ProduceRequest(records=asked), t=TopicPlan(1, (0,), 1000))
    assert [batch.indexes for batches in rounds for batch in batches] == [[0, 1], [2], [3, 4]]


def test_a_batch_has_a_bounded_number_of_records() -> None:
    asked = [record(value=b"", partition=0)] * (BATCH_RECORDS_MAX + 1)
    rounds, _ = made(pb.ProduceRequest(records=asked), t=TopicPlan(1, (0,), 2**20))
    assert [len(batch.indexes) for batches in rounds for batch in batches] == [BATCH_RECORDS_MAX, 1]


def test_the_loop_serves_others_while_a_large_call_is_encoded() -> None:
    request = pb.ProduceRequest(records=[record(partition=0)] * RECORDS_MAX)

    async def story() -> int:
        with ThreadPoolExecutor(1) as threads:
            plans = {"t": TopicPlan(1, (0,), 2**20)}
            return await turns_during(rounds_of(request, plans, Placer(0, threads), NOW_MS))

    assert asyncio.run(story()) >= RECORDS_MAX // STEP_RECORDS
    assert asyncio.run(turns_during(check(request))) >= RECORDS_MAX // STEP_RECORDS


def test_records_of_a_topic_that_cannot_be_written_are_left_out() -> None:
    asked = [record("a"), record("b"), record("a")]
    rounds, placed = made(pb.ProduceRequest(records=asked), a=TopicPlan(1, (0,), 1000))
    assert [batch.indexes for batches in rounds for batch in batches] == [[0, 2]]
    assert placed == {0: 0, 2: 0}


@settings(deadline=None, max_examples=50)
@given(records)
def test_the_size_of_a_record_is_never_estimated_too_low(asked: pb.ProduceRecord) -> None:
    plan = TopicPlan(3, (0,), 2**20)
    rounds, _ = made(pb.ProduceRequest(records=[asked]), a=plan, b=plan)
    assert len(rounds[0][0].data) - 61 <= record_bytes(asked)


@pytest.mark.parametrize(
    ("request_", "complaint"),
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
def test_what_cannot_be_meant_is_refused(request_: pb.ProduceRequest, complaint: str) -> None:
    with pytest.raises(InvalidRequestError, match=complaint):
        asyncio.run(check(request_))


def test_the_topics_of_a_call_are_named_once() -> None:
    asked = pb.ProduceRequest(records=[record("b"), record("a"), record("b")])
    assert asyncio.run(check(asked)) == ["b", "a"]
