"""Topics to read in tests: made, filled by a real client, cut short and deleted."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import count
from time import monotonic, sleep
from typing import Any

import confluent_kafka

from distributedlog.client.addresses import parse_bootstrap
from distributedlog.client.admin.admin import Admin
from distributedlog.client.admin.group_offsets import GroupOffsets
from distributedlog.client.admin.topics import NewTopic
from distributedlog.client.metadata import Cluster
from distributedlog.model.ids import TopicPartition

TIMEOUT_SECONDS = 60.0
_numbers = count(1)


class Topics:
    """The topics of one broker.  Names are new each time, so that tests do not see each other's."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "log_level": 0})

    def options(self, **more: str) -> dict[str, str]:
        """Those of a reader; where a name has a dot, it is written with two underscores."""
        given = {name.replace("__", "."): value for name, value in more.items()}
        return {"kafka.bootstrap.servers": self.bootstrap, **given}

    def new_name(self, word: str) -> str:
        return f"{word}-{next(_numbers)}"

    def create(self, word: str, partitions: int = 1, **configs: str) -> str:
        name = self.new_name(word)
        self.create_named(name, partitions, **configs)
        return name

    def create_named(self, name: str, partitions: int = 1, **configs: str) -> None:
        configured = {setting.replace("_", "."): value for setting, value in configs.items()}

        async def make(admin: Admin) -> None:
            await admin.create_topic(NewTopic(name, partitions, configs=configured))

        self._administer(make)

    def add_partitions(self, name: str, count_in_all: int) -> None:
        async def add(admin: Admin) -> None:
            assert await admin.create_partitions({name: count_in_all}) == {name: None}

        self._administer(add)

    def delete(self, name: str) -> None:
        async def drop(admin: Admin) -> None:
            assert await admin.delete_topics([name]) == {name: None}

        self._administer(drop)

    def delete_records(self, name: str, partition: int, before: int) -> None:
        async def cut(admin: Admin) -> None:
            await admin.delete_records({TopicPartition(name, partition): before})

        self._administer(cut)

    def _administer(self, work: Callable[[Admin], Awaitable[None]]) -> None:
        async def run() -> None:
            admin = Admin.connect(self.bootstrap)
            try:
                await work(admin)
            finally:
                await admin.close()

        asyncio.run(run())

    def produce(self, name: str, values: Iterable[bytes | None], partition: int = 0) -> None:
        """Each is acknowledged when this returns."""
        for value in values:
            self.send(name, value=value, partition=partition)
        self.flush()

    def send(self, name: str, **record: Any) -> None:
        """It is on its way; `flush` waits for it."""
        self._producer.produce(name, **record)

    def poll(self) -> None:
        """What is acknowledged leaves the queue: for those who send much."""
        self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(TIMEOUT_SECONDS) == 0

    def produce_with(self, name: str, settings: Mapping[str, str], **record: Any) -> None:
        """One record, by a producer with settings of its own."""
        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap, **settings})
        producer.produce(name, **record)
        assert producer.flush(TIMEOUT_SECONDS) == 0

    def group_positions(self, group: str) -> dict[TopicPartition, int]:
        async def look() -> dict[TopicPartition, int]:
            async with Cluster(parse_bootstrap(self.bootstrap)) as cluster:
                found = await GroupOffsets(cluster, group).fetch()
                return {partition: each.offset for partition, each in found.items()}

        return asyncio.run(look())


def until(is_so: Callable[[], bool], what: str, seconds: float = TIMEOUT_SECONDS) -> None:
    """Waits for something that another process does."""
    deadline = monotonic() + seconds
    while not is_so():
        assert monotonic() < deadline, f"{what} did not happen within {seconds} s"
        sleep(0.02)
