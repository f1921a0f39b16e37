"""`dlog group exporter` as a process, beside a broker that runs, and one that is gone."""

import asyncio
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from distributedlog.broker.observability.metrics import Histogram
from distributedlog.cli.group.lag_export import LagExport
from distributedlog.client.admin.admin import Admin
from tests.system.server_process import DLOG, ServerProcess

TOPIC, PARTITIONS, RECORDS = "orders", 2, 10
SETTINGS = {"num.partitions": PARTITIONS, "offsets.topic.num.partitions": 4}
TIMEOUT_SECONDS = 60.0


def commit(bootstrap: str, group: str, offsets: dict[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    places = [TopicPartition(TOPIC, partition, offset) for partition, offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Ten records in each of two partitions, a minute old, and two groups that read some."""
    with ServerProcess(Path(tmp_path_factory.mktemp("exporter")) / "node", SETTINGS) as node:
        address: str = node.facts["client"]
        producer = Producer({"bootstrap.servers": address})
        minute_ago_ms = int(time.time() * 1000) - 60_000
        for partition in range(PARTITIONS):
            for _ in range(RECORDS):
                producer.produce(TOPIC, b"v", partition=partition, timestamp=minute_ago_ms)
        assert producer.flush(30) == 0
        commit(address, "billing", {0: 4, 1: 10})
        commit(address, "shipping", {0: 0})
        yield node


def scrape(address: str) -> dict[str, float]:
    with urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS) as answer:
        lines = answer.read().decode().splitlines()
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")
    }


def scraped(address: str, up: float) -> dict[str, float]:
    """Returns what is scraped as soon as a round has succeeded, or failed."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while (found := scrape(address))["dlog_group_exporter_up"] != up or not found[
        "dlog_group_exporter_round_seconds"
    ]:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def labelled(name: str, group: str, partition: int) -> str:
    return f'{name}{{group="{group}",partition="{partition}",topic="{TOPIC}"}}'


def test_prometheus_is_told_and_a_cluster_that_is_gone_leaves_nothing_old(node: ServerProcess) -> None:
    arguments = ["group", "exporter", "--listen", "127.0.0.1:0", "--interval", "1", "--timeout", "2"]
    process = subprocess.Popen(
        [*DLOG, *arguments, "-b", node.facts["client"]],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        found = scraped(address, up=1)
        assert found[labelled("dlog_group_lag", "billing", 0)] == 6
        assert found[labelled("dlog_group_lag", "billing", 1)] == 0
        assert found[labelled("dlog_group_offset", "billing", 0)] == 4
        assert found[labelled("dlog_group_end_offset", "shipping", 0)] == RECORDS
        assert found[labelled("dlog_group_lag", "shipping", 0)] == RECORDS
        assert 60 <= found[labelled("dlog_group_lag_seconds", "billing", 0)] < 3_600
        assert found[labelled("dlog_group_lag_seconds", "billing", 1)] == 0
        assert found['dlog_group_lag_exact{group="billing"}'] == 1
        ready = address.replace("/metrics", "/health/ready")
        assert urllib.request.urlopen(ready, timeout=TIMEOUT_SECONDS).status == 200

        node.stop(signal.SIGKILL)
        found = scraped(address, up=0)
        assert not [name for name in found if name.startswith("dlog_group_lag")]
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(ready, timeout=TIMEOUT_SECONDS)
        node.restart()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
        assert process.returncode == 0, errors
        assert "could not be asked" in errors
    finally:
        process.kill()
        process.communicate()


def families(node: ServerProcess, **bounds: int) -> dict[str, dict[str, float]]:
    """Family → its samples, by the group or whatever else comes first among their labels."""

    async def look() -> dict[str, dict[str, float]]:
        async with Admin.connect(node.facts["client"]) as admin:
            export = LagExport(admin, (), **bounds)
            await export.refresh()
            assert export.failure is None
            return {
                family.name: {
                    next(iter(each.labels.values()), ""): each.value
                    for each in family.samples
                    if not isinstance(each.value, Histogram)
                }
                for family in export.families()
            }

    return asyncio.run(look())


def test_what_is_beyond_the_bounds_is_left_out_and_counted(node: ServerProcess) -> None:
    few = families(node, groups_max=1)
    assert few["dlog_group_lag"].keys() == {"billing"}
    assert few["dlog_group_exporter_left_out"] == {"groups": 1, "partitions": 0}
    narrow = families(node, partitions_max=1)
    assert narrow["dlog_group_exporter_left_out"] == {"groups": 0, "partitions": 2}
    assert narrow["dlog_group_lag"] == {"billing": 6}


def test_without_bytes_to_read_offsets_are_counted_and_it_is_said(node: ServerProcess) -> None:
    found = families(node, counted_bytes_max=0)
    assert found["dlog_group_lag"]["shipping"] == RECORDS
    assert found["dlog_group_lag_exact"]["shipping"] == 0
    assert "shipping" not in found["dlog_group_lag_seconds"], "not known"
