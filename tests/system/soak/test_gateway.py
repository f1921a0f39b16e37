"""A gateway under as much traffic as the machine bears: no election, no fencing.

Three brokers, callers that produce and read through one gateway without a pause, and every core kept busy by
others besides.  Encoding and decoding of users' records is the gateway's, so Raft's loop must not feel it.
`DLOG_SOAK=1` does it for ten minutes, and prints the figures (`pytest -s`).
"""

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from distributedlog.gateway._generated import broker_service_pb2 as pb
from tests.system.dev_cluster import DevCluster
from tests.system.test_gateway import Caller, scrape

SECONDS = 600.0 if os.environ.get("DLOG_SOAK") == "1" else 10.0
PARTITIONS = 6
PRODUCERS = 4
READERS = 2
RECORDS_PER_CALL = 200
VALUE = b"v" * 1_000
NAMES = ("dlog_raft_elections_total", "dlog_raft_term", "dlog_brokers_fenced")
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def burn() -> None:
    """Keeps one core busy until the process is ended."""
    while True:
        sum(range(100_000))


@contextmanager
def busy_cores() -> Iterator[None]:
    context = multiprocessing.get_context("spawn")
    burners = [context.Process(target=burn, daemon=True) for _ in range(os.cpu_count() or 1)]
    for burner in burners:
        burner.start()
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.join()


class Traffic:
    """Callers in threads, each without a pause."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._ended = threading.Event()
        self.produced = 0
        self.read = 0
        self.failures: list[str] = []
        self._streams: list[Any] = []
        self._lock = threading.Lock()
        works: Sequence[Callable[[Caller, int], None]] = (
            *[self._produce] * PRODUCERS,
            *[self._read] * READERS,
        )
        self._threads = [threading.Thread(target=self._run, args=(work, at)) for at, work in enumerate(works)]

    def __enter__(self) -> "Traffic":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for stream in self._streams:
            stream.cancel()
        for thread in self._threads:
            thread.join(120)

    def _run(self, work: Callable[[Caller, int], None], at: int) -> None:
        with Caller(self._address) as caller:
            while not self._ended.is_set():
                try:
                    work(caller, at)
                except grpc.RpcError as error:
                    if not self._ended.is_set():
                        self.failures.append(str(error)[:300])

    def _produce(self, caller: Caller, at: int) -> None:
        record = pb.ProduceRecord(topic="soaked", partition=at % PARTITIONS, value=VALUE)
        results = caller.produce(*[record] * RECORDS_PER_CALL)
        with self._lock:
            self.produced += len(results)

    def _read(self, caller: Caller, at: int) -> None:
        stream = caller.stream("soaked", (at - PRODUCERS) % PARTITIONS)
        self._streams.append(stream)
        for response in stream:
            with self._lock:
                self.read += len(response.records)


def totals(cluster: DevCluster) -> dict[str, float]:
    """Returns what matters of the metrics of all brokers."""
    found = dict.fromkeys(NAMES, 0.0)
    for broker in cluster.ready()["brokers"]:
        numbers = scrape(broker["ops"])
        for name in NAMES:
            found[name] += numbers[name]
    return found


def test_saturating_traffic_through_a_gateway_causes_no_election_and_fences_nobody(tmp_path: Path) -> None:
    data = tmp_path / "d"
    settings = ("--set", f"num.partitions={PARTITIONS}", "--set", "log.retention.bytes=50000000")
    retention = ("--set", "log.segment.bytes=10000000", "--set", "log.retention.check.interval.ms=5000")
    arguments = ("--brokers", "3", "--port", "0", "--data-dir", data, *settings, *retention)
    with DevCluster(tmp_path / "ready.json", *arguments) as cluster:
        address = cluster.gateway()
        with Caller(address) as caller:
            caller.produce(pb.ProduceRecord(topic="soaked", value=b"first"))
        before, fencings = totals(cluster), count_fencings(data)
        assert fencings >= 3
        assert before["dlog_brokers_fenced"] == 0
        with busy_cores(), Traffic(address) as traffic:
            time.sleep(SECONDS)  # the traffic is what is waited for
            after = totals(cluster)
        print(
            f"{SECONDS:.0f} s: {traffic.produced:,} records of {len(VALUE)} bytes produced, {traffic.read:,} "
            f"read, {len(traffic.failures)} calls failed; before {before}, after {after}"
        )
        assert after == before
        assert count_fencings(data) == fencings
        assert traffic.produced > RECORDS_PER_CALL * PRODUCERS
        assert traffic.read > 0
        assert cluster.stop() == 0


def count_fencings(data: Path) -> int:
    """Returns how often brokers say that they were fenced; each does when it registers."""
    return sum(
        log.read_text("utf-8", "replace").count("the broker is fenced") for log in data.glob("node-*.log")
    )
