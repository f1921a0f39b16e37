"""What the consumer decides by itself, without a broker."""

import asyncio
from collections.abc import Mapping

import pytest

from distributedlog import TopicPartition, aio
from distributedlog.client.admin.group_offsets import GroupOffsets, OffsetAndMetadata
from distributedlog.client.faces.records import ConsumerRecord
from distributedlog.client.faces.settings import ConsumerSettings
from distributedlog.client.groups.membership import Change
from distributedlog.client.metadata import Cluster
from distributedlog.records.record import Record, encode_batch
from tests.unit.client.ledger import Ledger
from tests.unit.client.stage import ScriptedBroker, run

HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_commit_that_is_due_during_a_join_does_not_hold_iteration_up() -> None:
    """A join may take minutes; nothing is committed before its end, so iteration must not wait for that."""

    async def story() -> None:
        consumer = aio.Consumer(
            "127.0.0.1:1",
            group_id="g",
            topics=["t"],
            assignor="cooperative-sticky",
            auto_commit_interval_ms=0,
        )
        record = ConsumerRecord("t", 0, 5, 0, None, b"v")
        consumer._pending.records = [record]

        async def joining() -> Change | None:
            await asyncio.Event().wait()
            return None

        consumer._joining = join = asyncio.create_task(joining())
        assert consumer.next_pending() == record
        join.cancel()
        await asyncio.gather(join, return_exceptions=True)
        consumer._joining = None
        await consumer.close()

    run(story())


def test_a_consumer_whose_close_is_cancelled_leaves_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Cluster] = []
    close = Cluster.close

    async def note(cluster: Cluster) -> None:
        closed.append(cluster)
        await close(cluster)

    monkeypatch.setattr(Cluster, "close", note)

    async def story() -> None:
        consumer = aio.Consumer("127.0.0.1:1", group_id="g", topics=["t"])
        assert consumer._member is not None
        monkeypatch.setattr(consumer._member, "close", asyncio.Event().wait)  # nobody answers the farewell
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert closed == [consumer._cluster, consumer._group_cluster]

    run(story())


def test_after_an_abort_a_log_that_was_truncated_is_read_again_from_where_reading_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not from where the logs part: what was given out before that is of the transaction, too."""

    async def nothing(*_: object, **__: object) -> dict[TopicPartition, int]:
        return {}

    monkeypatch.setattr(GroupOffsets, "fetch", nothing)

    async def story(broker: ScriptedBroker, began: int) -> int:
        async with aio.Consumer(broker.bootstrap, group_id="g", enable_auto_commit=False) as consumer:
            consumer.assign([HERE])
            consumer.seek(HERE, began)
            assert [each.offset for each in await consumer.poll(5000)] == list(range(began, 5))
            consumer._on_truncated(HERE, 2)
            assert await consumer.position(HERE) == 2
            await consumer.seek_to_committed()
            return await consumer.position(HERE)

    with filled().running() as broker:
        assert run(story(broker, 0)) == 0
        assert run(story(broker, 4)) == 2


def test_nothing_is_known_any_more_of_a_partition_that_was_given_up_while_it_was_iterated() -> None:
    async def story(broker: ScriptedBroker) -> None:
        async with aio.Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([HERE])
            assert (await anext(consumer)).offset == 0
            consumer.assign([THERE])
            await consumer.poll(0)
            assert consumer.positions() == {THERE: 0}

    with filled().running() as broker:
        run(story(broker))


def filled() -> ScriptedBroker:
    ledger = Ledger({"t": 2})
    ledger.append(HERE, encode_batch([Record(b"%d" % each, timestamp_ms=1) for each in range(5)]))
    return ledger.broker()


class Coordinator:
    """Takes commits, or is silent.  Nothing was committed before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[int] = []
        self.is_silent = False

        async def commit(_: GroupOffsets, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
            self.asked.append(offsets[HERE].offset)
            if self.is_silent:
                await asyncio.Event().wait()

        async def fetch(*_: object, **__: object) -> dict[TopicPartition, int]:
            return {}

        monkeypatch.setattr(GroupOffsets, "commit", commit)
        monkeypatch.setattr(GroupOffsets, "fetch", fetch)


EVERY: ConsumerSettings = {
    "group_id": "g", "auto_offset_reset": "earliest", "auto_commit_interval_ms": 0,
}  # fmt: skip


def test_a_coordinator_that_is_silent_holds_up_no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the program commits then comes behind what was committed by itself, whatever became of that."""
    coordinator = Coordinator(monkeypatch)

    async def story(broker: ScriptedBroker) -> None:
        before = asyncio.all_tasks()
        async with aio.Consumer(broker.bootstrap, **EVERY) as consumer:
            consumer.assign([HERE])
            coordinator.is_silent = True
            for first in (0, 2):
                assert [each.offset for each in await consumer.poll(5000, 2)] == [first, first + 1]
            await asyncio.sleep(0)
            assert (await anext(consumer)).offset == 4
            coordinator.is_silent = False
            assert coordinator.asked == [0]
            await consumer.commit()
            assert coordinator.asked == [0, 5]
        assert consumer.metrics()["commits"] == 1
        assert asyncio.all_tasks() == before

    with filled().running() as broker:
        run(story(broker))


def test_iteration_goes_on_where_every_record_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator(monkeypatch)

    async def story(broker: ScriptedBroker) -> None:
        async with aio.Consumer(broker.bootstrap, **EVERY) as consumer:
            consumer.assign([HERE])
            for wanted in range(5):
                assert (await anext(consumer)).offset == wanted
        assert coordinator.asked[-1] == 5
        assert coordinator.asked == sorted(coordinator.asked)

    with filled().running() as broker:
        run(story(broker))
