"""Topics that can be used at once: set-up ends when every partition has a leader that answers."""

import asyncio
import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from distributedlog.client.admin.admin import Admin, NewTopic
from distributedlog.client.offset_specs import LATEST
from distributedlog.model.ids import TopicPartition

IN_SYNC_SECONDS_MAX: Final = 120.0
_NUMBERS: Final = itertools.count(1)


async def create_with_leaders(admin: Admin, topics: Iterable[NewTopic]) -> None:
    """A controller acknowledges a topic before brokers have heard of it, and a broker tells clients who leads
    before it leads itself.  So each leader is asked for the end of its log, which only a leader knows; the
    client asks again while it hears NOT_LEADER_OR_FOLLOWER, as long as one call may take."""
    for topic in topics:
        await admin.create_topic(topic)
        places = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
        await admin.list_offsets(dict.fromkeys(places, LATEST))


def make_topics(bootstrap: str, *topics: NewTopic) -> None:
    async def make() -> None:
        async with Admin.connect(bootstrap) as admin:
            await create_with_leaders(admin, topics)

    asyncio.run(make())


def await_full_isr(bootstrap: str, *topics: str) -> None:
    """Waits until every replica is in sync, so that nobody who catches up is measured as well."""

    async def wait() -> None:
        async with asyncio.timeout(IN_SYNC_SECONDS_MAX), Admin.connect(bootstrap) as admin:
            while any(
                partition.is_under_replicated
                for view in await admin.describe_topics(topics)
                for partition in view.partitions
            ):
                await asyncio.sleep(0.2)

    asyncio.run(wait())


def delete_topics(bootstrap: str, *names: str) -> None:
    async def delete() -> None:
        async with Admin.connect(bootstrap) as admin:
            for error in (await admin.delete_topics(names)).values():
                if error is not None:
                    raise error

    asyncio.run(delete())


def leader_ports(bootstrap: str, topic: str) -> tuple[int, ...]:
    """The ports at which the partitions of a topic are led, in their order."""

    async def look() -> tuple[int, ...]:
        async with Admin.connect(bootstrap) as admin:
            (view,) = await admin.describe_topics([topic])
            brokers = admin.cluster.view.brokers
            return tuple(brokers[each.leader_id].address.port for each in view.partitions)

    return asyncio.run(look())


@contextmanager
def topic_on(
    bootstrap: str,
    prefix: str,
    partitions: int,
    configs: Mapping[str, str] | None = None,
    *,
    replication_factor: int = 1,
) -> Iterator[str]:
    """A topic for the length of a block: a case that fails leaves none behind.  Its name was never used."""
    name = f"{prefix}-{next(_NUMBERS)}"
    make_topics(bootstrap, NewTopic(name, partitions, replication_factor, configs or {}))
    try:
        yield name
    finally:
        delete_topics(bootstrap, name)
