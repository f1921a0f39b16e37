"""An asyncio loop in a thread of its own, for programs without one.

    not started --(run)--> running --(stop)--> stopped
         ^                    |
         +------(fork)--------+   in the child, where threads do not follow

A child process has the parent's objects and sockets, but none of its threads.  There a `LoopThread`
forgets its loop as it is: closing it would take the parent's sockets from the parent's selector, which
both processes share. `on_fork` then makes its owner forget what ran on the loop, and the next call starts
another.
"""

import asyncio
import atexit
import concurrent.futures
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from distributedlog.model.errors import ClientClosedError, DlogError

T = TypeVar("T")

_ALL: "Final[weakref.WeakSet[LoopThread]]" = weakref.WeakSet()
_LEFT_BEHIND: Final[list[Any]] = []
"""What belongs to a parent process: kept, as its end would be felt there."""


class LoopThread:
    def __init__(self, name: str, on_fork: Callable[[], object] | None = None) -> None:
        self._name = name
        self._on_fork = on_fork
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_stopped = False
        _ALL.add(self)

    @property
    def is_running(self) -> bool:
        return self._loop is not None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, which is started if it did not run yet."""
        return self._loop or self._start()

    def _start(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._is_stopped:
                raise ClientClosedError("the client is closed")
            if self._loop is None:
                loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run, args=(loop,), name=self._name, daemon=True)
                self._thread.start()
                self._loop = loop
            return self._loop

    def submit(self, work: "Coroutine[Any, Any, T]") -> "concurrent.futures.Future[T]":
        """Runs it on the loop, for another thread, which may wait for it."""
        if self.is_current:  # it would wait for itself
            work.close()
            raise DlogError("a blocking client was used in its own callback: use what the callback was given")
        try:
            loop = self.loop
        except ClientClosedError:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, loop)

    @property
    def is_current(self) -> bool:
        """Whether this is called on the loop's own thread."""
        return self._thread is threading.current_thread()

    def run(self, work: "Coroutine[Any, Any, T]") -> T:
        """Runs it on the loop and waits for its end; an interrupt here cancels it there."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call_soon(self, what: Callable[..., object], *arguments: Any) -> None:
        self.loop.call_soon_threadsafe(what, *arguments)

    def stop(self) -> None:
        """Ends the loop and its thread, for good; tasks that are left are cancelled."""
        with self._lock:
            self._is_stopped = True
            loop, self._loop = self._loop, None
            thread, self._thread = self._thread, None
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join()

    def forget(self) -> None:
        """The process is a child: nothing of this runs here."""
        if self._loop is None:
            return
        _LEFT_BEHIND.append((self._loop, self._thread))
        self._lock = threading.Lock()
        self._loop = self._thread = None
        if self._on_fork is not None:
            self._on_fork()


def left_behind(what: Any) -> None:
    """Keeps something of the parent process without ever touching it again."""
    _LEFT_BEHIND.append(what)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        asyncio.set_event_loop(None)
        loop.close()


def _after_fork() -> None:
    for each in list(_ALL):
        each.forget()


def _before_exit() -> None:
    """The threads, and what runs on their loops, end with the program: asyncio need not complain of it."""
    for each in list(_ALL):
        if (loop := each._loop) is not None:
            for task in asyncio.all_tasks(loop):
                setattr(task, "_log_destroy_pending", False)  # noqa: B010 - there is no public way


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_before_exit)
