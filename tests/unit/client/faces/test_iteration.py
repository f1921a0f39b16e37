"""Where partitions stand during iteration, and what of them is given out."""

from collections.abc import Collection, Iterator
from typing import Any

import pytest

from distributedlog import TopicPartition, aio
from distributedlog.client.admin.group_offsets import GroupOffsets
from distributedlog.client.fetcher import Fetched
from distributedlog.model.errors import RequestTimedOutError
from distributedlog.records.control import ControlType, EndMarker, encode_end_marker_batch
from distributedlog.records.record import Record, encode_batch
from tests.unit.client.ledger import Ledger
from tests.unit.client.stage import ScriptedBroker, run

HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def ledger() -> Ledger:
    """Three records in each of two partitions, and the marker of a transaction behind them."""
    ledger = Ledger({"t": 2})
    for partition in (HERE, THERE):
        ledger.append(partition, encode_batch([Record(b"%d" % each, timestamp_ms=1) for each in range(3)]))
        marker = encode_end_marker_batch(
            EndMarker(ControlType.COMMIT, 0), producer_id=7, producer_epoch=0, timestamp_ms=1, base_offset=3
        )
        ledger.logs[partition].append(bytearray(marker))
    return ledger


@pytest.fixture
def broker(ledger: Ledger) -> Iterator[ScriptedBroker]:
    with (broker := ledger.broker()).running():
        yield broker


def test_iteration_passes_what_is_behind_the_last_record(broker: ScriptedBroker) -> None:
    async def story() -> None:
        async with aio.Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([HERE])
            assert [(await anext(consumer)).offset for _ in range(3)] == [0, 1, 2]
            assert consumer.positions() == {HERE: 3}
            assert await consumer.poll(0) == []
            assert consumer.positions() == consumer._safe == {HERE: 4}
            assert await consumer.lag() == {HERE: 0}

    run(story())


def test_what_was_polled_after_an_iteration_stands_where_it_ends(broker: ScriptedBroker) -> None:
    async def story() -> None:
        async with aio.Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([HERE])
            assert (await anext(consumer)).offset == 0
            assert [each.offset for each in await consumer.poll(0, 1)] == [1]
            assert consumer.positions() == {HERE: 2}
            consumer.seek(HERE, 1)
            assert [each.offset for each in await consumer.poll(5000, 1)] == [1]
            assert consumer.positions() == {HERE: 2}

    run(story())


@pytest.mark.parametrize("given_before", [1, 3])
def test_a_partition_that_is_paused_during_iteration_gives_out_nothing_until_it_is_resumed(
    broker: ScriptedBroker, given_before: int
) -> None:
    async def story() -> None:
        async with aio.Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([HERE, THERE])
            found = [await anext(consumer) for _ in range(given_before)]
            first = TopicPartition(*found[0][:2])
            other = THERE if first == HERE else HERE
            consumer.pause(first)
            found += [await anext(consumer) for _ in range(3)]
            assert {each.partition for each in found[given_before:]} == {other.partition}
            assert await consumer.poll(0) == []
            assert consumer.positions() == {first: given_before, other: 4}
            consumer.resume(first)
            found += [await anext(consumer) for _ in range(3 - given_before)]
            assert await consumer.poll(0) == []
            assert consumer.positions() == {HERE: 4, THERE: 4}
            for partition in (HERE, THERE):
                assert [each.offset for each in found if each.partition == partition.partition] == [0, 1, 2]
            assert consumer.metrics()["records"] == 6

    run(story())


def test_a_seek_back_that_fails_is_made_up_for(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was committed, and new records alone are wanted: the reset would lead past all others."""
    is_there = True

    async def fetch(_self: GroupOffsets, _wanted: Collection[TopicPartition], **_: bool) -> dict[Any, Any]:
        if not is_there:
            raise RequestTimedOutError("the coordinator did not answer")
        return {}

    monkeypatch.setattr(GroupOffsets, "fetch", fetch)

    async def story() -> None:
        nonlocal is_there
        async with aio.Consumer(
            broker.bootstrap, group_id="g", auto_offset_reset="latest", enable_auto_commit=False
        ) as consumer:
            consumer.assign([HERE])
            consumer.seek(HERE, 1)
            assert (await anext(consumer)).offset == 1
            is_there = False
            with pytest.raises(RequestTimedOutError):
                await consumer.seek_to_committed()
            is_there = True
            assert (await anext(consumer)).offset == 1

    run(story())


def test_rows_of_a_log_that_was_truncated_while_others_were_awaited_are_not_given_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        async with aio.Consumer("127.0.0.1:1") as consumer:
            consumer.assign([HERE, THERE])
            consumer.seek(HERE, 0)
            consumer.seek(THERE, 0)
            consumer.pause(HERE)
            kept = Fetched(HERE, [], 3, 3, 3, 0)
            consumer._rows = [kept]

            async def poll(_timeout_ms: int) -> list[Fetched]:
                consumer._on_truncated(HERE, 0)
                return []

            monkeypatch.setattr(consumer._assigned, "poll", poll)
            await consumer.poll_arrow(1)
            assert consumer._rows == []

    run(story())
