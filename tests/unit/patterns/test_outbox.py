"""An outbox in SQLite: only what is committed is published, once, in order, whatever ends the relay when."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from distributedlog import (
    Admin,
    Consumer,
    NewTopic,
    ProducerFencedError,
    TopicPartition,
    TransactionAbortableError,
)
from distributedlog.model.errors import ConfigError, DlogError
from distributedlog.patterns import Outbox, OutboxRelay
from distributedlog.patterns.outbox import Connection, Row, marker_of, read_marker
from distributedlog.records.record import Header
from tests.unit.client.faces.stage import running_broker

OUTBOX = Outbox()


class InterruptError(BaseException):
    """What no handler of errors catches, such as KeyboardInterrupt."""


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker(tmp_path_factory.mktemp("broker")) as address:
        yield address


@pytest.fixture
def topic(bootstrap: str, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").strip("]")[-80:]
    with Admin(bootstrap) as admin:
        admin.create_topic(NewTopic(name, 1))
    return str(name)


@pytest.fixture
def connect(tmp_path: Path) -> Callable[[], sqlite3.Connection]:
    return lambda: sqlite3.connect(tmp_path / "shop.db", timeout=60)


@pytest.fixture
def shop(connect: Callable[[], sqlite3.Connection]) -> Iterator[sqlite3.Connection]:
    connection = connect()
    OUTBOX.create(connection)
    yield connection
    connection.close()


def add(shop: sqlite3.Connection, topic: str, numbers: range) -> None:
    with shop:
        for number in numbers:
            OUTBOX.add(shop, topic, str(number), key=f"k{number}")


def published(bootstrap: str, topic: str) -> list[int]:
    place = TopicPartition(topic, 0)
    found: list[int] = []
    with Consumer(bootstrap, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([place])
        end = consumer.end_offsets([place])[place]
        while consumer.position(place) < end:
            found += (int(each.value) for each in consumer.poll())
    return found


def run_until_fenced(relay: OutboxRelay) -> None:
    """Runs it twice if need be: the first time it may only know that it has to abort."""
    try:
        relay.run_once()
    except TransactionAbortableError:
        relay.run_once()


def test_an_event_is_stored_as_it_was_given(shop: sqlite3.Connection) -> None:
    OUTBOX.add(shop, "t", "text", b"\x00\xff", headers=[("h", b"\xff"), ("null", None)], partition=3)
    OUTBOX.add(shop, "t", None, timestamp_ms=5)
    stored = OUTBOX.first(shop, 10)
    assert [row._replace(event_id="") for row in stored] == [
        Row(1, "", "t", b"\x00\xff", b"text", (Header("h", b"\xff"), Header("null", None)), 3, None),
        Row(2, "", "t", None, None, (), None, 5),
    ]
    assert len({row.event_id for row in stored}) == 2
    with pytest.raises(ConfigError):
        Outbox("orders; DROP TABLE orders")
    with pytest.raises(ConfigError):
        Outbox(paramstyle="named")


def test_what_is_committed_is_published_once_and_in_order(
    bootstrap: str, topic: str, shop: sqlite3.Connection, connect: Callable[[], sqlite3.Connection]
) -> None:
    add(shop, topic, range(10))
    OUTBOX.add(shop, topic, "99")
    shop.rollback()
    with OutboxRelay(connect, bootstrap, name=topic, batch_rows=4) as relay:
        assert [relay.run_once() for _ in range(4)] == [4, 4, 2, 0]
        add(shop, topic, range(10, 13))
        assert relay.run_once() == 3
        assert relay.published == 13
    assert published(bootstrap, topic) == list(range(13))
    assert OUTBOX.first(shop, 1) == []


@pytest.mark.parametrize("ends", ["before-commit", "before-delete"])
def test_a_relay_that_ends_in_between_is_followed_by_one_that_knows(
    bootstrap: str,
    topic: str,
    shop: sqlite3.Connection,
    connect: Callable[[], sqlite3.Connection],
    monkeypatch: pytest.MonkeyPatch,
    ends: str,
) -> None:
    def crash(*_: object) -> None:
        raise InterruptError

    add(shop, topic, range(10))
    first = OutboxRelay(connect, bootstrap, name=topic, batch_rows=4)
    assert first.run_once() == 4
    with monkeypatch.context() as patch:
        if ends == "before-commit":
            assert first._producer is not None
            patch.setattr(first._producer, "commit_transaction", crash)
            patch.setattr(first._producer, "abort_transaction", crash)
        else:
            patch.setattr(first._outbox, "delete", crash)
        with pytest.raises(InterruptError):
            first.run_once()
    add(shop, topic, range(10, 12))
    with OutboxRelay(connect, bootstrap, name=topic, batch_rows=4) as second:
        while second.run_once():
            pass
    first.close()
    assert published(bootstrap, topic) == list(range(12))
    assert OUTBOX.first(shop, 1) == []


@pytest.mark.parametrize("when", ["before it reads", "before it deletes", "before it deletes what is left"])
def test_a_connection_that_is_lost_is_replaced_and_nothing_is_published_twice(
    bootstrap: str, shop: sqlite3.Connection, connect: Callable[[], sqlite3.Connection], when: str
) -> None:
    topic = f"lost-{when.replace(' ', '-')}"
    with Admin(bootstrap) as admin:
        admin.create_topic(NewTopic(topic, 1))

    class Losing(Outbox):
        losing = 0

        def first(self, connection: Connection, count: int) -> list[Row]:
            if when == "before it reads" and self.losing:
                self._lose(connection)
            return super().first(connection, count)

        def delete(self, connection: Connection, rows: Any) -> None:
            if self.losing:
                self._lose(connection)
            super().delete(connection, rows)

        def _lose(self, connection: Connection) -> None:
            self.losing -= 1
            connection.close()  # from here on it only raises, as after a database's restart

    outbox = Losing()
    add(shop, topic, range(6))
    with OutboxRelay(connect, bootstrap, name=topic, outbox=outbox, batch_rows=2) as relay:
        assert relay.run_once() == 2
        outbox.losing = losses = 2 if when.endswith("left") else 1
        for _ in range(losses):
            with pytest.raises(sqlite3.ProgrammingError, match="closed"):
                relay.run_once()
        while relay.run_once():
            pass
    assert published(bootstrap, topic) == list(range(6))
    assert OUTBOX.first(shop, 1) == []


def test_a_relay_that_is_interrupted_behind_its_commit_publishes_nothing_twice(
    bootstrap: str,
    topic: str,
    shop: sqlite3.Connection,
    connect: Callable[[], sqlite3.Connection],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add(shop, topic, range(4))
    with OutboxRelay(connect, bootstrap, name=topic, batch_rows=2) as relay:
        assert relay.run_once() == 2
        producer = relay._producer
        assert producer is not None
        commit = producer.commit_transaction

        def interrupted() -> None:
            commit()
            raise InterruptError

        monkeypatch.setattr(producer, "commit_transaction", interrupted)
        with pytest.raises(InterruptError):
            relay.run_once()
        assert relay.run_once() == 0
    assert published(bootstrap, topic) == list(range(4))


def test_a_database_that_was_made_anew_loses_no_events(
    bootstrap: str, topic: str, shop: sqlite3.Connection, connect: Callable[[], sqlite3.Connection]
) -> None:
    add(shop, topic, range(3))
    with OutboxRelay(connect, bootstrap, name=topic) as relay:
        assert relay.run_once() == 3
    shop.execute(f"DROP TABLE {OUTBOX.table}")
    OUTBOX.create(shop)
    add(shop, topic, range(3, 6))
    assert [each.id for each in OUTBOX.first(shop, 9)] == [1, 2, 3], "the ids begin anew"
    with OutboxRelay(connect, bootstrap, name=topic) as relay:
        assert relay.run_once() == 3
    assert published(bootstrap, topic) == list(range(6))


def test_a_second_relay_fences_the_first(
    bootstrap: str, topic: str, shop: sqlite3.Connection, connect: Callable[[], sqlite3.Connection]
) -> None:
    add(shop, topic, range(3))
    with (
        OutboxRelay(connect, bootstrap, name=topic) as first,
        OutboxRelay(connect, bootstrap, name=topic) as second,
    ):
        assert first.run_once() == 3
        assert second.run_once() == 0
        add(shop, topic, range(3, 6))
        with pytest.raises(ProducerFencedError):
            run_until_fenced(first)
        assert second.run_once() == 3
    assert published(bootstrap, topic) == list(range(6))


def test_a_marker_is_read_as_it_was_written_and_one_that_is_none_is_told(shop: sqlite3.Connection) -> None:
    OUTBOX.add(shop, "t")
    OUTBOX.add(shop, "t")
    rows = OUTBOX.first(shop, 10)
    assert read_marker(marker_of(rows).encode()) == [(row.id, row.event_id) for row in rows]
    for marker in (b"", b"\xff", b"{}", b"[1]", b'[["x", "y"]]', b"[[1, 2]]", b'[[1, "x", 2]]', b"[" * 5000):
        with pytest.raises(DlogError, match="marker"):
            read_marker(marker)
