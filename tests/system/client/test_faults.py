"""Our client while brokers are killed and its network is cut, slow and broken: nothing lost, nothing twice,
the order of each key kept, memory bounded; an error in time when all is gone; and nothing left behind."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from distributedlog import Admin, Consumer, DlogError, NewTopic, Producer, aio
from distributedlog.client.faces.settings import ClientSettings
from distributedlog.testing import TestCluster

KEYS = 20
BUFFER_BYTES = 256 * 1024
BATCH_BYTES = 8 * 1024
WAIT_S = 90.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    with TestCluster(3, cuttable=True) as cluster:
        with Admin(cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("orders", 6), NewTopic("warm", 3)])
        yield cluster


def ours() -> set[str]:
    """The threads of clients."""
    return {each.name for each in threading.enumerate() if each.name.startswith("dlog")} - {"dlog-test-proxy"}


def wait_until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < deadline, "it does not go on"
        time.sleep(0.01)


class Sending:
    """A thread that sends as fast as there is room, numbers in turn for each key."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.sent = 0
        self.failed: list[Exception] = []
        self.buffered_most = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.is_set():
            self.producer.send(
                "orders",
                str(self.sent),
                key=f"k{self.sent % KEYS}",
                on_delivery=lambda error, _: self.failed.append(error) if error is not None else None,
            )
            self.sent += 1
            if self.sent % 50 == 0:
                self.buffered_most = max(self.buffered_most, self.producer.metrics()["buffered_bytes"])
                self._ends.wait(0.002)

    def get_on(self, records: int = 300) -> None:
        """Waits until so many more are delivered."""
        wanted = self.producer.metrics()["records_delivered"] + records
        wait_until(lambda: self.producer.metrics()["records_delivered"] >= wanted)

    def end(self) -> None:
        self._ends.set()
        self._thread.join(WAIT_S)
        self.producer.flush(WAIT_S)


class Reading:
    """A member of a group in a thread of its own."""

    def __init__(self, bootstrap: str) -> None:
        self.read: dict[bytes, list[int]] = {}
        self.count = 0
        self._bootstrap = bootstrap
        self._ends = threading.Event()
        self.failures: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with Consumer(
                self._bootstrap,
                group_id="readers",
                topics=["orders"],
                auto_offset_reset="earliest",
                request_timeout_ms=10_000,
            ) as consumer:
                while not self._ends.is_set():
                    for record in consumer.poll(timeout_ms=200):
                        self.read.setdefault(record.key, []).append(int(record.value))
                        self.count += 1
        except BaseException as error:
            self.failures.append(error)

    def end(self) -> None:
        self._ends.set()
        self._thread.join(WAIT_S)


def test_nothing_is_lost_doubled_or_reordered_whatever_happens_to_brokers_and_the_network(
    cluster: TestCluster,
) -> None:
    threads = ours()
    with Producer(
        cluster.bootstrap,
        buffer_memory=BUFFER_BYTES,
        batch_size=BATCH_BYTES,
        request_timeout_ms=10_000,
        linger_ms=2,
    ) as producer:
        sending, reading = Sending(producer), Reading(cluster.bootstrap)
        sending.get_on()
        for node_id in (1, 2, 3):
            cluster.cut(node_id)
            sending.get_on(20)  # by the others, or by what was under way
            cluster.mend(node_id)
            cluster.disconnect(node_id)
            sending.get_on()
        cluster.delay(50)
        sending.get_on()
        cluster.disconnect()
        cluster.kill(1)
        sending.get_on()
        cluster.delay(0)
        cluster.cut()
        cluster.mend()
        sending.get_on()
        sending.end()
        wait_until(lambda: reading.count >= sending.sent or bool(reading.failures))
        reading.end()
        assert not reading.failures
        assert not sending.failed
        assert producer.metrics()["retries"] > 0
        assert sending.buffered_most <= BUFFER_BYTES + BATCH_BYTES
    wanted = {f"k{key}".encode(): list(range(key, sending.sent, KEYS)) for key in range(KEYS)}
    assert reading.read == wanted
    assert ours() == threads


def eventually(call: Callable[[], object]) -> None:
    """Until it succeeds: times are short here, and the machine may be busy."""

    def succeeds() -> bool:
        try:
            call()
        except DlogError:
            return False
        return True

    wait_until(succeeds)


def read_on(consumer: Consumer) -> None:
    """Until it fails: what was sent more than once, as the machine is busy, may be there to be read first."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        consumer.poll(1_000)


def test_what_is_cut_off_is_told_in_time_and_leaves_no_task(cluster: TestCluster) -> None:
    async def story() -> None:
        async with aio.Producer(
            cluster.bootstrap, request_timeout_ms=1_000, delivery_timeout_ms=3_000
        ) as producer:
            while True:
                with contextlib.suppress(DlogError):
                    await producer.send_and_wait("warm", "v", partition=0)
                    break
            cluster.cut()
            with pytest.raises(DlogError, match=r"127\.0\.0\.1:\d+"):
                await producer.send_and_wait("warm", "v", partition=0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    try:
        asyncio.run(story())
    finally:
        cluster.mend()


def test_a_cluster_that_dies_is_told_in_time_with_its_addresses_and_leaves_no_thread(
    cluster: TestCluster,
) -> None:
    """The last test on this cluster: it is stopped."""
    threads, bootstrap = ours(), cluster.bootstrap
    address = bootstrap.split(",")[0]
    quick: ClientSettings = {"default_api_timeout_ms": 2_000}
    with (
        Producer(bootstrap, delivery_timeout_ms=2_000, **quick) as producer,
        Admin(bootstrap, **quick) as admin,
        Consumer(
            bootstrap, group_id="warm", topics=["warm"], auto_offset_reset="earliest", **quick
        ) as consumer,
    ):
        eventually(lambda: producer.send("warm", "v").result(WAIT_S))
        eventually(admin.list_topics)
        eventually(lambda: wait_until(lambda: bool(consumer.poll(100))))
        cluster.stop()
        with pytest.raises(DlogError, match=address):
            producer.send("warm", "v").result(WAIT_S)
        with pytest.raises(DlogError, match=address):
            admin.list_topics()
        with pytest.raises(DlogError, match=address):
            read_on(consumer)
    assert ours() == threads
