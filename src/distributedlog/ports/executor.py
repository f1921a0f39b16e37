"""Work beside the loop: system calls that block go to a thread, CPU work goes to a child process.

`done` is called with the outcome exactly once, on whichever thread the adapter says; a driver on an event
loop wraps it with `call_soon_threadsafe`.  CPU work is a module-level function with picklable arguments.
"""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")


class Outcome(Generic[T]):
    """A value or an exception, told apart by asking for the value."""

    __slots__ = ("_error", "_value")

    def __init__(self, value: T | None = None, error: BaseException | None = None) -> None:
        self._value = value
        self._error = error

    @property
    def error(self) -> BaseException | None:
        return self._error

    def value(self) -> T:
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    @classmethod
    def of(cls, work: Callable[[], T]) -> "Outcome[T]":
        try:
            return cls(work())
        except BaseException as error:
            return cls(error=error)


Done = Callable[[Outcome[T]], None]


class Executor(Protocol):
    def run_blocking(self, work: Callable[[], T], done: Done[T]) -> None:
        """Runs `work`, which waits for the operating system."""
        ...

    def run_cpu(self, function: Callable[..., T], arguments: tuple[Any, ...], done: Done[T]) -> None:
        """Runs `function(*arguments)`, which computes, where it does not starve the caller."""
        ...

    def close(self) -> None:
        """Waits for what was begun."""
        ...


def run_side_by_side(works: Sequence[Callable[[], None]], *, threads: int) -> None:
    """Runs blocking calls on threads of their own, and waits for all of them; raises the first error."""
    with ThreadPoolExecutor(threads, thread_name_prefix="dlog-opening") as pool:
        outcomes = list(pool.map(Outcome.of, works))
    for outcome in outcomes:
        outcome.value()


class SystemExecutor:
    """Threads for blocking calls; one child process, started when first needed, for CPU work."""

    def __init__(self, threads: int = 4) -> None:
        self._blocking = ThreadPoolExecutor(threads, thread_name_prefix="dlog-blocking")
        self._cpu = ThreadPoolExecutor(1, thread_name_prefix="dlog-cpu")
        self._child = ChildProcess()

    def run_blocking(self, work: Callable[[], T], done: Done[T]) -> None:
        self._submit(self._blocking, work, done)

    def run_cpu(self, function: Callable[..., T], arguments: tuple[Any, ...], done: Done[T]) -> None:
        self._submit(self._cpu, lambda: self._child.call(function, arguments), done)

    @staticmethod
    def _submit(pool: ThreadPoolExecutor, work: Callable[[], T], done: Done[T]) -> None:
        future: Future[None] = pool.submit(lambda: done(Outcome.of(work)))
        future.add_done_callback(lambda finished: finished.result())

    def close(self) -> None:
        self._cpu.shutdown(wait=True)
        self._child.close()
        self._blocking.shutdown(wait=True)


class ChildProcess:
    """A Python process that calls functions for us, one at a time, over its standard streams.

    It is started by program name and not by `multiprocessing`, so that an embedding program needs no
    `__main__` guard and shares no file descriptor by accident.  It looks for modules where we do, and not
    first in whatever directory we happen to work in.  It leaves when its input closes, so it cannot outlive
    us, not even after a SIGKILL.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def call(self, function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
        import pickle  # few processes ever have a child

        with self._lock:
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                pickle.dump((function, arguments), process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
                process.stdin.flush()
                value, error = pickle.load(process.stdout)  # noqa: S301 - our own child
            except (OSError, EOFError, pickle.UnpicklingError) as broken:
                self._end()
                raise RuntimeError(
                    f"the worker process ended while it ran {function.__qualname__}"
                ) from broken
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "distributedlog.ports.worker"],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def close(self) -> None:
        with self._lock:
            self._end()
