"""Three real nodes; the active controller is killed, or stopped, again and again under a stream of changes.

Every change that was acknowledged is there once, none is half there, and a controller is active again soon.
`DLOG_SOAK=1` makes it a hundred times instead of six.
"""

import asyncio
import os
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from distributedlog.client.connection import connect
from distributedlog.model.errors import DlogError
from distributedlog.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.system.admin_stream import AdminStream, History, Seen, look, problems
from tests.system.dev_cluster import DevCluster

SOAK = os.environ.get("DLOG_SOAK") == "1"
FAULTS = 100 if SOAK else 6
TIMEOUT_SECONDS = 60.0
PROBE_MS = 200
CALM_SECONDS = 600 if SOAK else 10
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def address_of(text: str) -> tuple[str, int]:
    host, port = text.rsplit(":", 1)
    return host, int(port)


def metrics(broker: dict[str, Any]) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{broker['ops']}/metrics", timeout=2) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def active_controller(cluster: DevCluster) -> dict[str, Any]:
    """The broker that says it is the active controller; waits until one does."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        for broker in cluster.ready()["brokers"]:
            try:
                if metrics(broker)["dlog_controller_active"] == 1:
                    assert isinstance(broker, dict)
                    return broker
            except OSError:
                continue
        time.sleep(0.05)
    pytest.fail("no controller is active")


async def somebody_is_in_charge(address: tuple[str, int]) -> None:
    """Returns when a change can be made through this broker; asks again and again, and never waits long."""
    topic = CreatableTopic(name="probe", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    request = CreateTopicsRequest(topics=[topic], timeout_ms=PROBE_MS, validate_only=True)
    while True:
        try:
            connection = await connect(*address, timeout_ms=PROBE_MS)
        except DlogError:
            await asyncio.sleep(0.01)
            continue
        try:
            while True:
                answer = await connection.call(request, CreateTopicsResponse, timeout_ms=2 * PROBE_MS)
                if answer.topics[0].error_code == 0:
                    return
        except DlogError:
            continue
        finally:
            connection.close()
            await connection.wait_closed()


async def _strike(cluster: DevCluster, stream: AdminStream, number: int) -> float:
    """One fault; how long no controller was active, as the other brokers' clients see it."""
    broker = await asyncio.to_thread(active_controller, cluster)
    others = [address_of(each["client"]) for each in cluster.ready()["brokers"] if each["id"] != broker["id"]]
    kind = signal.SIGKILL if number % 2 == 0 else signal.SIGSTOP
    os.kill(broker["pid"], kind)
    began = time.monotonic()
    probes = [asyncio.create_task(somebody_is_in_charge(address)) for address in others]
    done, _ = await asyncio.wait(probes, timeout=TIMEOUT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    gap = time.monotonic() - began
    assert done, "nobody took charge"
    for probe in probes:
        probe.cancel()
    await asyncio.gather(*probes, return_exceptions=True)
    if kind == signal.SIGSTOP:
        os.kill(broker["pid"], signal.SIGCONT)
    await asyncio.to_thread(_wait_until_all_serve, cluster)
    return gap


def _wait_until_all_serve(cluster: DevCluster) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        try:
            brokers = cluster.ready()["brokers"]
            for broker in brokers:
                os.kill(broker["pid"], 0)  # the ready file may still have the one that was killed
            if all(metrics(broker)["dlog_broker_fenced"] == 0 for broker in brokers):
                return
        except OSError:
            pass
        time.sleep(0.05)
    pytest.fail("a broker did not come back")


async def _story(cluster: DevCluster) -> tuple[AdminStream, list[float], list[dict[str, Seen]]]:
    addresses = [address_of(broker["client"]) for broker in cluster.ready()["brokers"]]
    stream = AdminStream(addresses, seed=4)
    workers = [asyncio.create_task(stream.work(f"w{number}")) for number in range(3)]
    gaps = []
    for number in range(FAULTS):
        seen = len(stream.acknowledged)
        while len(stream.acknowledged) < seen + 10:
            await asyncio.sleep(0.01)
        gaps.append(await _strike(cluster, stream, number))
    stream.stop()
    await asyncio.gather(*workers)
    return stream, gaps, [await look(address) for address in addresses]


def test_what_is_acknowledged_stays_while_controllers_are_killed_and_stopped(tmp_path: Path) -> None:
    with DevCluster(tmp_path / "ready.json", "--brokers", "3", "--port", "0") as cluster:
        stream, gaps, views = asyncio.run(_story(cluster))
        done = len(stream.acknowledged)
        print(
            f"{FAULTS} faults, {done} changes acknowledged; without a controller "
            f"p50 {statistics.median(gaps):.2f} s, p99 {sorted(gaps)[-1 - len(gaps) // 100]:.2f} s, "
            f"worst {max(gaps):.2f} s"
        )
        assert done > FAULTS, "hardly anything was asked of the controller meanwhile"
        for view in views:
            assert not problems(stream.topics, view)
        assert views[0] == views[1] == views[2], "the brokers do not agree"
        assert statistics.median(gaps) < 10, "failing over takes for ever"
        assert cluster.stop() == 0, cluster.lines


def test_no_election_without_a_fault_while_the_machine_is_busy(tmp_path: Path) -> None:
    """Every core has more than enough to do, and so have the brokers: nobody thinks that a leader died."""
    spin = f"import os\nwhile os.getppid() == {os.getpid()}: sum(range(20000))"
    with DevCluster(tmp_path / "ready.json", "--brokers", "3", "--port", "0") as cluster:
        brokers = cluster.ready()["brokers"]
        controller = active_controller(cluster)["id"]
        before = [metrics(broker)["dlog_raft_term"] for broker in brokers]
        busy = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(os.cpu_count() or 2)]
        try:
            done = asyncio.run(_busy_stream(cluster, CALM_SECONDS))
            after = [metrics(broker)["dlog_raft_term"] for broker in brokers]
        finally:
            for process in busy:
                process.kill()
                process.wait()
        print(f"{CALM_SECONDS} s with every core saturated: {done} changes, terms {before} -> {after}")
        assert before == after
        assert active_controller(cluster)["id"] == controller
        assert cluster.stop() == 0, cluster.lines
    assert done > 0, "nothing was asked of the controller meanwhile"


async def _busy_stream(cluster: DevCluster, seconds: int) -> int:
    stream = AdminStream([address_of(broker["client"]) for broker in cluster.ready()["brokers"]], seed=5)
    workers = [asyncio.create_task(stream.work(f"w{number}")) for number in range(3)]
    await asyncio.sleep(seconds)  # the test is that nothing happens meanwhile
    stream.stop()
    await asyncio.gather(*workers)
    return len(stream.acknowledged)


@pytest.mark.parametrize(
    ("history", "seen", "says"),
    [
        (History(1, "ok"), None, "not there"),
        (History(1, "ok", "ok"), Seen(1, (0,), 1_000_000), "it is there"),
        (History(2, "ok"), Seen(1, (0,), 1_000_000), "half"),
        (History(1, "ok", altered=[(5, "ok")]), Seen(1, (0,), 1_000_000), "setting"),
        (History(1, "refused"), Seen(1, (0,), 1_000_000), "refused"),
    ],
)
def test_the_judge_can_find_each_kind_of_wrong(history: History, seen: Seen | None, says: str) -> None:
    (problem,) = problems({"t": history}, {} if seen is None else {"t": seen})
    assert says in problem


def test_the_judge_lets_pass_what_nobody_can_know() -> None:
    histories = {
        "a": History(1, "unknown"),
        "b": History(1, "unknown"),
        "c": History(1, "ok", "unknown"),
        "d": History(1, "ok", altered=[(5, "ok"), (6, "unknown")]),
    }
    seen = {
        "b": Seen(1, (0,), 1_000_000),
        "c": Seen(2, (0,), 1_000_000),
        "d": Seen(3, (0,), 6),
    }
    assert not problems(histories, seen)
