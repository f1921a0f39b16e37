"""Heartbeats of a task that has no row yet.

It has not joined, so nothing of it keeps the batch open; but others of its batch may have joined, written and
ended, and a batch without a sign of life is aborted.  So whoever waits for long gives one, on a thread of its
own with its own connection: the task's thread stands still in its input.  Most tasks have their first row, or
their end, long before that, and cost a timer.

What goes wrong here the task hears when it joins.
"""

import asyncio
import contextlib
import threading
from types import TracebackType
from typing import Final

from distributedlog.client import sinks
from distributedlog.client.addresses import parse_bootstrap
from distributedlog.client.metadata import Cluster
from distributedlog.client.sinks import Sink
from distributedlog.model.errors import DlogError
from distributedlog.spark.sink.attempts import Attempt
from distributedlog.spark.sink.options import SinkOptions

THREAD_NAME: Final = "dlog-sink-waiting"


class waiting:  # noqa: N801 (used like a function)
    """`with waiting(options, attempt)`: keeps the batch open meanwhile."""

    def __init__(self, options: SinkOptions, attempt: Attempt) -> None:
        self._options = options
        self._attempt = attempt
        self._lock = threading.Lock()
        self._is_over = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = asyncio.Event()
        delay_ms = options.batch_timeout_ms / sinks.HEARTBEATS_IN_TIMEOUT
        self._timer = threading.Timer(delay_ms / 1000, self._run)
        self._timer.name, self._timer.daemon = THREAD_NAME, True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._is_over = True
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._over.set)
        self._timer.join()

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            with self._lock:
                if self._is_over:
                    return
                self._loop = runner.get_loop()
            runner.run(self._beat())

    async def _beat(self) -> None:
        """Ends only when the task says so: until then the loop may be called."""
        addresses = parse_bootstrap(self._options.bootstrap)
        async with Cluster(addresses, self._options.client) as cluster:
            with contextlib.suppress(DlogError):
                await self._beat_on(Sink(cluster, self._attempt.query_id))
            await self._over.wait()

    async def _beat_on(self, sink: Sink) -> None:
        token, batch_id = self._attempt.token, self._attempt.batch_id
        async with sink.heartbeats(token, batch_id, timeout_ms=self._options.batch_timeout_ms):
            await self._over.wait()
