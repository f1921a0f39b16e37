"""The exactly-once sink played without Spark, on one broker and on three: what is seen, skipped, fenced."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from distributedlog.cli.main import root
from distributedlog.client.admin.admin import NewTopic
from distributedlog.client.errors import code_of
from distributedlog.client.offset_specs import Isolation
from distributedlog.client.sinks import offers_sinks
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    DlogError,
    InvalidRequestError,
    InvalidTransactionStateError,
    ProducerFencedError,
)
from distributedlog.testing.cluster import TestCluster
from tests.bench.topics import make_topics
from tests.system.transactions.sink_driver import SinkDriver, driving

PARTITIONS = 2
LIMIT_S = 120


ON_ONE = pytest.mark.parametrize("cluster", [1], indirect=True, ids=["one-broker"])
ON_BOTH = pytest.mark.parametrize("cluster", [1, 3], indirect=True, ids=["one-broker", "three-brokers"])


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[TestCluster]:
    with TestCluster(request.param) as cluster:
        names = ("losers", "zombie", "stopped", "long", "killed")
        make_topics(cluster.bootstrap, *(NewTopic(name, PARTITIONS) for name in names))
        yield cluster


async def coordinator_of(driver: SinkDriver) -> tuple[str, int]:
    connection = await driver.sink._coordinator.connection()
    host, _, port = connection.label.rpartition(":")
    return host, int(port)


async def kill_coordinator(cluster: TestCluster, driver: SinkDriver) -> None:
    host, port = await driver.cluster.retrying(lambda: coordinator_of(driver))
    (broker,) = [each for each in cluster.brokers if each.address == f"{host}:{port}"]
    broker.kill()


def check_commands(bootstrap: str) -> None:
    """What `dlog txn` shows of an open batch."""
    listed = json.loads(dlog("txn", "list", "--state", "Ongoing", "-o", "json", bootstrap=bootstrap))
    assert (listed["transactional_id"], listed["query"], listed["batch"]) == (
        "dlog.sink/q-losers",
        "q-losers",
        1,
    )
    shown = dlog("txn", "describe", "dlog.sink/q-losers", bootstrap=bootstrap)
    found = dict(line.split(maxsplit=1) for line in shown.splitlines())
    assert (found["query"], found["batch"], found["committed_batch"]) == ("q-losers", "1", "0")
    assert [each.split(":")[0] for each in found["attempts"].split(", ")] == ["0-0", "0-1", "1-0", "1-1"]
    assert found["partitions"] == "losers-0, losers-1"


def dlog(*arguments: str, bootstrap: str) -> str:
    outcome = CliRunner().invoke(root, [*arguments, "--bootstrap", bootstrap])
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


@ON_BOTH
def test_losers_are_never_seen_and_a_batch_that_is_played_again_is_skipped(cluster: TestCluster) -> None:
    async def story() -> None:
        async with driving(cluster.bootstrap, "q-losers", "losers") as driver:
            assert await offers_sinks(driver.cluster)
            for batch_id in range(2):
                token = await driver.sink.token()
                winners = []
                for task in range(2):
                    rows = {at: [f"{batch_id}.{task}.{at}"] for at in range(PARTITIONS)}
                    await driver.attempt(token, batch_id, f"{task}-0", rows)  # it loses
                    winners.append(await driver.attempt(token, batch_id, f"{task}-1", rows))
                assert len(await driver.read(PARTITIONS)) == batch_id * 4
                if batch_id == 1:
                    await asyncio.to_thread(check_commands, cluster.bootstrap)
                seen = await driver.sink.describe()
                assert (seen.state, seen.batch_id, len(seen.attempts)) == ("Ongoing", batch_id, 4)
                for _ in range(2):  # the second answers the same
                    await driver.end(token, batch_id, *winners)
                assert len(await driver.read(PARTITIONS)) == (batch_id + 1) * 4
            assert len(await driver.read(PARTITIONS, Isolation.READ_UNCOMMITTED)) == 16
            token = await driver.sink.token()
            assert await driver.attempt(token, 1, "0-0", {0: ["again"]}) is None
            with pytest.raises(InvalidTransactionStateError, match="the checkpoint is older than the sink"):
                await driver.sink.join(token, 0, "0-0")
            assert (await driver.sink.describe()).pooled_count == 4, "ids are leased again"
            expected = [f"{b}.{t}.{p}" for b in range(2) for t in range(2) for p in range(PARTITIONS)]
            assert await driver.read(PARTITIONS) == sorted(expected)

    asyncio.run(asyncio.wait_for(story(), LIMIT_S))


@ON_ONE
def test_a_zombie_driver_is_fenced_and_so_are_its_attempts(cluster: TestCluster) -> None:
    async def story() -> None:
        async with (
            driving(cluster.bootstrap, "q-zombie", "zombie") as old,
            driving(cluster.bootstrap, "q-zombie", "zombie") as new,
        ):
            first = await old.sink.token()
            with pytest.raises(InvalidRequestError, match="never given out"):
                await old.sink.join(2**63 - 1, 0, "0-0")  # it would fence everybody for good
            lease = await old.attempt(first, 0, "0-0", {0: ["old"]})
            second = await new.sink.token()
            assert second > first
            winner = await new.attempt(second, 0, "0-0", {0: ["new"]})
            assert lease is not None
            for refused in (
                old.sink.join(first, 0, "0-1"),
                old.sink.heartbeat(first, 0),
                old.end(first, 0, lease),
            ):
                with pytest.raises(ProducerFencedError):
                    await refused
            for partition in range(PARTITIONS):  # where it has written, and where it has not
                with pytest.raises(DlogError) as caught:
                    await old.write(lease, {partition: ["late"]})
                assert code_of(caught.value) is ErrorCode.INVALID_PRODUCER_EPOCH
            await new.end(second, 0, winner)
            await old.sink.abort(first)
            assert await new.read(PARTITIONS) == ["new"]

    asyncio.run(asyncio.wait_for(story(), LIMIT_S))


@ON_BOTH
def test_a_driver_that_was_stopped_and_wakes_as_a_zombie_changes_nothing(cluster: TestCluster) -> None:
    async def take_over() -> None:
        async with driving(cluster.bootstrap, "q-stopped", "stopped") as new:
            token = await new.sink.token()
            await new.end(token, 0, await new.attempt(token, 0, "0-0", {0: ["new"]}))
            assert await new.read(PARTITIONS) == ["new"]

    async def look() -> None:
        async with driving(cluster.bootstrap, "q-stopped", "stopped") as reading:
            assert await reading.read(PARTITIONS) == ["new"]
            assert (await reading.sink.describe()).state == "CompleteCommit"

    command = [sys.executable, "-m", "tests.system.transactions.sink_process"]
    old = subprocess.Popen(
        [*command, cluster.bootstrap, "q-stopped", "stopped"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert old.stdout is not None
        assert old.stdout.readline() == "written\n"
        old.send_signal(signal.SIGSTOP)
        asyncio.run(asyncio.wait_for(take_over(), LIMIT_S))
        old.send_signal(signal.SIGCONT)
        said, _ = old.communicate("\n", LIMIT_S)  # it goes on as if nothing had been
    finally:
        old.kill()
        old.wait()
    fenced, late = "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"
    assert json.loads(said) == {
        "heartbeat": fenced,
        "write": late,
        "write elsewhere": late,
        "end": fenced,
        "join": fenced,
    }
    asyncio.run(asyncio.wait_for(look(), LIMIT_S))


@ON_ONE
def test_heartbeats_keep_a_batch_open_for_longer_than_its_timeout(cluster: TestCluster) -> None:
    timeout_ms = 1_500

    async def story() -> None:
        async with driving(cluster.bootstrap, "q-long", "long") as driver:
            token = await driver.sink.token()
            lease = await driver.attempt(token, 0, "0-0", {0: ["kept"]}, timeout_ms)
            async with driver.sink.heartbeats(token, 0, timeout_ms=timeout_ms) as beating:
                begun_ms = driver.cluster.clock.monotonic_ms()
                while driver.cluster.clock.monotonic_ms() - begun_ms < 2 * timeout_ms:
                    await asyncio.wait({beating}, timeout=0.1)
                assert not beating.done()
            await driver.end(token, 0, lease)
            token = await driver.sink.token()
            lease = await driver.attempt(token, 1, "0-0", {0: ["given up"]}, timeout_ms)
            while (await driver.sink.describe()).state not in ("PrepareAbort", "CompleteAbort"):
                await asyncio.sleep(0.1)
            with pytest.raises(ProducerFencedError):
                await driver.end(token, 1, lease)
            assert await driver.read(PARTITIONS) == ["kept"]

    asyncio.run(asyncio.wait_for(story(), LIMIT_S))


@ON_BOTH
def test_a_coordinator_that_is_killed_before_and_after_the_decision(cluster: TestCluster) -> None:
    async def story() -> None:
        async with driving(cluster.bootstrap, "q-killed", "killed") as driver:
            for batch_id in range(2):
                token = await driver.sink.token()
                rows = {at: [f"{batch_id}.{at}"] for at in range(PARTITIONS)}
                await driver.attempt(token, batch_id, "0-0", rows)
                winner = await driver.attempt(token, batch_id, "0-1", rows)
                if batch_id == 0:
                    await kill_coordinator(cluster, driver)
                    await driver.end(token, batch_id, winner)
                else:
                    ending = asyncio.create_task(driver.end(token, batch_id, winner))
                    async with driving(cluster.bootstrap, "q-killed", "killed") as watcher:
                        while (await watcher.sink.describe()).committed_batch_id < batch_id:
                            await asyncio.sleep(0)
                        await kill_coordinator(cluster, watcher)
                    await ending
                expected = [f"{b}.{p}" for b in range(batch_id + 1) for p in range(PARTITIONS)]
                assert await driver.read(PARTITIONS) == expected
                assert await driver.sink.join(await driver.sink.token(), batch_id, "0-0") is None

    asyncio.run(asyncio.wait_for(story(), LIMIT_S))
