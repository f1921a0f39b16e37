"""What the consumer decides by itself, without a broker."""

import asyncio

import pytest

from distributedlog import aio
from distributedlog.client.faces.records import ConsumerRecord
from distributedlog.client.groups.membership import Change
from distributedlog.client.metadata import Cluster
from tests.unit.client.stage import run


def test_a_commit_that_is_due_during_a_join_does_not_hold_iteration_up() -> None:
    """A join may take minutes; nothing is committed before its end, so iteration must not wait for that."""

    async def story() -> None:
        consumer = aio.Consumer(
            "127.0.0.1:1",
            group_id="g",
            topics=["t"],
            assignor="cooperative-sticky",
            auto_commit_interval_ms=0,
        )
        record = ConsumerRecord("t", 0, 5, 0, None, b"v")
        consumer._pending.records = [record]

        async def joining() -> Change | None:
            await asyncio.Event().wait()
            return None

        consumer._joining = join = asyncio.create_task(joining())
        assert consumer.next_pending() == record
        join.cancel()
        await asyncio.gather(join, return_exceptions=True)
        consumer._joining = None
        await consumer.close()

    run(story())


def test_a_consumer_whose_close_is_cancelled_leaves_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Cluster] = []
    close = Cluster.close

    async def note(cluster: Cluster) -> None:
        closed.append(cluster)
        await close(cluster)

    monkeypatch.setattr(Cluster, "close", note)

    async def story() -> None:
        consumer = aio.Consumer("127.0.0.1:1", group_id="g", topics=["t"])
        assert consumer._member is not None
        monkeypatch.setattr(consumer._member, "close", asyncio.Event().wait)  # nobody answers the farewell
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert closed == [consumer._cluster, consumer._group_cluster]

    run(story())
