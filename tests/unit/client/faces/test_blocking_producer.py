"""What the producer for threads owes its callers, where they could wait for nothing or for ever."""

import asyncio
import concurrent.futures
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator

import pytest

from distributedlog import Producer, aio
from distributedlog.client.faces.delivery import BlockingDelivery, Delivery, RecordMetadata
from distributedlog.client.faces.loop_thread import LoopThread
from distributedlog.client.producer import Producer as Core
from distributedlog.model.errors import (
    BufferFullError,
    ClientClosedError,
    ConnectionLostError,
    DlogError,
    RequestTimedOutError,
)
from distributedlog.protocol.api_keys import ApiKey
from tests.unit.client.ledger import Ledger
from tests.unit.client.stage import WAIT_SECONDS, ScriptedBroker, run


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with (broker := Ledger({"t": 1}).broker()).running():
        yield broker


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("dlog")]


def in_a_callback(producer: Producer, what: Callable[[], object]) -> DlogError:
    """What it raises in an `on_delivery`."""
    raised: concurrent.futures.Future[DlogError] = concurrent.futures.Future()

    def on_delivery(error: DlogError | None, place: RecordMetadata | None) -> None:
        try:
            what()
        except DlogError as refused:
            raised.set_result(refused)

    producer.send("t", "v", on_delivery=on_delivery)
    producer.flush(WAIT_SECONDS)
    return raised.result(WAIT_SECONDS)


def test_a_callback_that_would_wait_for_its_own_thread_is_told(broker: ScriptedBroker) -> None:
    with Producer(broker.bootstrap, linger_ms=1) as producer:
        later: list[BlockingDelivery] = []

        def wait_for_another() -> None:
            later.append(producer.send("t", "later"))
            later[0].result(1)

        assert "own callback" in str(in_a_callback(producer, wait_for_another))
        assert later[0].result(WAIT_SECONDS).offset == 1


def test_a_callback_that_sends_without_room_is_told_at_once(broker: ScriptedBroker) -> None:
    with Producer(broker.bootstrap, linger_ms=1, max_block_ms=600_000) as producer:

        def send() -> None:
            room, producer._buffer_bytes_max = producer._buffer_bytes_max, 0
            try:
                producer.send("t", "v")
            finally:
                producer._buffer_bytes_max = room

        assert isinstance(in_a_callback(producer, send), BufferFullError)


def test_what_is_not_known_in_time_is_no_failure_of_the_record(broker: ScriptedBroker) -> None:
    with Producer(broker.bootstrap, linger_ms=60_000) as producer:
        delivery = producer.send("t", "v")
        for ask in (delivery.result, delivery.exception):
            with pytest.raises(RequestTimedOutError, match="not delivered within"):
                ask(0.01)
        producer.flush()
        assert delivery.exception() is None


def test_what_the_parent_sent_is_not_waited_for_by_a_child(broker: ScriptedBroker) -> None:
    with Producer(broker.bootstrap, linger_ms=60_000) as producer:
        in_batch = producer.send("t", "v")
        with pytest.raises(RequestTimedOutError):
            in_batch.result(0.01)
        assert in_batch.is_in_batch
        go_on = threading.Event()
        producer._thread.call_soon(go_on.wait, WAIT_SECONDS)
        in_inbox = producer.send("t", "v")
        child = os.fork()
        if child == 0:  # nothing of pytest runs here: the process ends by itself
            status = 0
            try:
                for each in (in_batch, in_inbox):
                    try:
                        each.result(WAIT_SECONDS)
                    except DlogError as error:
                        status += "parent" not in str(error)
            except BaseException:
                status = 9
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        go_on.set()
        assert os.waitstatus_to_exitcode(status) == 0


def test_a_send_waits_no_longer_than_max_block_ms_in_all(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Producer(broker.bootstrap, max_block_ms=600_000) as producer:
        until: list[float] = []
        choices = 3

        class Room(threading.Condition):
            """There is room again after every wait, until the topic is learnt."""

            def wait(self, timeout: float | None = None) -> bool:
                producer._inbox.size_bytes = 0
                return True

        producer.partitions_for("t")
        assert producer._core is not None
        producer._room = Room(producer._lock)
        choose, learn, wait = producer._core.partition_now, producer._learn, producer._wait_for_room

        def chosen(*args: object) -> int | None:
            nonlocal choices
            choices -= 1
            producer._inbox.size_bytes = 1 << 40 if choices > 0 else 0
            return None if choices > 0 else choose(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(producer._core, "partition_now", chosen)

        def learn_until(core: Core, topic: str, at: float) -> None:
            until.append(at)
            learn(core, topic, at)

        def wait_until(core: Core, at: float) -> None:
            until.append(at)
            wait(core, at)

        monkeypatch.setattr(producer, "_learn", learn_until)
        monkeypatch.setattr(producer, "_wait_for_room", wait_until)
        producer.send("t", "v")
        assert len(until) == 4
        assert len(set(until)) == 1


def test_a_loop_that_was_stopped_is_not_started_again() -> None:
    thread = LoopThread("dlog-test")

    async def nothing() -> None:
        pass

    thread.run(nothing())
    thread.stop()
    for use in (thread.run, thread.submit):
        with pytest.raises(ClientClosedError):
            use(nothing())
    with pytest.raises(ClientClosedError):
        thread.call_soon(print)
    assert threads() == []


def test_rows_that_have_ended_are_asked_of_a_closed_producer(broker: ScriptedBroker) -> None:
    import pyarrow as pa

    producer = Producer(broker.bootstrap, linger_ms=0)
    delivery = producer.send_batch("t", pa.table({"value": [b"a", b"b"]}))
    producer.flush()
    producer.close()
    assert delivery.result(WAIT_SECONDS).rows == 2
    assert threads() == []


@pytest.mark.parametrize(
    ("end", "is_told"), [("", True), ("producer.flush()", False), ("producer.close()", False)]
)
def test_what_a_program_leaves_undelivered_at_its_end_is_told(
    broker: ScriptedBroker, end: str, is_told: bool
) -> None:
    program = f"""
from distributedlog import Producer
producer = Producer({broker.bootstrap!r}, linger_ms=60_000)
producer.send("t", "v")
{end}
"""
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ("a producer was not closed" in ended.stderr) is is_told


def test_a_program_that_closes_no_client_ends_without_a_word_if_all_is_delivered(
    broker: ScriptedBroker,
) -> None:
    program = f"""
from distributedlog import Producer
producer = Producer({broker.bootstrap!r})
producer.send("t", "v").result()
"""
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ended.stderr == ""


def test_a_block_that_is_left_by_an_interrupt_of_its_flush_leaves_nothing(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(os.listdir("/proc/self/fd"))
    deliveries: list[BlockingDelivery] = []

    def block() -> None:
        with monkeypatch.context() as patch, Producer(broker.bootstrap, linger_ms=60_000) as producer:
            producer.partitions_for("t")
            deliveries.append(producer.send("t", "v"))

            def interrupted(*_: object) -> None:
                patch.undo()
                raise KeyboardInterrupt

            patch.setattr(concurrent.futures.Future, "result", interrupted)

    with pytest.raises(KeyboardInterrupt):
        block()
    assert threads() == []
    assert set(os.listdir("/proc/self/fd")) == before
    assert deliveries[0].done()


@pytest.mark.parametrize("is_closing", [False, True])
def test_a_block_whose_end_is_cancelled_leaves_nothing(is_closing: bool) -> None:
    """Neither where everything is still to be delivered, nor where the producer is being closed already."""
    ledger = Ledger({"t": 1}, deque(["no answer"]))

    async def story(broker: ScriptedBroker) -> None:
        before = asyncio.all_tasks()
        deliveries: list[Delivery] = []

        async def block() -> None:
            async with aio.Producer(broker.bootstrap, linger_ms=0) as producer:
                deliveries.append(await producer.send("t", "v"))
                while broker.count(ApiKey.PRODUCE) == 0:
                    await asyncio.sleep(0)
                if is_closing:
                    asyncio.get_running_loop().call_soon(leaving.cancel)
                    raise ZeroDivisionError
                asyncio.get_running_loop().call_later(0.01, leaving.cancel)

        leaving = asyncio.create_task(block())
        with pytest.raises(asyncio.CancelledError):
            await leaving
        for _ in range(3):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == before
        with pytest.raises(ConnectionLostError):
            await deliveries[0]

    with ledger.broker().running() as broker:
        run(story(broker))
