"""Both producers against a real broker, and what they leave when they are closed."""

import asyncio
import concurrent.futures
import os
import signal
import threading
from collections.abc import Coroutine, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from distributedlog import Admin, NewTopic, Producer, TopicPartition, aio
from distributedlog.client.addresses import parse_bootstrap
from distributedlog.client.admin.log_dirs import ProducerView
from distributedlog.client.consumer import Consumer as Assigned
from distributedlog.client.faces.blocking_producer import TURN_RECORDS_MAX
from distributedlog.client.faces.delivery import OnDelivery
from distributedlog.client.metadata import Cluster
from distributedlog.client.offset_specs import BEGINNING
from distributedlog.model.errors import (
    BrokerUnreachableError,
    BufferFullError,
    ClientClosedError,
    DlogError,
    InvalidRecordError,
    RecordTooLargeError,
    RequestTimedOutError,
)
from distributedlog.records.record import Record
from tests.ports import free_port
from tests.simulation.net.virtual_loop import VirtualLoop
from tests.system.server_process import ServerProcess
from tests.unit.client.faces.stage import running_broker

_numbers = count()


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker(tmp_path_factory.mktemp("broker")) as address:
        yield address


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"t{next(_numbers)}"
    with Admin(bootstrap) as admin:
        admin.create_topic(NewTopic(name, 3))
    return name


def read(bootstrap: str, topic: str, wanted: int, partitions: int = 3) -> dict[int, list[Record]]:
    async def reading() -> dict[int, list[Record]]:
        found: dict[int, list[Record]] = {}
        cluster = Cluster(parse_bootstrap(bootstrap))
        async with asyncio.timeout(60), cluster, Assigned(cluster) as consumer:
            places = {TopicPartition(topic, each): BEGINNING for each in range(partitions)}
            await consumer.assign(places)
            while sum(map(len, found.values())) < wanted:
                for fetched in await consumer.poll(1000):
                    found.setdefault(fetched.partition.partition, []).extend(fetched.records)
        return found

    return asyncio.run(reading())


def test_records_of_many_threads_arrive_once_and_each_thread_s_in_order(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, linger_ms=1) as producer:

        def send(thread: int) -> None:
            for number in range(500):
                producer.send(topic, f"{thread}:{number}", key=str(thread))

        threads = [threading.Thread(target=send, args=(each,)) for each in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    values = [r.value.decode() for rs in read(bootstrap, topic, 2000).values() for r in rs if r.value]
    assert len(values) == 2000
    for thread in range(4):
        mine = [int(v.split(":")[1]) for v in values if v.startswith(f"{thread}:")]
        assert mine == list(range(500))


def test_a_delivery_says_where_the_record_is_to_threads_and_to_callbacks(bootstrap: str, topic: str) -> None:
    told: list[object] = []
    with Producer(bootstrap, linger_ms=0, compression="zstd", compression_level=5) as producer:
        delivery = producer.send(
            topic,
            "v",
            "k",
            partition=2,
            headers={"h": "1", "none": None},
            timestamp_ms=77,
            on_delivery=lambda error, place: told.append((error, place)),
        )
        place = delivery.result(60)
        assert (place.topic, place.partition, place.offset) == (topic, 2, 0)
        assert delivery.done()
        assert delivery.exception() is None
        producer.flush(60)
        metrics = producer.metrics()
    assert told == [(None, place)]
    assert (metrics["records_delivered"], metrics["buffered_bytes"]) == (1, 0)
    (record,) = read(bootstrap, topic, 1)[2]
    assert record[:4] == (b"v", b"k", (("h", b"1"), ("none", None)), 77)


def test_the_asyncio_face_does_the_same(bootstrap: str, topic: str) -> None:
    told: list[object] = []

    async def story() -> list[aio.RecordMetadata]:
        async with asyncio.timeout(60), aio.Producer(bootstrap, value_serializer=str.encode) as producer:
            first = await producer.send_and_wait(topic, "first", partition=0)
            deliveries = [
                await producer.send(
                    topic, str(n), partition=0, on_delivery=lambda error, place: told.append(place)
                )
                for n in range(100)
            ]
            return [first, *[await each for each in deliveries]]

    places = asyncio.run(story())
    assert [each.offset for each in places] == list(range(101))
    assert told == places[1:]
    assert [r.value for r in read(bootstrap, topic, 101)[0]] == [b"first", *(b"%d" % n for n in range(100))]


def test_what_a_broker_refuses_is_told_by_the_delivery(bootstrap: str) -> None:
    name = f"t{next(_numbers)}"
    with Admin(bootstrap) as admin:
        admin.create_topic(NewTopic(name, 1, configs={"max.message.bytes": "1000"}))
    with Producer(bootstrap, linger_ms=0) as producer:
        refused = producer.send(name, bytes(5000))
        assert isinstance(refused.exception(60), RecordTooLargeError)
        with pytest.raises(RecordTooLargeError):
            refused.result()
        assert producer.send(name, b"small").result(60).offset == 0
    with Producer(bootstrap, max_request_size=2000, batch_size=1000) as producer:
        with pytest.raises(RecordTooLargeError):
            producer.send(name, bytes(5000))
        with pytest.raises(InvalidRecordError, match="value_serializer"):
            producer.send(name, 5)


@pytest.mark.parametrize("idempotent", [True, False])
def test_records_that_are_too_large_together_arrive_in_order_and_only_one_that_is_so_alone_fails(
    bootstrap: str, idempotent: bool
) -> None:
    name = f"t{next(_numbers)}"
    with Admin(bootstrap) as admin:
        admin.create_topic(NewTopic(name, 3, configs={"max.message.bytes": "1000"}))
    values = [b"%03d" % number + bytes(90) for number in range(100)]
    values[37] = bytes(2000)
    told: list[tuple[int, bool]] = []

    def tell(number: int) -> OnDelivery:
        return lambda error, place: told.append((number, error is None and place is not None))

    with Producer(bootstrap, linger_ms=5_000, enable_idempotence=idempotent) as producer:
        sent = [
            producer.send(name, each, partition=0, on_delivery=tell(number))
            for number, each in enumerate(values)
        ]
        producer.flush()
        errors = [each.exception(60) for each in sent]
        offsets = [None if error else each.result().offset for each, error in zip(sent, errors, strict=True)]
        metrics = producer.metrics()
    assert [number for number, error in enumerate(errors) if error] == [37]
    assert isinstance(errors[37], RecordTooLargeError)
    assert offsets == [*range(37), None, *range(37, 99)]
    assert told == [(number, number != 37) for number in range(100)]
    assert (metrics["records_delivered"], metrics["records_failed"], metrics["buffered_bytes"]) == (99, 1, 0)
    found = read(bootstrap, name, 99)[0]
    assert [each.value for each in found] == values[:37] + values[38:]


def test_a_child_process_has_its_own_thread_connections_and_producer_id(bootstrap: str, topic: str) -> None:
    producer = Producer(bootstrap, linger_ms=0)
    assert producer.send(topic, "parent", partition=0).result(60).offset == 0
    child = os.fork()
    if child == 0:  # nothing of pytest runs here: the process ends by itself
        status = 1
        try:
            place = producer.send(topic, "child", partition=0).result(60)
            producer.close()
            status = 0 if place.offset == 1 else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert producer.send(topic, "parent again", partition=0).result(60).offset == 2
    producer.close()
    with Admin(bootstrap) as admin:
        seen: tuple[ProducerView, ...] = admin.describe_producers(TopicPartition(topic, 0))
    assert len({each.producer_id for each in seen}) == 2


def test_nothing_is_left_of_a_closed_client(bootstrap: str, topic: str) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with Producer(bootstrap) as producer, Admin(bootstrap) as admin:
        producer.send(topic, "v")
        admin.list_topics()
    producer.close()
    assert not [each for each in threading.enumerate() if each.name.startswith("dlog")]
    assert set(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ClientClosedError):
        producer.send(topic, "v")

    async def story() -> set["asyncio.Task[object]"]:
        async with aio.Producer(bootstrap) as producer:
            await producer.send(topic, "v")
        with pytest.raises(ClientClosedError):
            await producer.send(topic, "v")
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(story()) == set()


def test_a_cluster_that_is_not_there_is_told_at_once() -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    with Producer(nowhere) as producer, pytest.raises(BrokerUnreachableError, match="cannot be reached"):
        producer.send("t", "v")

    async def story() -> None:
        async with aio.Producer(nowhere) as producer:
            await producer.send("t", "v")

    with pytest.raises(BrokerUnreachableError, match="cannot be reached"):
        asyncio.run(story())


def test_a_broker_that_stands_still_fills_the_buffer_and_no_more(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, {}) as server:
        assert server.process is not None
        producer = Producer(
            server.facts["client"],
            buffer_memory=64 * 1024,
            batch_size=16 * 1024,
            max_block_ms=300,
            delivery_timeout_ms=60_000,
        )
        producer.partitions_for("t")  # not within max_block_ms, which is short here
        producer.send("t", "first").result(60)
        server.process.send_signal(signal.SIGSTOP)
        try:

            def send_ever_more() -> None:
                for _ in range(1000):
                    producer.send("t", bytes(1000))

            with pytest.raises(BufferFullError, match="max_block_ms"):
                send_ever_more()
            assert producer.metrics()["buffered_bytes"] < 64 * 1024 + 2000
            with pytest.raises(RequestTimedOutError):
                producer.flush(0.1)
        finally:
            server.process.send_signal(signal.SIGCONT)
        producer.flush(60)
        assert producer.metrics()["records_failed"] == 0
        producer.close()


def test_what_is_not_delivered_fails_when_the_producer_is_closed(bootstrap: str, topic: str) -> None:
    producer = Producer(bootstrap, linger_ms=60_000)
    delivery = producer.send(topic, "v")
    producer.close()
    assert delivery.done()
    with pytest.raises(DlogError, match="closed"):
        delivery.result()


def test_a_send_that_meets_close_is_refused(bootstrap: str, topic: str) -> None:
    def close_first(value: str) -> bytes:
        producer.close()
        return value.encode()

    producer = Producer(bootstrap, value_serializer=close_first)
    producer.partitions_for(topic)
    with pytest.raises(ClientClosedError):
        producer.send(topic, "v")
    assert not [each for each in threading.enumerate() if each.name.startswith("dlog")]


def test_a_send_that_waits_for_room_is_refused_when_the_producer_is_closed(
    bootstrap: str, topic: str
) -> None:
    is_waiting = threading.Event()

    class Room(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            is_waiting.set()
            return super().wait(timeout)

    producer = Producer(bootstrap, max_block_ms=600_000)
    producer.partitions_for(topic)
    producer._room = Room(producer._lock)
    producer._inbox.size_bytes = 1 << 40
    refused: list[BaseException] = []

    def send() -> None:
        try:
            producer.send(topic, "v")
        except ClientClosedError as error:
            refused.append(error)

    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    assert is_waiting.wait(60)
    producer.close()
    sending.join(60)
    assert len(refused) == 1


def test_closing_goes_on_while_somebody_waits_for_a_record_in_the_inbox(bootstrap: str, topic: str) -> None:
    """The loop stands still until more is in the inbox than it takes in one turn."""
    producer = Producer(bootstrap, linger_ms=60_000, batch_size=16_384)
    producer.partitions_for(topic)
    go_on, is_closing = threading.Event(), threading.Event()
    producer._thread.call_soon(go_on.wait, 60)
    deliveries = [producer.send(topic, "v") for _ in range(2 * TURN_RECORDS_MAX)]
    assert len(producer._inbox) > 4
    producer.wait_for(deliveries[-1])

    submit = producer._thread.submit

    def told(work: Coroutine[Any, Any, None]) -> "concurrent.futures.Future[None]":
        is_closing.set()
        return submit(work)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producer._thread, "submit", told)
        closing = threading.Thread(target=producer.close, daemon=True)
        closing.start()
        assert is_closing.wait(60)
        go_on.set()
        closing.join(60)
    assert not closing.is_alive()
    assert all(each.done() for each in deliveries)


def test_the_asyncio_face_refuses_a_send_that_meets_close(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        producer = aio.Producer(bootstrap)
        learn = producer._core.learn

        async def learn_and_close(name: str) -> int:
            found = await learn(name)
            await producer.close()
            return found

        monkeypatch.setattr(producer._core, "learn", learn_and_close)
        async with asyncio.timeout(60):
            with pytest.raises(ClientClosedError):
                await producer.send(topic, "v")

    asyncio.run(story())


def test_a_send_goes_on_if_all_that_is_known_is_given_up_while_it_waits_for_room(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with asyncio.timeout(60), aio.Producer(bootstrap) as producer:
            wait_for_room = producer._core.wait_for_room

            async def wait_and_begin_anew() -> None:
                await wait_for_room()
                if not producer._cluster.rebootstraps:
                    await producer._core.learn(topic)
                    producer._cluster._rebootstrap()

            monkeypatch.setattr(producer._core, "wait_for_room", wait_and_begin_anew)
            assert (await producer.send_and_wait(topic, "v")).offset == 0
            assert producer._cluster.rebootstraps == 1

    asyncio.run(story())


def test_a_send_waits_for_its_topic_and_for_room_no_longer_than_max_block_ms_in_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = VirtualLoop()
    producer = aio.Producer("127.0.0.1:1", max_block_ms=1_000)

    async def long(*_: object) -> None:
        await asyncio.sleep(0.7)

    monkeypatch.setattr(producer._core, "learn", long)
    monkeypatch.setattr(producer._core, "wait_for_room", long)
    try:
        with pytest.raises(RequestTimedOutError, match="1000 ms"):
            loop.run_until_complete(producer.send("t", "v"))
        assert loop.time() == pytest.approx(1.0)
    finally:
        loop.close()
