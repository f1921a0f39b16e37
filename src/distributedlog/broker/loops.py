"""The two loops of a process: asyncio under the scheduler port, and a thread for the control loop.

Nothing but posted callbacks crosses from one loop to the other.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from distributedlog.ports.clock import Clock
from distributedlog.ports.executor import Done, Executor, Outcome
from distributedlog.ports.scheduler import Scheduler

T = TypeVar("T")
JOIN_SECONDS_MAX = 10.0


class LoopScheduler:
    """The scheduler port on an asyncio loop.  `post` may be called from any thread, also after the end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock

    def call_at(self, monotonic_ms: int, callback: Callable[[], None]) -> None:
        self._loop.call_later(max(0, monotonic_ms - self._clock.monotonic_ms()) / 1000, callback)

    def post(self, callback: Callable[[], None]) -> None:
        post(self._loop, callback)


class PostingExecutor:
    """An executor whose outcomes come back on the loop that the scheduler stands for."""

    def __init__(self, executor: Executor, scheduler: Scheduler) -> None:
        self._executor = executor
        self._scheduler = scheduler

    def run_blocking(self, work: Callable[[], T], done: Done[T]) -> None:
        self._executor.run_blocking(work, self._posting(done))

    def run_cpu(self, function: Callable[..., T], arguments: tuple[Any, ...], done: Done[T]) -> None:
        self._executor.run_cpu(function, arguments, self._posting(done))

    def _posting(self, done: Done[T]) -> Done[T]:
        def post(outcome: Outcome[T]) -> None:
            self._scheduler.post(lambda: done(outcome))

        return post

    def close(self) -> None:
        self._executor.close()


def post(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """Runs `callback` on the loop soon; a loop that has ended runs nothing.

    From the loop itself it is not woken: that would cost two system calls and an event each time.
    """
    try:
        if asyncio._get_running_loop() is loop:
            loop.call_soon(callback)
        else:
            loop.call_soon_threadsafe(callback)
    except RuntimeError:
        if not loop.is_closed():
            raise


class ControlThread:
    """A thread with a loop of its own, so that a busy data loop causes no election."""

    def __init__(self, name: str = "dlog-control") -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Runs a coroutine there; its result can be awaited here with `asyncio.wrap_future`."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def stop(self) -> None:
        """Ends the loop once what is ready has run, cancels what still waits, and joins the thread."""
        if not self._thread.is_alive():
            self.loop.close()
            return
        asyncio.run_coroutine_threadsafe(_cancel_all(), self.loop).result(JOIN_SECONDS_MAX)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(JOIN_SECONDS_MAX)
        if not self._thread.is_alive():
            self.loop.close()


async def _cancel_all() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
