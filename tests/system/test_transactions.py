"""Transactions with unmodified clients, on one broker and on three: commit, abort, fencing, offsets.

Every client speaks its own versions of the protocol; what it wrote is read by librdkafka, as committed and as
it stands.
"""

import asyncio
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Producer,
)
from confluent_kafka import TopicPartition as RdTopicPartition

from distributedlog.client.admin.admin import NewTopic
from tests.bench.topics import make_topics
from tests.system.dev_cluster import DevCluster
from tests.system.server_process import dlog

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of its own loading
    from kafka import KafkaProducer
    from kafka.errors import KafkaError as PyKafkaError
    from kafka.structs import OffsetAndMetadata
    from kafka.structs import TopicPartition as PyTopicPartition

TIMEOUT_S = 60.0
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:kafka.*")


class Transactional(Protocol):
    """A transactional producer of some client."""

    def begin(self) -> None: ...

    def send(self, topic: str, partition: int, value: str) -> None: ...

    def send_offset(self, topic: str, partition: int, offset: int, group: str) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class Confluent:
    refusals = (KafkaException,)

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._bootstrap = bootstrap
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0}
        )
        self._producer.init_transactions(TIMEOUT_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: str) -> None:
        failed: list[Any] = []
        self._producer.produce(
            topic, value, partition=partition, on_delivery=lambda error, _: failed.append(error)
        )
        self._producer.flush(TIMEOUT_S)
        (error,) = failed
        if error is not None:
            raise KafkaException(error)

    def send_offset(self, topic: str, partition: int, offset: int, group: str) -> None:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        try:
            position = [RdTopicPartition(topic, partition, offset)]
            metadata = consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction(position, metadata, TIMEOUT_S)
        finally:
            consumer.close()

    def commit(self) -> None:
        self._producer.commit_transaction(TIMEOUT_S)

    def abort(self) -> None:
        self._producer.abort_transaction(TIMEOUT_S)

    def close(self) -> None:
        del self._producer


class Aio:
    refusals = (AioKafkaError,)

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._runner = asyncio.Runner()

        async def start() -> AIOKafkaProducer:
            producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
            await producer.start()
            return producer

        try:
            self._producer = self._run(start())
        except BaseException:
            self._runner.close()
            raise

    def _run(self, what: Any) -> Any:
        return self._runner.run(asyncio.wait_for(what, TIMEOUT_S))

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, value: str) -> None:
        self._run(self._producer.send_and_wait(topic, value.encode(), partition=partition))

    def send_offset(self, topic: str, partition: int, offset: int, group: str) -> None:
        offsets = {TopicPartition(topic, partition): offset}
        self._run(self._producer.send_offsets_to_transaction(offsets, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        try:
            self._run(self._producer.stop())
        except AioKafkaError:
            pass  # a fenced producer says so once more
        finally:
            self._runner.close()


class KafkaPython:
    refusals = (PyKafkaError,)

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: str) -> None:
        self._producer.send(topic, value.encode(), partition=partition).get(TIMEOUT_S)

    def send_offset(self, topic: str, partition: int, offset: int, group: str) -> None:
        offsets = {PyTopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1)}
        self._producer.send_offsets_to_transaction(offsets, group)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=1)


CLIENTS: dict[str, Callable[[str, str], Any]] = {
    "confluent-kafka": Confluent,
    "aiokafka": Aio,
    "kafka-python": KafkaPython,
}
every_client = pytest.mark.parametrize("client", CLIENTS)


@pytest.fixture(scope="module", params=[1, 3], ids=["one", "three"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory: Path = tmp_path_factory.mktemp("transactions")
    arguments = ("--data-dir", directory / "data", "--brokers", request.param, "--port", 0)
    with DevCluster(directory / "ready", *arguments) as cluster:
        yield ",".join(broker["client"] for broker in cluster.ready()["brokers"])


def read(bootstrap: str, topic: str, partitions: int, isolation: str) -> list[str]:
    """What a consumer sees that reads each partition to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{topic}",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([RdTopicPartition(topic, at, OFFSET_BEGINNING) for at in range(partitions)])
        values: list[str] = []
        ended: set[int | None] = set()
        while len(ended) < partitions:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, "it has no end"
            if message.error() is not None:
                ended.add(message.partition())
            else:
                value = message.value()
                assert value is not None
                values.append(value.decode())
        return sorted(values)
    finally:
        consumer.close()


@every_client
def test_what_is_committed_is_read_and_what_is_aborted_is_not(bootstrap: str, client: str) -> None:
    topic = f"committed-{client}"
    make_topics(bootstrap, NewTopic(topic, partitions=2))
    producer: Transactional = CLIENTS[client](bootstrap, f"id-{client}")
    try:
        for number in range(6):
            producer.begin()
            for partition in (0, 1):
                producer.send(topic, partition, f"{number}-{partition}")
            producer.commit() if number % 2 == 0 else producer.abort()
    finally:
        producer.close()
    committed = sorted(f"{number}-{partition}" for number in (0, 2, 4) for partition in (0, 1))
    assert read(bootstrap, topic, 2, "read_committed") == committed
    everything = sorted(f"{number}-{partition}" for number in range(6) for partition in (0, 1))
    assert read(bootstrap, topic, 2, "read_uncommitted") == everything


@every_client
def test_a_second_producer_fences_the_first_and_aborts_its_transaction(bootstrap: str, client: str) -> None:
    topic = f"fenced-{client}"
    make_topics(bootstrap, NewTopic(topic, partitions=1))
    kind: Any = CLIENTS[client]
    first: Transactional = kind(bootstrap, f"fenced-{client}")
    first.begin()
    first.send(topic, 0, "of the first")
    second: Transactional = kind(bootstrap, f"fenced-{client}")
    try:
        second.begin()
        second.send(topic, 0, "of the second")
        with pytest.raises(kind.refusals):
            first.commit()
        second.commit()
    finally:
        second.close()
        first.close()
    assert read(bootstrap, topic, 1, "read_committed") == ["of the second"]


@every_client
def test_offsets_are_committed_with_the_transaction_or_not_at_all(bootstrap: str, client: str) -> None:
    topic, group = f"offsets-{client}", f"group-{client}"
    make_topics(bootstrap, NewTopic(topic, partitions=1))
    producer: Transactional = CLIENTS[client](bootstrap, f"offsets-{client}")
    try:
        producer.begin()
        producer.send(topic, 0, "with its offset")
        producer.send_offset(topic, 0, 7, group)
        producer.commit()
        assert committed_offset(bootstrap, topic, group) == 7
        producer.begin()
        producer.send_offset(topic, 0, 9, group)
        producer.abort()
    finally:
        producer.close()
    assert committed_offset(bootstrap, topic, group) == 7


def committed_offset(bootstrap: str, topic: str, group: str) -> int:
    """The group's offset, once no transaction is pending there: librdkafka asks for stable ones."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_committed"}
    )
    try:
        (found,) = consumer.committed([RdTopicPartition(topic, 0)], TIMEOUT_S)
        return found.offset
    finally:
        consumer.close()


def test_aiokafka_reads_what_is_committed(bootstrap: str) -> None:
    topic = "read-by-aiokafka"
    make_topics(bootstrap, NewTopic(topic, partitions=1))
    producer = Confluent(bootstrap, "read-by-aiokafka")
    for number in range(4):
        producer.begin()
        producer.send(topic, 0, str(number))
        producer.commit() if number % 2 else producer.abort()

    async def consume() -> list[str]:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        await consumer.start()
        try:
            return [(await anext(consumer)).value.decode() for _ in range(2)]
        finally:
            await consumer.stop()

    assert asyncio.run(asyncio.wait_for(consume(), TIMEOUT_S)) == ["1", "3"]


def test_the_command_line_shows_what_is_open_and_what_it_became(bootstrap: str) -> None:
    topic = "shown"
    make_topics(bootstrap, NewTopic(topic, partitions=1))
    producer = Confluent(bootstrap, "shown")
    producer.begin()
    producer.send(topic, 0, "x")

    def run(*arguments: str) -> list[dict[str, Any]]:
        ended = dlog("txn", *arguments, "--bootstrap", bootstrap, "-o", "json")
        assert ended.returncode == 0, ended.stderr
        return [json.loads(line) for line in ended.stdout.splitlines()]

    assert "shown" in {each["transactional_id"] for each in run("list", "--state", "Ongoing")}
    (described,) = run("describe", "shown")
    assert described["partitions"] == ["shown-0"]
    assert run("find-hanging", "--topic", topic, "--min-seconds", "0") == [], "its coordinator knows it"
    producer.commit()
    (described,) = run("describe", "shown")
    assert described["state"] in ("PrepareCommit", "CompleteCommit")
    missing = dlog("txn", "describe", "nobody", "--bootstrap", bootstrap)
    assert missing.returncode == 1
    assert "dlog txn list" in missing.stderr
