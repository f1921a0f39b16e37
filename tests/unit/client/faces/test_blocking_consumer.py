"""What the consumer for threads owes its caller: nothing is lost by an interrupt, and nothing is committed
that the caller has not dealt with."""

import asyncio
import queue
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from types import FrameType
from typing import Any

import pytest

from distributedlog import Consumer, TopicPartition
from distributedlog.client.admin.group_offsets import GroupOffsets, OffsetAndMetadata
from distributedlog.client.faces import aio_consumer, records
from distributedlog.records.record import Record, encode_batch
from tests.unit.client.ledger import Ledger
from tests.unit.client.stage import WAIT_SECONDS, ScriptedBroker

HERE = TopicPartition("t", 0)


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    ledger = Ledger({"t": 1})
    ledger.append(HERE, encode_batch([Record(b"%d" % each, timestamp_ms=1) for each in range(6)]))
    with (broker := ledger.broker()).running():
        yield broker


class Interrupting(queue.SimpleQueue[Any]):
    """The call is over, and then the caller is interrupted before it hears of that."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        super().get(block, timeout)
        raise KeyboardInterrupt


def interrupted(consumer: Consumer, what: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(consumer, "_calls", Interrupting())
        with pytest.raises(KeyboardInterrupt):
            what()


def offsets_polled(consumer: Consumer) -> list[int]:
    return [each.offset for each in consumer.poll(5000)]


def offsets_of_rows(consumer: Consumer) -> list[int]:
    return list(consumer.poll_arrow(5000)["offset"].to_pylist())


@pytest.mark.parametrize("poll", [offsets_polled, offsets_of_rows])
def test_records_that_an_interrupt_keeps_from_the_caller_are_given_out_again(
    broker: ScriptedBroker, poll: Callable[[Consumer], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([HERE])
        consumer.seek(HERE, 1)
        interrupted(consumer, lambda: poll(consumer), monkeypatch)
        assert consumer.positions() == {HERE: 1}
        assert poll(consumer) == [1, 2, 3, 4, 5]


def test_what_is_at_hand_is_given_out_without_the_loop(broker: ScriptedBroker) -> None:
    with Consumer(broker.bootstrap, auto_offset_reset="earliest", max_poll_records=2) as consumer:
        consumer.assign([HERE])
        assert offsets_polled(consumer) == [0, 1]
        may_go_on = threading.Event()
        consumer._thread.call_soon(may_go_on.wait, WAIT_SECONDS)  # the loop has something else to do
        assert [each.offset for each in consumer.poll(0, 1)] == [2]
        assert offsets_polled(consumer) == [3, 4]
        assert not may_go_on.is_set()
        may_go_on.set()
        assert consumer.positions() == {HERE: 5}
        assert consumer.metrics()["records"] == 5


def interrupted_at(line: int, what: Callable[[], object]) -> bool:
    """Whether it came so far as to be interrupted at that line, of those of the asynchronous consumer and of
    what keeps its records."""
    left = line

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in (aio_consumer.__file__, records.__file__):
            return None
        if event == "line":
            left -= 1
            if left < 0:
                sys.settrace(before)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        what()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_interrupt_while_what_is_at_hand_is_taken_loses_and_repeats_nothing(
    broker: ScriptedBroker,
) -> None:
    with Consumer(broker.bootstrap, auto_offset_reset="earliest", max_poll_records=2) as consumer:
        consumer.assign([HERE])
        line = 0
        while True:
            found = offsets_polled(consumer)
            is_interrupted = interrupted_at(line, lambda: consumer.poll(5000))
            if not is_interrupted:
                break
            while len(found) < 6:
                found += offsets_polled(consumer)
            assert found == [0, 1, 2, 3, 4, 5], line
            consumer.seek(HERE, 0)
            line += 1
        assert line > 20


def test_iteration_goes_on_with_the_record_that_an_interrupt_kept_from_the_caller(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Consumer(broker.bootstrap, auto_offset_reset="earliest", max_poll_records=2) as consumer:
        consumer.assign([HERE])
        found: list[int] = []
        for _ in range(3):
            interrupted(consumer, lambda: next(consumer), monkeypatch)
            found += (next(consumer).offset, next(consumer).offset)
        assert found == [0, 1, 2, 3, 4, 5]


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[dict[TopicPartition, int]]:
    """What was committed; nothing was before."""
    found: list[dict[TopicPartition, int]] = []

    async def commit(_self: GroupOffsets, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        found.append({each: at.offset for each, at in offsets.items()})

    async def fetch(_self: GroupOffsets, _wanted: Collection[TopicPartition], **_: bool) -> dict[Any, Any]:
        return {}

    monkeypatch.setattr(GroupOffsets, "commit", commit)
    monkeypatch.setattr(GroupOffsets, "fetch", fetch)
    return found


def test_a_commit_without_waiting_is_of_what_the_caller_had_when_it_asked(
    broker: ScriptedBroker, commits: list[dict[TopicPartition, int]]
) -> None:
    with Consumer(
        broker.bootstrap, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        consumer.assign([HERE])
        assert next(consumer).offset == 0
        may_go_on = threading.Event()
        consumer._thread.call_soon(may_go_on.wait, WAIT_SECONDS)  # the loop has something else to do
        committed = consumer.commit_async()
        assert [next(consumer).offset for _ in range(3)] == [1, 2, 3]
        may_go_on.set()
        committed.result(WAIT_SECONDS)
        assert commits == [{HERE: 1}]


def test_a_commit_that_ends_late_takes_back_nothing_of_what_was_dealt_with_since(
    broker: ScriptedBroker, commits: list[dict[TopicPartition, int]]
) -> None:
    with Consumer(broker.bootstrap, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.assign([HERE])
        assert next(consumer).offset == 0
        may_go_on = threading.Event()
        consumer._thread.call_soon(may_go_on.wait, WAIT_SECONDS)
        committed = consumer.commit_async()
        assert [next(consumer).offset for _ in range(3)] == [1, 2, 3]
        may_go_on.set()
        committed.result(WAIT_SECONDS)
        consumer._consumer._given = None
        assert consumer._consumer._safe == {HERE: 3}
    assert commits == [{HERE: 1}, {HERE: 3}]


def test_a_commit_that_was_asked_for_ends_before_the_consumer_is_closed(
    broker: ScriptedBroker, commits: list[dict[TopicPartition, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = GroupOffsets.commit

    async def slowly(self: GroupOffsets, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        await asyncio.sleep(0.05)
        await commit(self, offsets)

    monkeypatch.setattr(GroupOffsets, "commit", slowly)
    with Consumer(
        broker.bootstrap, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        consumer.assign([HERE])
        assert next(consumer).offset == 0
        committed = consumer.commit_async()
    assert committed.result(0) is None
    assert commits == [{HERE: 1}]


def test_a_commit_behind_an_interrupt_takes_in_nothing_that_was_kept_from_the_caller(
    broker: ScriptedBroker, commits: list[dict[TopicPartition, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Consumer(
        broker.bootstrap, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        consumer.assign([HERE])
        assert [each.offset for each in consumer.poll(5000, max_records=2)] == [0, 1]
        consumer.seek(HERE, 2)  # so that nothing is at hand
        may_go_on = threading.Event()
        with monkeypatch.context() as patch:
            call_soon = consumer._thread.call_soon

            def busy(what: Callable[..., object], *arguments: Any) -> None:
                call_soon(may_go_on.wait, WAIT_SECONDS)  # the loop has something else to do
                call_soon(what, *arguments)

            patch.setattr(consumer._thread, "call_soon", busy)
            interrupted(consumer, lambda: consumer.poll(5000, max_records=2), monkeypatch)
        threading.Timer(0.1, may_go_on.set).start()
        consumer.commit_async().result(WAIT_SECONDS)
        assert commits == [{HERE: 2}]
