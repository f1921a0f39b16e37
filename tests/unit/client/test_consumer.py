"""A consumer: everything in order, over leaders that move and logs that lose their head."""

import asyncio
import threading
from dataclasses import replace

import pytest

from distributedlog.client import consumer as consuming
from distributedlog.client import fetcher
from distributedlog.client.consumer import Consumer
from distributedlog.client.fetcher import Arrived, Fetched, FetchOptions
from distributedlog.client.metadata import Cluster
from distributedlog.client.offset_specs import BEGINNING, END, AtOffset, OffsetSpec
from distributedlog.client.view import PartitionView
from distributedlog.model.errors import BrokerError, CorruptBatchError, OffsetOutOfRangeError
from distributedlog.model.ids import TopicPartition
from distributedlog.ports.clock import SystemClock
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.messages.fetch import FetchRequest, FetchResponse
from distributedlog.records.record import Record, encode_batch
from tests.unit.client.ledger import Ledger
from tests.unit.client.stage import QUICK, WAIT_SECONDS, HangUp, ScriptedBroker, run

HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)


class LeapingClock(SystemClock):
    leaps_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.leaps_ms


def filled(count: int = 5, start: int = 0) -> Ledger:
    ledger = Ledger({"t": 2}, start_offsets={HERE: start})
    for number in range(start, start + count):
        ledger.append(HERE, encode_batch([Record(b"%d" % number, timestamp_ms=1)]))
    return ledger


async def read(
    broker: ScriptedBroker,
    place: OffsetSpec,
    count: int,
    *,
    on_out_of_range: OffsetSpec | None = None,
    call_timeout_ms: int = 10_000,
) -> list[int]:
    """So many offsets of the partition."""
    options = replace(QUICK, call_timeout_ms=call_timeout_ms)
    seen: list[int] = []
    async with Cluster([broker.address], options) as cluster:
        fetching = FetchOptions(wait_ms_max=1)
        async with Consumer(cluster, fetching, on_out_of_range=on_out_of_range) as consumer:
            await consumer.assign({HERE: place})
            while len(seen) < count:
                for fetched in await consumer.poll(5000):
                    seen += [record.offset for record in fetched.records]
            assert consumer.positions[HERE] == seen[-1] + 1
    return seen


def test_records_come_in_order_from_where_they_were_asked_for() -> None:
    with (broker := filled(start=3).broker()).running():
        assert run(read(broker, BEGINNING, 5)) == [3, 4, 5, 6, 7]
        assert run(read(broker, AtOffset(6), 2)) == [6, 7]


def test_what_is_written_later_comes_too() -> None:
    ledger = filled(2)

    async def story() -> None:
        async with Cluster([broker.address], QUICK) as cluster, Consumer(cluster) as consumer:
            await consumer.assign({HERE: END, THERE: END})
            assert await consumer.poll(20) == []
            ledger.append(THERE, encode_batch([Record(b"new")]))
            (fetched,) = await consumer.poll(5000)
            assert (fetched.partition, [each.value for each in fetched.records]) == (THERE, [b"new"])

    with (broker := ledger.broker()).running():
        run(story())


def test_a_partition_that_is_dropped_gives_nothing_more() -> None:
    async def story() -> None:
        async with Cluster([broker.address], QUICK) as cluster, Consumer(cluster) as consumer:
            await consumer.assign({HERE: BEGINNING})
            consumer.drop(HERE)
            assert await consumer.poll(10) == []

    with (broker := filled().broker()).running():
        run(story())
    assert broker.count(ApiKey.FETCH) == 0


def test_what_is_known_of_a_cluster_may_be_given_up_between_two_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        async with Cluster([broker.address], QUICK) as cluster, Consumer(cluster) as consumer:
            await consumer.assign({HERE: BEGINNING, THERE: BEGINNING})
            look = cluster.partition

            async def look_and_begin_anew(partition: TopicPartition) -> PartitionView:
                found = await look(partition)
                if partition == THERE and not cluster.rebootstraps:
                    cluster._rebootstrap()
                return found

            monkeypatch.setattr(cluster, "partition", look_and_begin_anew)
            (fetched,) = await consumer.poll(5000)
            assert (fetched.partition, len(fetched.records)) == (HERE, 5)
            assert cluster.rebootstraps == 1

    with (broker := filled().broker()).running():
        run(story())


def failing(ledger: Ledger, codes: list[int]) -> ScriptedBroker:
    """Fetches are refused with these codes first; -2 hangs up."""
    broker = ledger.broker()

    def fetch(request: FetchRequest, version: int) -> FetchResponse:
        response = ledger.fetch(request, version)
        if codes:
            code = codes.pop(0)
            if code == -2:
                raise HangUp
            response.responses[0].partitions[0].error_code = code
            response.responses[0].partitions[0].records = None
        return response

    broker.answers[ApiKey.FETCH] = fetch
    return broker


@pytest.mark.parametrize("code", [6, 5, 3, 74, 75, 78, -2])
def test_trouble_that_passes_costs_nothing_but_time(code: int) -> None:
    with (broker := failing(filled(), [code] * 3)).running():
        assert run(read(broker, BEGINNING, 5)) == [0, 1, 2, 3, 4]


def test_a_pause_that_ends_before_it_is_waited_for_is_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = LeapingClock()

    async def story() -> None:
        async with Cluster([broker.address], QUICK, clock=clock) as cluster, Consumer(cluster) as consumer:
            wait = consumer._wait

            async def leap_and_wait(wait_ms: int) -> None:
                clock.leaps_ms += 10
                await wait(wait_ms)

            monkeypatch.setattr(consumer, "_wait", leap_and_wait)
            await consumer.assign({HERE: BEGINNING})
            (fetched,) = await consumer.poll(5000)
            assert len(fetched.records) == 5

    with (broker := failing(filled(), [6])).running():
        run(story())


def test_a_nudge_while_a_leader_is_looked_up_ends_the_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with Cluster([broker.address], QUICK) as cluster, Consumer(cluster) as consumer:
            await consumer.assign({HERE: END})
            look = cluster.partition

            async def look_and_nudge(partition: TopicPartition) -> PartitionView:
                found = await look(partition)
                consumer.nudge()
                return found

            with monkeypatch.context() as patch:
                patch.setattr(cluster, "partition", look_and_nudge)
                assert await consumer.poll(1_000_000) == []
            consumer.seek({HERE: 0})  # nobody polls: there is nothing to end
            assert len(await consumer.poll(5000)) == 1

    with (broker := filled().broker()).running():
        run(story())


def test_trouble_that_does_not_pass_is_raised_when_the_time_is_over() -> None:
    broker = failing(filled(), [6] * 10_000)
    with broker.running(), pytest.raises(BrokerError, match="NOT_LEADER_OR_FOLLOWER"):
        run(read(broker, BEGINNING, 5, call_timeout_ms=30))


def test_what_would_be_refused_again_is_raised() -> None:
    broker = failing(filled(), [29] * 10)
    with broker.running(), pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        run(read(broker, BEGINNING, 5))
    assert broker.count(ApiKey.FETCH) < 4


def test_an_offset_that_is_not_there_is_told_with_those_that_are() -> None:
    broker = filled(start=3).broker()
    with (
        broker.running(),
        pytest.raises(OffsetOutOfRangeError, match="t-0 has no offset 1: it goes from 3 to 8"),
    ):
        run(read(broker, AtOffset(1), 5))


@pytest.mark.parametrize(("end", "offsets"), [(BEGINNING, [3, 4, 5, 6, 7]), (END, [8])])
def test_a_reader_may_go_on_at_an_end_instead(end: OffsetSpec, offsets: list[int]) -> None:
    ledger = filled(start=3)

    async def story() -> list[int]:
        seen: list[int] = []
        async with (
            Cluster([broker.address], QUICK) as cluster,
            Consumer(cluster, on_out_of_range=end) as consumer,
        ):
            await consumer.assign({HERE: AtOffset(100)})
            while consumer.positions[HERE] == 100:
                seen += [each.offset for f in await consumer.poll(10) for each in f.records]
            ledger.append(HERE, encode_batch([Record(b"new")]))
            while len(seen) < len(offsets):
                seen += [each.offset for f in await consumer.poll(5000) for each in f.records]
        return seen[: len(offsets)]

    with (broker := ledger.broker()).running():
        assert run(story()) == offsets


def test_a_hurt_batch_is_raised_after_what_is_before_it_was_given_out() -> None:
    ledger = filled(3)
    ledger.logs[HERE][2][-1] ^= 1

    async def story() -> None:
        async with Cluster([broker.address], QUICK) as cluster, Consumer(cluster) as consumer:
            await consumer.assign({HERE: BEGINNING})
            (fetched,) = await consumer.poll(5000)
            assert [each.offset for each in fetched.records] == [0, 1]
            for _ in range(2):
                with pytest.raises(CorruptBatchError):
                    await consumer.poll(5000)
            assert consumer.positions[HERE] == 2

    with (broker := ledger.broker()).running():
        run(story())


def test_an_offset_that_is_not_there_costs_nothing_of_what_came_beside_it() -> None:
    ledger = filled(3)
    ledger.append(THERE, encode_batch([Record(b"there", timestamp_ms=1)]))

    async def story() -> None:
        async with Cluster([broker.address], QUICK) as cluster, Consumer(cluster) as consumer:
            await consumer.assign({HERE: BEGINNING, THERE: AtOffset(7)})
            (fetched,) = await consumer.poll(5000)
            assert [each.offset for each in fetched.records] == [0, 1, 2]
            with pytest.raises(OffsetOutOfRangeError, match="t-1 has no offset 7: it goes from 0 to 1"):
                await consumer.poll(5000)

    with (broker := ledger.broker()).running():
        run(story())


def test_a_partition_that_was_moved_or_dropped_since_is_no_reason_to_raise() -> None:
    ledger = filled(3)
    ledger.append(THERE, encode_batch([Record(b"there", timestamp_ms=1)]))

    async def story() -> None:
        async with Cluster([broker.address], QUICK) as cluster, Consumer(cluster) as consumer:
            await consumer.assign({HERE: BEGINNING, THERE: AtOffset(7)})
            assert len(await consumer.poll(5000)) == 1
            consumer.seek({THERE: 0})
            (fetched,) = await consumer.poll(5000)
            assert (fetched.partition, len(fetched.records)) == (THERE, 1)
            consumer.seek({HERE: 0, THERE: 7})
            assert len(await consumer.poll(5000)) == 1
            consumer.drop(THERE)
            assert await consumer.poll(0) == []

    with (broker := ledger.broker()).running():
        run(story())


def test_the_next_fetch_is_under_way_when_what_came_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = filled(3)
    broker = ledger.broker()
    asked = threading.Event()

    def fetch(request: FetchRequest, version: int) -> FetchResponse:
        if request.topics[0].partitions[0].fetch_offset == 3:
            asked.set()
        return ledger.fetch(request, version)

    broker.answers[ApiKey.FETCH] = fetch

    async def story() -> None:
        async with Cluster([broker.address], QUICK) as cluster, Consumer(cluster) as consumer:
            open_it = consumer._fetcher.open

            def open_late(arrived: Arrived) -> Fetched:
                assert asked.wait(WAIT_SECONDS / 2), "nothing was asked for when the response was opened"
                return open_it(arrived)

            monkeypatch.setattr(consumer._fetcher, "open", open_late)
            await consumer.assign({HERE: BEGINNING})
            (fetched,) = await consumer.poll(5000)
            assert [each.offset for each in fetched.records] == [0, 1, 2]

    with broker.running():
        run(story())


def test_of_what_came_a_poll_opens_only_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = filled(3)
    ledger.append(THERE, encode_batch([Record(b"there", timestamp_ms=1)]))
    monkeypatch.setattr(consuming, "OPENED_RECORDS", 1)

    async def story() -> None:
        async with Cluster([broker.address], QUICK) as cluster, Consumer(cluster) as consumer:
            await consumer.assign({HERE: BEGINNING, THERE: BEGINNING})
            (fetched,) = await consumer.poll(5000)
            assert (fetched.partition, len(fetched.records)) == (HERE, 3)
            assert dict(consumer.positions) == {HERE: 3, THERE: 0}
            (fetched,) = await consumer.poll(0)
            assert (fetched.partition, len(fetched.records)) == (THERE, 1)
            assert dict(consumer.positions) == {HERE: 3, THERE: 1}

    with (broker := ledger.broker()).running():
        run(story())


def test_what_came_of_a_paused_partition_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = filled(3)
    ledger.append(THERE, encode_batch([Record(b"there", timestamp_ms=1)]))
    monkeypatch.setattr(consuming, "OPENED_RECORDS", 1)

    async def story() -> None:
        async with Cluster([broker.address], QUICK) as cluster, Consumer(cluster) as consumer:
            await consumer.assign({HERE: BEGINNING, THERE: BEGINNING})
            await consumer.poll(5000)
            consumer.pause([THERE])
            assert await consumer.poll(20) == []
            assert dict(consumer.positions) == {HERE: 3, THERE: 0}
            consumer.resume([THERE])
            while not (found := await consumer.poll(5000)):
                pass
            assert [(each.partition, len(each.records)) for each in found] == [(THERE, 1)]

    with (broker := ledger.broker()).running():
        run(story())


def test_what_came_is_not_given_out_if_its_partition_was_moved_or_dropped_before_it_was_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = filled(3)
    ledger.append(THERE, encode_batch([Record(b"there", timestamp_ms=1)]))

    async def story() -> None:
        async with Cluster([broker.address], QUICK) as cluster, Consumer(cluster) as consumer:
            start = consumer._start_fetches

            async def start_and_move() -> None:
                await start()
                if consumer._arrived:
                    consumer.seek({HERE: 2})
                    consumer.drop(THERE)
                    monkeypatch.setattr(consumer, "_start_fetches", start)

            monkeypatch.setattr(consumer, "_start_fetches", start_and_move)
            await consumer.assign({HERE: BEGINNING, THERE: BEGINNING})
            while not (fetched := await consumer.poll(5000)):
                pass
            assert [(each.partition, [r.offset for r in each.records]) for each in fetched] == [(HERE, [2])]

    with (broker := ledger.broker()).running():
        run(story())


def test_a_poll_that_is_cancelled_before_it_opens_what_came_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        async with Cluster([broker.address], QUICK) as cluster, Consumer(cluster) as consumer:
            start = consumer._start_fetches

            async def start_and_cancel() -> None:
                await start()
                if consumer._arrived:
                    monkeypatch.setattr(consumer, "_start_fetches", start)
                    polling.cancel()

            monkeypatch.setattr(consumer, "_start_fetches", start_and_cancel)
            await consumer.assign({HERE: BEGINNING})
            polling = asyncio.create_task(consumer.poll(5000))
            with pytest.raises(asyncio.CancelledError):
                await polling
            (fetched,) = await consumer.poll(5000)
            assert [each.offset for each in fetched.records] == [0, 1, 2, 3, 4]

    with (broker := filled().broker()).running():
        run(story())


def test_an_interrupt_while_a_partition_is_opened_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = filled(2)
    ledger.append(THERE, encode_batch([Record(b"there", timestamp_ms=1)]))

    def interrupted(*_arguments: object) -> None:
        monkeypatch.undo()
        raise MemoryError

    async def story() -> None:
        async with Cluster([broker.address], QUICK) as cluster, Consumer(cluster) as consumer:
            await consumer.assign({HERE: BEGINNING, THERE: BEGINNING})
            monkeypatch.setattr(fetcher, "records_of", interrupted)
            with pytest.raises(MemoryError):
                await consumer.poll(5000)
            seen: dict[TopicPartition, list[int]] = {}
            while len(seen) < 2:
                for each in await consumer.poll(5000):
                    seen.setdefault(each.partition, []).extend(record.offset for record in each.records)
            assert seen == {HERE: [0, 1], THERE: [0]}

    with (broker := ledger.broker()).running():
        run(story())


def test_what_has_failed_for_too_long_is_raised_once_for_each_try() -> None:
    """A program that goes on polling is not raised at as fast as it can, and is not told that all is well."""
    clock = LeapingClock()
    options = replace(QUICK, retry_pause_ms=60_000, retry_pause_ms_max=60_000)

    async def story() -> None:
        cluster = Cluster([broker.address], options, clock=clock)
        async with cluster, Consumer(cluster, FetchOptions(wait_ms_max=1)) as consumer:
            await consumer.assign({HERE: BEGINNING})
            while not consumer._failing:
                assert await consumer.poll(100) == []
            for _ in range(2):
                clock.leaps_ms += 100_000
                with pytest.raises(BrokerError, match="NOT_LEADER_OR_FOLLOWER"):
                    await consumer.poll(5000)
                tries = broker.count(ApiKey.FETCH)
                for timeout_ms in (0, 50):
                    with pytest.raises(BrokerError, match="NOT_LEADER_OR_FOLLOWER"):
                        await consumer.poll(timeout_ms)
                assert broker.count(ApiKey.FETCH) == tries
            consumer.seek({HERE: 0})
            assert await consumer.poll(0) == []

    with (broker := failing(filled(), [6] * 10_000)).running():
        run(story())
