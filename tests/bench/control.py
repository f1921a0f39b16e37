"""The control plane: how soon a node serves, and what 10,000 partitions cost three of them.

Start is measured from before the interpreter is started until the ready report is read.  10,000 partitions
are 100 topics of 100, one replica each, spread over three brokers on this machine.
"""

import asyncio
import os
import signal
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from distributedlog.client.admin.admin import Admin, NewTopic
from tests.bench.figures import Figure, at_most, stopwatch
from tests.bench.harness import Bench
from tests.system.dev_cluster import DevCluster
from tests.system.server_process import ServerProcess
from tests.system.test_controller_failover import active_controller, address_of, somebody_is_in_charge

STARTS = 5
FAILOVERS = 5
TOPICS, PARTITIONS_EACH = 100, 100


def rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"process {pid} has no memory")


def starting() -> list[Figure]:
    """The first start makes the directory; the others are what people wait for again and again."""
    seconds = []
    with tempfile.TemporaryDirectory() as scratch:
        for _ in range(STARTS + 1):
            with stopwatch() as taken, ServerProcess(Path(scratch), {}) as node:
                seconds.append(taken())
                resident = rss_mb(node.facts["pid"])
                node.stop()
    return [
        at_most("one node: start to ready", statistics.median(seconds[1:]) * 1000, "ms", 300),
        at_most("one node, idle: resident memory", resident, "MB", 60),
    ]


async def _create_all(bootstrap: str) -> float:
    async with Admin.connect(bootstrap) as admin:
        started = time.perf_counter()
        for number in range(TOPICS):
            await admin.create_topic(NewTopic(f"t{number}", PARTITIONS_EACH, 1))
        return time.perf_counter() - started


async def _all_led(bootstrap: str) -> int:
    async with Admin.connect(bootstrap) as admin:
        topics = await admin.list_topics()
        return sum(partition.leader_id >= 0 for topic in topics for partition in topic.partitions)


async def _failover(cluster: DevCluster) -> float:
    broker = active_controller(cluster)
    others = [address_of(each["client"]) for each in cluster.ready()["brokers"] if each["id"] != broker["id"]]
    os.kill(broker["pid"], signal.SIGKILL)
    with stopwatch() as taken:
        probes = [asyncio.create_task(somebody_is_in_charge(address)) for address in others]
        await asyncio.wait(probes, return_when=asyncio.FIRST_COMPLETED)
        seconds = taken()
    for probe in probes:
        probe.cancel()
    await asyncio.gather(*probes, return_exceptions=True)
    return seconds


def _restarted(cluster: DevCluster, before: dict[str, Any]) -> float:
    """Seconds from a kill until the broker serves again, without the second that `dlog dev` waits."""
    os.kill(before["pid"], signal.SIGKILL)
    with stopwatch() as taken:
        cluster.wait_for(f"node {before['id']} serves")
        return taken() - 1.0


def ten_thousand() -> list[Figure]:
    with tempfile.TemporaryDirectory() as scratch:
        ready = Path(scratch) / "ready.json"
        with DevCluster(ready, "--brokers", "3", "--port", "0", "--data-dir", f"{scratch}/data") as cluster:
            bootstrap = cluster.ready()["bootstrap"]
            empty = [rss_mb(pid) for pid in cluster.pids()]
            created = asyncio.run(_create_all(bootstrap))
            assert asyncio.run(_all_led(bootstrap)) == TOPICS * PARTITIONS_EACH
            full = [rss_mb(pid) for pid in cluster.pids()]
            failovers = []
            for _ in range(FAILOVERS):
                failovers.append(asyncio.run(_failover(cluster)))
                cluster.wait_for("serves on")
            plain = next(b for b in cluster.ready()["brokers"] if b != active_controller(cluster))
            restarted = _restarted(cluster, plain)
            stopwatch_started = time.perf_counter()
            cluster.stop()
            stopped = time.perf_counter() - stopwatch_started
    return [
        Figure("10,000 partitions: 100 topics created and acknowledged", created, "s"),
        Figure("10,000 partitions: a broker killed, until it serves again", restarted, "s"),
        at_most("10,000 partitions: controller killed, another acts", statistics.median(failovers), "s", 2),
        at_most("10,000 partitions: the same, worst", max(failovers), "s", 2),
        Figure("10,000 partitions: all three stopped cleanly", stopped, "s"),
        Figure("10,000 partitions: resident memory of a node more than empty", max(full) - min(empty), "MB"),
    ]  # fmt: skip


def run(bench: Bench) -> None:
    bench.case("one node", starting)
    bench.case("10,000 partitions", ten_thousand)
