"""A topic that was made for a case can be written to at once, and goes when the case ends, well or badly."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from distributedlog.client.admin.admin import Admin, NewTopic
from distributedlog.model.errors import TopicExistsError
from tests.bench.broker_load import CODE, Load, batch_of, connect, produce_code_at, produce_frame
from tests.bench.topics import make_topics, topic_on
from tests.system.enemies import read_frame
from tests.system.server_process import ServerProcess

PARTITIONS = 40


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory: Path = tmp_path_factory.mktemp("bench-topics")
    with ServerProcess(directory, {}) as server:
        yield server.facts["client"]


def names(bootstrap: str) -> set[str]:
    async def ask() -> set[str]:
        async with Admin.connect(bootstrap) as admin:
            return {topic.name for topic in await admin.list_topics()}

    return asyncio.run(ask())


def test_every_partition_has_a_leader_when_the_topic_is_given(bootstrap: str) -> None:
    with (
        topic_on(bootstrap, "led", PARTITIONS) as topic,
        connect(int(bootstrap.rpartition(":")[2])) as client,
    ):
        batch = batch_of(Load(kind="", port=0, pid=0, topic=topic, record_bytes=10))
        for partition in reversed(range(PARTITIONS)):
            client.sendall(produce_frame(topic, partition, batch, 1))
            assert CODE.unpack_from(read_frame(client), produce_code_at(topic) - 4)[0] == 0


def test_a_case_that_fails_leaves_no_topic_behind(bootstrap: str) -> None:
    given = []

    def work() -> None:
        with topic_on(bootstrap, "left", 1) as topic:
            given.append(topic)
            assert topic in names(bootstrap)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert not names(bootstrap) & set(given)


def test_no_name_is_used_twice(bootstrap: str) -> None:
    with topic_on(bootstrap, "same", 1) as first, topic_on(bootstrap, "same", 1) as second:
        assert first != second


def test_a_topic_that_is_there_is_an_error_with_its_name(bootstrap: str) -> None:
    make_topics(bootstrap, NewTopic("taken", 1, 1))
    with pytest.raises(TopicExistsError, match="taken"):
        make_topics(bootstrap, NewTopic("taken", 1, 1))
