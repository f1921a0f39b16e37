"""Runs of records: nothing lost or out of order, none larger than a batch, and each delivery its own."""

import asyncio
import concurrent.futures

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.client.faces.delivery import BlockingDelivery, Owner, RecordMetadata
from distributedlog.client.faces.inbox import Inbox
from distributedlog.client.reports import BatchReport
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition
from distributedlog.records.record import Record

RUN_BYTES_MAX = 10
HERE = TopicPartition("t", 0)


class NobodyWaits(Owner):
    def wait_for(self, delivery: BlockingDelivery) -> "concurrent.futures.Future[None]":
        raise AssertionError("it is done")


OWNER = NobodyWaits()


def add(inbox: Inbox, name: str, size: int = 1, topic: str = "t", partition: int = 0) -> BlockingDelivery:
    return inbox.add(OWNER, topic, partition, Record(name.encode()), size)


steps = st.lists(
    st.one_of(
        st.just("take"),
        st.tuples(st.sampled_from("tu"), st.integers(0, 2), st.integers(1, RUN_BYTES_MAX + 3)),
    ),
    max_size=60,
)


@given(steps)
def test_runs_keep_the_order_of_a_partition_and_fit_into_a_batch(
    todo: list[str | tuple[str, int, int]],
) -> None:
    inbox = Inbox(RUN_BYTES_MAX)
    added: dict[TopicPartition, list[Record]] = {}
    taken: dict[TopicPartition, list[Record]] = {}
    sizes: dict[Record, int] = {}

    def take() -> None:
        run = inbox.take()
        assert run.size_bytes == sum(sizes[each] for each in run.records)
        assert run.size_bytes <= RUN_BYTES_MAX or len(run.records) == 1
        taken.setdefault(run.partition, []).extend(run.records)
        inbox.size_bytes -= run.size_bytes

    for number, step in enumerate(todo):
        if isinstance(step, tuple):
            topic, partition, size = step
            record = Record(str(number).encode())
            sizes[record] = size
            added.setdefault(TopicPartition(topic, partition), []).append(record)
            inbox.add(OWNER, topic, partition, record, size)
        elif inbox:
            take()
    while inbox:
        take()
    assert taken == added
    assert inbox.size_bytes == 0


def test_a_run_that_was_taken_takes_no_further_records() -> None:
    inbox = Inbox(RUN_BYTES_MAX)
    add(inbox, "a")
    first = inbox.take()
    add(inbox, "b")
    assert [each.value for each in first.records] == [b"a"]
    assert [each.value for each in inbox.take().records] == [b"b"]


def test_the_older_of_two_runs_is_taken_and_the_younger_stays_open() -> None:
    inbox = Inbox(RUN_BYTES_MAX)
    add(inbox, "a", RUN_BYTES_MAX)
    add(inbox, "b")
    inbox.take()
    add(inbox, "c")
    assert len(inbox) == 1
    assert [each.value for each in inbox.take().records] == [b"b", b"c"]


def test_a_delivery_is_that_of_its_place_in_the_batch_that_took_its_run() -> None:
    async def story() -> None:
        inbox = Inbox(RUN_BYTES_MAX)
        deliveries = [add(inbox, each) for each in "ab"]
        told: list[tuple[DlogError | None, RecordMetadata | None]] = []
        record = Record(b"c")
        deliveries.append(inbox.add(OWNER, "t", 0, record, 1, lambda *how: told.append(how)))
        assert not any(each.is_in_batch for each in deliveries)
        ended: asyncio.Future[BatchReport] = asyncio.get_running_loop().create_future()
        run = inbox.take()
        run.bind(ended, 5)
        assert all(each.is_in_batch and not each.done() for each in deliveries)
        assert run.records == []
        ended.set_result(BatchReport(HERE, 8, 100))
        await asyncio.sleep(0)
        assert [each.result().offset for each in deliveries] == [105, 106, 107]
        assert told == [(None, RecordMetadata("t", 0, 107, -1))]

    asyncio.run(story())


def test_a_batch_that_fails_fails_all_of_its_run() -> None:
    async def story() -> None:
        inbox = Inbox(RUN_BYTES_MAX)
        delivery = add(inbox, "a")
        ended: asyncio.Future[BatchReport] = asyncio.get_running_loop().create_future()
        inbox.take().bind(ended, 0)
        ended.set_result(BatchReport(HERE, 1, -1, -1, DlogError("no")))
        with pytest.raises(DlogError, match="no"):
            delivery.result()

    asyncio.run(story())
