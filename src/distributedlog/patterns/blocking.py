"""The patterns for programs without an event loop: the same, on a loop in a thread of their own.

A table is looked at from any thread without waiting; everything else is done on the loop and waited for.
After a fork the child has none of it: what was open stays the parent's.
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from distributedlog.client.faces.delivery import RecordMetadata
from distributedlog.client.faces.loop_thread import LoopThread, left_behind
from distributedlog.client.faces.records import ConsumerRecord
from distributedlog.client.faces.settings import (
    BOOTSTRAP_DEFAULT,
    ClientSettings,
    ConsumerSettings,
    Deserializer,
    Headers,
    Serializer,
)
from distributedlog.model.errors import ClientClosedError, DlogError
from distributedlog.model.ids import TopicPartition
from distributedlog.patterns import replies, runner, table
from distributedlog.patterns.table import OnChange

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class Runner(runner.Runner):
    """Reads topics with a group and calls their handlers, on threads of its own."""

    def run(self, *, handle_signals: bool = True) -> None:  # type: ignore[override]
        """Runs until `stop`, SIGTERM or SIGINT.  Raises what ended it.

        Signals reach only the main thread: elsewhere, they are not handled.
        """
        is_main = threading.current_thread() is threading.main_thread()
        asyncio.run(super().run(handle_signals=handle_signals and is_main))


class _OnALoop:
    def __init__(self, name: str) -> None:
        self._thread = LoopThread(name, self._leave_behind)
        self._closed: str | None = None
        """Why it is of no use any more."""

    def _leave_behind(self) -> None:
        """The process is a child: what is open belongs to the parent, and nobody reads it on here."""
        left_behind(list(self.__dict__.values()))
        self._closed = "it was opened by the parent process: open another one in this one"

    def _check_open(self) -> None:
        if self._closed is not None:
            raise ClientClosedError(self._closed)

    def _run(self, work: "Coroutine[Any, Any, T]") -> T:
        try:
            self._check_open()
        except ClientClosedError:
            work.close()
            raise
        return self._thread.run(work)

    def _end(self, work: "Coroutine[Any, Any, None]") -> None:
        if self._closed is not None:
            work.close()
            return
        try:
            self._run(work)
        finally:
            self._closed = "it is closed"
            self._thread.stop()


class TopicTable(_OnALoop, Generic[K, V], Mapping[K, V]):
    """A compacted topic as a mapping, used with `with`, which goes on when it is loaded, from any thread.

    Keys and values are bytes, or what the deserializers make of them.  `on_change` is called with a key and
    its value, or None where it is gone, on the table's own thread.
    """

    def __init__(
        self,
        bootstrap: str = BOOTSTRAP_DEFAULT,
        *,
        topic: str,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        on_change: OnChange[K, V] | None = None,
        consumer: ConsumerSettings | None = None,
    ) -> None:
        super().__init__("dlog-table")
        self._table = table.TopicTable[K, V](
            bootstrap,
            topic=topic,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            on_change=on_change,
            consumer=consumer,
        )

    def __enter__(self) -> Self:
        try:
            self._run(self._table.start())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def wait_until(
        self, place: RecordMetadata | tuple[TopicPartition, int], timeout_ms: int = 30_000
    ) -> None:
        """Waits until the record at this place is part of the table."""
        self._run(self._table.wait_until(place, timeout_ms))

    def lag(self) -> int:
        """How many offsets it is behind."""
        return self._run(self._table.lag())

    @property
    def outage(self) -> DlogError | None:
        """Why it cannot be read on at the moment; None while it can."""
        return self._table.outage

    def snapshot(self) -> dict[K, V]:
        """A copy of it as it is now."""
        return self._looked_at.snapshot()

    def __getitem__(self, key: K) -> V:
        return self._looked_at[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._looked_at)

    def __len__(self) -> int:
        return len(self._looked_at)

    @property
    def _looked_at(self) -> table.TopicTable[K, V]:
        self._check_open()
        return self._table

    def close(self) -> None:
        self._end(self._table.close())


class Requester(_OnALoop):
    """Asks by a record and waits for the one that replies.  Used with `with`, by any number of threads."""

    def __init__(
        self,
        bootstrap: str = BOOTSTRAP_DEFAULT,
        *,
        topic: str,
        reply_topic: str,
        timeout_ms: int = 30_000,
        waiting_max: int = replies.WAITING_MAX,
        value_serializer: Serializer | None = None,
        value_deserializer: Deserializer | None = None,
        settings: ClientSettings | None = None,
    ) -> None:
        super().__init__("dlog-requester")
        self._requester = replies.Requester(
            bootstrap,
            topic=topic,
            reply_topic=reply_topic,
            timeout_ms=timeout_ms,
            waiting_max=waiting_max,
            value_serializer=value_serializer,
            value_deserializer=value_deserializer,
            settings=settings,
        )

    def __enter__(self) -> Self:
        try:
            self._run(self._requester.start())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(
        self,
        value: Any = None,
        key: Any = None,
        *,
        headers: Headers | None = None,
        timeout_ms: int | None = None,
    ) -> Any:
        """Returns the value of the reply, deserialized.  Raises `RequestTimedOutError` if there is none in
        time, and `RemoteError` if the responder says that it has failed."""
        return self._run(self._requester.ask(value, key, headers=headers, timeout_ms=timeout_ms))

    def ask_record(
        self,
        value: Any = None,
        key: Any = None,
        *,
        headers: Headers | None = None,
        timeout_ms: int | None = None,
    ) -> ConsumerRecord:
        """The same, and returns the whole reply as it came."""
        return self._run(self._requester.ask_record(value, key, headers=headers, timeout_ms=timeout_ms))

    def close(self) -> None:
        self._end(self._requester.close())
