"""An outbox: events are written in the database's own transactions, and published once, in their order.

    program: BEGIN; INSERT INTO orders …; outbox.add(connection, "orders", …); COMMIT
    relay:   rows in order --> one transaction of records, with a marker --> the rows are deleted

**Exactly once.**  The relay publishes a batch of rows, and in the same transaction a marker: which rows these
are, in a compacted topic under the outbox's name.  Then it deletes the rows.

| it ends                             | the next relay                                                      |
|-------------------------------------|---------------------------------------------------------------------|
| before the transaction is committed | fences it, which aborts it, and publishes the same rows             |
| before the rows are deleted         | finds them in the last marker, deletes them, publishes nothing      |

So a batch is begun only when the one before is deleted: the last marker is enough, and it does not matter in
which order a database gives out its ids, or commits them.  Readers have to read committed.

A row is known by its id and by an event id, which is drawn: a database that was made anew gives out the same
ids again, and its rows are none of those that a marker names.

**Order** is that of the ids: with SQLite, of which one transaction writes at a time, that of the commits.

A relay that is interrupted, or loses its connection to the database, gives up its producer, and then the
connection: called again, it begins as the next one would.

The database is any with a module of Python's DB-API: `paramstyle` is the module's own, `qmark` or `format`.
"""

import contextlib
import json
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self

from distributedlog.client.admin.topics import NewTopic
from distributedlog.client.faces.blocking_admin import Admin
from distributedlog.client.faces.blocking_consumer import Consumer
from distributedlog.client.faces.blocking_producer import Producer
from distributedlog.client.faces.settings import (
    BOOTSTRAP_DEFAULT,
    Headers,
    ProducerSettings,
    as_bytes,
    as_headers,
    of_every_client,
)
from distributedlog.model.errors import (
    ConfigError,
    DlogError,
    InvalidRecordError,
    TopicExistsError,
    TransactionAbortableError,
)
from distributedlog.model.ids import TopicPartition
from distributedlog.records.record import Header

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,99}")
PLACEHOLDERS: Final = {"qmark": "?", "format": "%s", "pyformat": "%s"}
BATCH_ROWS: Final = 500
POLL_SECONDS: Final = 0.2
COLUMNS: Final = "event_id, topic, message_key, message_value, headers, partition_index, timestamp_ms"


class Cursor(Protocol):
    def execute(self, statement: str, parameters: Sequence[Any] = ..., /) -> Any: ...
    def fetchall(self) -> Any: ...
    def close(self) -> Any: ...


class Connection(Protocol):
    """A connection of the DB-API."""

    def cursor(self) -> Any: ...
    def commit(self) -> Any: ...
    def rollback(self) -> Any: ...
    def close(self) -> Any: ...


RowId = tuple[int, str]
"""The id that the database gave out, and the event id."""


class Row(NamedTuple):
    """An event as it is stored."""

    id: int
    event_id: str
    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    partition: int | None
    timestamp_ms: int | None


class Outbox:
    """A table of events that are to be published."""

    def __init__(self, table: str = "dlog_outbox", paramstyle: str = "qmark") -> None:
        if not NAME.fullmatch(table):
            raise ConfigError(f"{table!r} is no name for a table")
        if paramstyle not in PLACEHOLDERS:
            raise ConfigError(f"there is no paramstyle {paramstyle!r}: {', '.join(PLACEHOLDERS)}")
        self.table = table
        self._mark = PLACEHOLDERS[paramstyle]

    def create(self, connection: Connection) -> None:
        """Makes the table in SQLite; elsewhere by a migration of the program's own."""
        with _cursor(connection) as cursor:
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {self.table} (id INTEGER PRIMARY KEY AUTOINCREMENT, "
                "event_id TEXT NOT NULL, topic TEXT NOT NULL, message_key BLOB, message_value BLOB, "
                "headers TEXT, partition_index INTEGER, timestamp_ms BIGINT)"
            )

    def add(
        self,
        connection: Connection,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        *,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Writes an event in the transaction that the connection is in; whoever began that commits it."""
        made = [[each.key, None if each.value is None else each.value.hex()] for each in as_headers(headers)]
        values = (
            uuid.uuid4().hex,
            topic,
            as_bytes(key),
            as_bytes(value),
            json.dumps(made) if made else None,
            partition,
            timestamp_ms,
        )
        marks = ", ".join([self._mark] * len(values))
        with _cursor(connection) as cursor:
            cursor.execute(
                f"INSERT INTO {self.table} ({COLUMNS}) VALUES ({marks})",  # noqa: S608
                values,
            )

    def first(self, connection: Connection, count: int) -> list[Row]:
        """The oldest events, in their order."""
        with _cursor(connection) as cursor:
            cursor.execute(
                f"SELECT id, {COLUMNS} FROM {self.table} ORDER BY id LIMIT {int(count)}"  # noqa: S608
            )
            return [_row(each) for each in cursor.fetchall()]

    def delete(self, connection: Connection, rows: Iterable[RowId]) -> None:
        with _cursor(connection) as cursor:
            for each in rows:
                cursor.execute(
                    f"DELETE FROM {self.table} WHERE id = {self._mark} AND event_id = {self._mark}",  # noqa: S608
                    each,
                )


def _row(found: Sequence[Any]) -> Row:
    number, event_id, topic, key, value, headers, partition, timestamp_ms = found
    made = tuple(
        Header(name, None if content is None else bytes.fromhex(content))
        for name, content in json.loads(headers or "[]")
    )
    return Row(number, event_id, topic, _bytes(key), _bytes(value), made, partition, timestamp_ms)


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


@contextlib.contextmanager
def _cursor(connection: Connection) -> Iterator[Any]:
    cursor = connection.cursor()
    try:
        yield cursor
    finally:
        cursor.close()


class OutboxRelay:
    """Publishes what is in an outbox; there is one at a time: a second one of the same name fences the first.

    Used with `with`, by one thread.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        bootstrap: str = BOOTSTRAP_DEFAULT,
        *,
        name: str,
        outbox: Outbox | None = None,
        marker_topic: str = "dlog-outbox-markers",
        batch_rows: int = BATCH_ROWS,
        producer: ProducerSettings | None = None,
    ) -> None:
        if batch_rows < 1:
            raise ConfigError(f"a batch has at least one row, not {batch_rows}")
        self._connect = connect
        self._bootstrap = bootstrap
        self._name = name
        self._outbox = outbox or Outbox()
        self._marker_topic = marker_topic
        self._batch_rows = batch_rows
        self._settings: ProducerSettings = {**(producer or {}), "transactional_id": f"dlog-outbox-{name}"}
        self._others = of_every_client(self._settings)
        """The settings of its other clients."""
        self._connection: Connection | None = None
        self._producer: Producer | None = None
        self._stopping = threading.Event()
        self.published = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self) -> None:
        """Publishes what is there and what comes, until `stop`, which any thread may call."""
        while not self._stopping.is_set():
            if not self.run_once():
                self._stopping.wait(POLL_SECONDS)

    def stop(self) -> None:
        self._stopping.set()

    def run_once(self) -> int:
        """Publishes one batch of what is there; how many events that were.

        Raises what it failed with, an error of the database among others, and may be called again then: what
        is lost, a connection or a producer, is replaced.  But for `ProducerFencedError`: another relay has
        taken over, which would be fenced by this one.
        """
        connection, producer = self._start()
        try:
            rows = self._outbox.first(connection, self._batch_rows)
            connection.rollback()  # a transaction that only reads must not hold up those who write
        except BaseException:
            self._give_up_connection()
            raise
        if not rows:
            return 0
        try:
            with producer.transaction():
                for row in rows:
                    self._send(producer, row)
                producer.send(self._marker_topic, marker_of(rows), self._name, partition=0)
            self._outbox.delete(connection, ids_of(rows))
            connection.commit()
        except TransactionAbortableError:
            raise  # nothing was published
        except BaseException:
            self._give_up(producer)  # perhaps something was: whoever begins next finds out by the marker
            raise
        self.published += len(rows)
        return len(rows)

    @staticmethod
    def _send(producer: Producer, row: Row) -> None:
        try:
            producer.send(
                row.topic,
                row.value,
                row.key,
                partition=row.partition,
                headers=row.headers,
                timestamp_ms=row.timestamp_ms,
            )
        except InvalidRecordError as error:
            error.add_note(f"it is row {row.id} of the outbox")
            raise

    def _start(self) -> tuple[Connection, Producer]:
        """Takes the name over, and then deletes what was published and not deleted."""
        if self._connection is None:
            self._connection = self._connect()
        if self._producer is None:
            self._make_marker_topic()
            producer = Producer(self._bootstrap, **self._settings)
            try:
                producer.init_transactions()  # from here on nobody else publishes
                self._outbox.delete(self._connection, self._last_marker())
                self._connection.commit()
            except BaseException:
                self._give_up(producer)
                raise
            self._producer = producer
        return self._connection, self._producer

    def _make_marker_topic(self) -> None:
        with Admin(self._bootstrap, **self._others) as admin, contextlib.suppress(TopicExistsError):
            admin.create_topic(NewTopic(self._marker_topic, 1, configs={"cleanup.policy": "compact"}))

    def _last_marker(self) -> list[RowId]:
        """The rows that were published last under this name."""
        place = TopicPartition(self._marker_topic, 0)
        found: bytes = b"[]"
        with Consumer(
            self._bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            **self._others,
        ) as consumer:
            consumer.assign([place])
            end = consumer.end_offsets([place])[place]
            while consumer.position(place) < end:
                for record in consumer.poll():
                    if record.key == self._name.encode() and record.value is not None:
                        found = record.value
        return read_marker(found)

    def _give_up(self, producer: Producer | None) -> None:
        """The producer first: before another one publishes anything, the marker is read."""
        self._producer = None
        try:
            if producer is not None:
                with contextlib.suppress(DlogError):
                    producer.close()
        finally:
            self._give_up_connection()

    def _give_up_connection(self) -> None:
        """Closing rolls back what is not committed; one that was lost may not even be closed."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    def close(self) -> None:
        self._give_up(self._producer)


def ids_of(rows: Iterable[Row]) -> list[RowId]:
    return [(row.id, row.event_id) for row in rows]


def marker_of(rows: Iterable[Row]) -> str:
    return json.dumps(ids_of(rows))


def read_marker(marker: bytes) -> list[RowId]:
    try:
        found = json.loads(marker)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(map(_is_row_id, found)):
        raise DlogError(f"the outbox's marker is none: {marker[:100]!r}")
    return [(number, event_id) for number, event_id in found]


def _is_row_id(found: Any) -> bool:
    return isinstance(found, list) and [type(each) for each in found] == [int, str]
