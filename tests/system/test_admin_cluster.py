"""Administration of three real nodes: whoever is asked finds the quorum's leader, and all obey a quota."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from distributedlog.client.admin.admin import Admin, NewTopic
from distributedlog.client.admin.cluster import QuorumView
from distributedlog.client.admin.quotas import QuotaChange, QuotaEntity
from distributedlog.client.consumer import Consumer
from distributedlog.client.producer import Producer
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition
from distributedlog.records.record import Record
from tests.system.dev_cluster import DevCluster

TIMEOUT_SECONDS = 60
TIMEOUT_MS = 20_000
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def run(story: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await story

    asyncio.run(bounded())


async def until(look: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    """Asks until it is so; the story's own time limit ends it."""
    while not await look():
        await asyncio.sleep(0.05)


async def ask_each(brokers: list[dict[str, Any]]) -> list[QuorumView]:
    """What each broker says of the quorum, asked alone."""
    views = []
    for broker in brokers:
        async with Admin.connect(broker["client"]) as admin:
            views.append(await admin.describe_quorum())
    return views


def test_all_obey_a_quota_and_the_quorum_is_the_same_whoever_is_asked(tmp_path: Path) -> None:
    async def story(brokers: list[dict[str, Any]]) -> None:
        await obey(brokers)
        await agree_and_tell_who_is_gone(brokers)

    arguments = ("--port", "0", "--brokers", "3", "--no-restart")
    with DevCluster(tmp_path / "ready.json", *arguments) as cluster:
        run(story(cluster.ready()["brokers"]))


async def obey(brokers: list[dict[str, Any]]) -> None:
    """Waits as the broker says: ten seconds' worth of each broker's responses is free, and the next request
    waits for the rest."""
    entity, limit = QuotaEntity(client_id=""), 10_000
    loop = asyncio.get_running_loop()
    async with Admin.connect(brokers[0]["client"]) as admin:
        await admin.create_topic(NewTopic("orders", 3, 1))
        async with Producer(admin.cluster) as producer:
            for partition in range(3):
                sent = await producer.send("orders", Record(b"x" * (10 * limit + 2_000)), partition)
                await sent.wait()
        await admin.alter_quotas([QuotaChange(entity, {"consumer_byte_rate": limit})])
        for broker in brokers:
            async with Admin.connect(broker["client"]) as other:

                async def is_known(other: Admin = other) -> bool:
                    return await other.describe_quotas() == {entity: {"consumer_byte_rate": limit}}

                await until(is_known)
        leaders = set()
        for partition in range(3):
            began_s = loop.time()
            place = TopicPartition("orders", partition)
            leader = (await admin.cluster.partition(place)).leader_id
            async with Consumer(admin.cluster) as consumer:
                consumer.seek({place: 0})
                assert await consumer.poll(TIMEOUT_MS)
            await admin.describe_log_dirs([leader])  # on the connection that is muted
            assert loop.time() - began_s >= 0.2
            leaders.add(leader)
        assert leaders == {1, 2, 3}


async def agree_and_tell_who_is_gone(brokers: list[dict[str, Any]]) -> None:
    views = await ask_each(brokers)
    assert len({(view.leader_id, view.leader_epoch) for view in views}) == 1
    for view in views:
        assert [voter.node_id for voter in view.voters] == [1, 2, 3]
        assert view.observers == ()
    leader_id = views[0].leader_id
    gone = next(broker for broker in brokers if broker["id"] != leader_id)
    left = [broker for broker in brokers if broker is not gone]
    os.kill(gone["pid"], signal.SIGKILL)
    async with Admin.connect(",".join(broker["client"] for broker in left)) as admin:
        await admin.create_topic(NewTopic("meanwhile", 1, 1))
        view = await admin.describe_quorum()
        voters = {voter.node_id: voter for voter in view.voters}
        assert view.lag(voters[gone["id"]]) > 0
        assert voters[gone["id"]].last_fetch_ms < voters[leader_id].last_fetch_ms

        async def others_have_caught_up() -> bool:
            fresh = await admin.describe_quorum()
            return all(fresh.lag(each) == 0 for each in fresh.voters if each.node_id != gone["id"])

        await until(others_have_caught_up)
        directories = await admin.describe_log_dirs([broker["id"] for broker in brokers])
        silent = {node_id for node_id, told in directories.items() if isinstance(told, DlogError)}
        assert silent == {gone["id"]}
