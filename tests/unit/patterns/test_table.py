"""A table of a topic: what `apply` makes of records, and a real broker's topic, loaded and followed."""

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog import Admin, ConsumerRecord, NewTopic, Producer, TopicPartition
from distributedlog.client.faces.settings import ConsumerSettings
from distributedlog.model.errors import ClientClosedError, RequestTimedOutError, UnknownTopicError
from distributedlog.patterns import TopicTable, aio
from distributedlog.patterns.table import apply
from tests.ports import free_port
from tests.system.server_process import ServerProcess
from tests.unit.client.faces.stage import running_broker

WAIT_S = 60.0
pairs = st.lists(st.tuples(st.none() | st.sampled_from("abc"), st.none() | st.integers()), max_size=30)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@given(pairs, st.integers(0, 30))
def test_a_table_has_the_last_value_of_each_key(
    written: list[tuple[str | None, int | None]], cut: int
) -> None:
    records = [ConsumerRecord("t", 0, at, 0, *pair) for at, pair in enumerate(written)]
    entries: dict[str, int] = {}
    apply(entries, records[:cut])
    before = dict(entries)
    changed = apply(entries, records[cut:])
    last = {key: value for key, value in written if key is not None}
    assert entries == {key: value for key, value in last.items() if value is not None}
    assert {key: value for key, value in {**before, **changed}.items() if value is not None} == entries


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker(tmp_path_factory.mktemp("broker")) as address:
        with Admin(address) as admin:
            for name in ("users", "aio", "growing"):
                admin.create_topic(NewTopic(name, 2, configs={"cleanup.policy": "compact"}))
        yield address


def test_it_is_loaded_and_follows(bootstrap: str) -> None:
    changes: list[tuple[str, str | None]] = []
    with Producer(bootstrap, transactional_id="writer") as producer:
        with producer.transaction():
            for number in range(100):
                producer.send("users", f"value {number}", key=str(number % 10))
        producer.begin_transaction()
        producer.send("users", "aborted", key="5")
        producer.abort_transaction()
        with TopicTable[str, str](
            bootstrap,
            topic="users",
            key_deserializer=bytes.decode,
            value_deserializer=bytes.decode,
            on_change=lambda key, value: changes.append((key, value)),
        ) as users:
            assert dict(users) == {str(number): f"value {90 + number}" for number in range(10)}
            assert (len(users), users.get("x"), "3" in users) == (10, None, True)
            changes.clear()
            with producer.transaction():
                gone = producer.send("users", None, key="3")
                new = producer.send("users", "new", key="x")
            users.wait_until(gone.result(WAIT_S))
            users.wait_until(new.result(WAIT_S))
            assert "3" not in users
            assert users["x"] == "new"
            assert sorted(changes) == [("3", None), ("x", "new")]
            assert users.lag() == 0
            with pytest.raises(RequestTimedOutError):
                users.wait_until((TopicPartition("users", 0), 10_000), timeout_ms=100)
    with pytest.raises(ClientClosedError):
        users["x"]
    assert not [each for each in threading.enumerate() if each.name == "dlog-table"]


def test_on_a_loop_it_finds_partitions_that_come_later(bootstrap: str) -> None:
    async def story() -> bytes:
        async with (
            asyncio.timeout(2 * WAIT_S),
            aio.TopicTable[bytes, bytes](
                bootstrap, topic="growing", consumer={"metadata_max_age_ms": 100}
            ) as table,
        ):
            with Admin(bootstrap) as admin:
                await asyncio.to_thread(admin.create_partitions, {"growing": 3})
            with Producer(bootstrap) as producer:
                while producer.partitions_for("growing") != range(3):
                    await asyncio.sleep(0.1)
                place = producer.send("growing", "v", key="k", partition=2).result(WAIT_S)
            await table.wait_until(place, timeout_ms=60_000)
            return table[b"k"]

    assert asyncio.run(story()) == b"v"


def test_a_cluster_that_is_away_for_a_while_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    quick: ConsumerSettings = {
        "metadata_max_age_ms": 100,
        "default_api_timeout_ms": 300,
        "retry_backoff_ms": 10,
    }
    settings = {"listeners": f"PLAINTEXT://127.0.0.1:{free_port()}"}
    with ServerProcess(tmp_path, settings) as server:
        bootstrap = server.facts["client"]
        with Producer(bootstrap) as producer:
            producer.send("away", "1", key="k").result(WAIT_S)
        with TopicTable[bytes, bytes](bootstrap, topic="away", consumer=quick) as table:
            server.stop(signal.SIGKILL)
            wait_for(lambda: table[b"k"] == b"1" and table.outage is not None)  # what was read stays
            server.restart()
            with Producer(bootstrap) as producer:
                place = producer.send("away", "2", key="k").result(WAIT_S)
            table.wait_until(place, timeout_ms=60_000)
            assert table[b"k"] == b"2"
            wait_for(lambda: table.outage is None)
    assert "is as old as it is" in caplog.text


def test_what_ends_following_is_told_by_every_look(bootstrap: str) -> None:
    with Producer(bootstrap) as producer:
        producer.send("aio", "1", key="k").result(WAIT_S)
        with TopicTable[bytes, int](bootstrap, topic="aio", value_deserializer=int) as table:
            assert table[b"k"] == 1
            place = producer.send("aio", "no number", key="k").result(WAIT_S)
            with pytest.raises(Exception, match="deserialized"):
                table.wait_until(place)
            with pytest.raises(Exception, match="deserialized"):
                table[b"k"]


def test_a_topic_that_is_not_there_is_told(bootstrap: str) -> None:
    with pytest.raises(UnknownTopicError):
        TopicTable[bytes, bytes](bootstrap, topic="nowhere").__enter__()
    assert not [each for each in threading.enumerate() if each.name == "dlog-table"]
