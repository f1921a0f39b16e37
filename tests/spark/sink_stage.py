"""What the tests of the sink share: a broker, topics, and what is in them."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from distributedlog.client.addresses import parse_bootstrap
from distributedlog.client.admin.blocking import BlockingAdmin
from distributedlog.client.admin.topics import NewTopic
from distributedlog.client.consumer import Consumer
from distributedlog.client.metadata import Cluster
from distributedlog.client.offset_specs import BEGINNING
from distributedlog.client.producer import Producer
from distributedlog.model.ids import TopicPartition
from distributedlog.records.layout import Record
from tests.system.server_process import ServerProcess

TIMEOUT_MS = 30_000


class Stage:
    """One broker; topics are made where a test asks for them, and read back whole."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server

    @property
    def bootstrap(self) -> str:
        return str(self.server.facts["client"])

    @property
    def data_directory(self) -> str:
        return str(self.server.facts["data_dir"])

    def options(self, **more: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, **more}

    def create(self, name: str, partitions: int, **configs: str) -> str:
        configured = {setting.replace("_", "."): value for setting, value in configs.items()}
        with BlockingAdmin(self.bootstrap) as admin:
            admin.create_topic(NewTopic(name, partitions, configs=configured))
        return name

    def fill(self, topic: str, values: Sequence[bytes]) -> None:
        """One after the other over all partitions; acknowledged on return."""

        async def send() -> None:
            async with Cluster(parse_bootstrap(self.bootstrap)) as cluster, Producer(cluster) as producer:
                count = len((await cluster.topic(topic)).partitions)
                for number, value in enumerate(values):
                    await producer.send(topic, Record(value), number % count)

        asyncio.run(send())

    def has(self, topic: str) -> bool:
        with BlockingAdmin(self.bootstrap) as admin:
            return topic in {view.name for view in admin.list_topics()}

    def ends(self, topic: str) -> dict[int, int]:
        with BlockingAdmin(self.bootstrap) as admin:
            (view,) = admin.describe_topics([topic])
            return {
                partition.partition: found.end for partition, found in admin.offset_ranges([view]).items()
            }

    def read(self, topic: str) -> dict[int, list[Record]]:
        """Every record there is now, by partition."""
        return asyncio.run(self._read(topic, self.ends(topic)))

    async def _read(self, topic: str, ends: Mapping[int, int]) -> dict[int, list[Record]]:
        found: dict[int, list[Record]] = {partition: [] for partition in ends}
        places = {TopicPartition(topic, partition): BEGINNING for partition, end in ends.items() if end}
        async with Cluster(parse_bootstrap(self.bootstrap)) as cluster, Consumer(cluster) as consumer:
            await consumer.assign(places)
            while any(consumer.positions[each] < ends[each.partition] for each in places):
                fetched = await consumer.poll(TIMEOUT_MS)
                assert fetched, f"{topic} went silent"
                for part in fetched:
                    found[part.partition.partition] += part.records
        return found


@contextmanager
def stage(directory: Path, **settings: object) -> Iterator[Stage]:
    with ServerProcess(directory, {"num.partitions": 3, **settings}) as server:
        yield Stage(server)
