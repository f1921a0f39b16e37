"""The asyncio loop of one simulated process, on the simulation's loop: tasks, futures and timers are
asyncio's.

A turn runs what is ready when it begins, as asyncio does, and takes no time; the next one follows at once if
nothing else in the cluster is due before it.  Time is the process's own clock, which drifts.  A paused
process makes no turns, and the loop of one that has ended takes nothing any more: its tasks stay where they
were until the run is over (`end_tasks`), because an abandoned coroutine would unwind whenever Python collects
it, and that is in no seed.

An exception that leaves a callback is a defect: nobody in a process would hear of it.  Nor would anybody of a
task's that was spawned for itself (`spawn`).
"""

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any

from tests.simulation.disk import PowerCut
from tests.simulation.process import SimProcess

if TYPE_CHECKING:
    from tests.simulation.brokers.streams import StreamNetwork

TURNS_AT_ONCE_MAX = 10_000
"""A process that makes so many turns in one moment will never come to an end of it."""


def _raise_error(task: "asyncio.Task[None]") -> None:
    if not task.cancelled():
        task.result()


class _Handle(asyncio.Handle):
    """What asyncio's is, without a context: nobody here has context variables."""

    __slots__ = ()

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], loop: "ProcessLoop") -> None:
        self._callback, self._args, self._loop = callback, args, loop
        self._cancelled, self._repr, self._source_traceback = False, None, None


class _Timer(asyncio.TimerHandle):
    """A timer that is forgotten when it is due, and not before."""

    __slots__ = ()

    def __init__(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], loop: "ProcessLoop"
    ) -> None:
        _Handle.__init__(self, callback, args, loop)  # type: ignore[arg-type]
        self._when, self._scheduled = when, False


class ProcessLoop(asyncio.AbstractEventLoop):
    def __init__(self, process: SimProcess, network: "StreamNetwork") -> None:
        self._process = process
        self._life = process.life
        self._network = network
        self._ready: deque[asyncio.Handle] = deque()
        self._is_turn_due = False
        self._is_turn_asked = False
        """Whether the turn that is due waits in the simulation's loop, and not for a process to go on."""
        self._is_stuck = False
        self._tasks: list[asyncio.Task[Any]] = []
        self._names = itertools.count()
        self._turn_us, self._turns_now = 0, 0

    @property
    def is_over(self) -> bool:
        """Whether the process has ended."""
        return self._life != self._process.life

    # --- turns ---------------------------------------------------------------------------------

    def stick(self) -> None:
        """Makes no turn until `unstick`: something in it takes long."""
        self._is_stuck = True

    def unstick(self) -> None:
        self._is_stuck = False
        if self._ready:
            self._turn_soon()

    def _turn_soon(self) -> None:
        if not self._is_turn_due and not self._is_stuck:
            self._is_turn_due = self._is_turn_asked = True
            self._process.loop.call_after(0, self._wake)

    def _wake(self) -> None:
        """Makes the turn that is due, and those after it for as long as nothing else in the cluster is."""
        process, life, turn = self._process, self._life, self._turn
        self._is_turn_asked = False
        process.run(life, turn)
        while self._is_turn_asked and process.loop.take_back():
            self._is_turn_asked = False
            process.run(life, turn)

    def _turn(self) -> None:
        self._is_turn_due = False
        if self._is_stuck:
            return
        self._count_turn()
        ready, process, life = self._ready, self._process, self._life
        previous = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            for _ in range(len(ready)):
                handle: Any = ready.popleft()
                if not handle._cancelled:  # as asyncio, but for its handler of exceptions
                    handle._callback(*handle._args)
                    if life != process.life:
                        return
        except PowerCut:
            process.crash("random")
        finally:
            asyncio._set_running_loop(previous)
        if ready:
            self._turn_soon()

    def _count_turn(self) -> None:
        now_us = self._process.loop.now_us
        self._turns_now = self._turns_now + 1 if now_us == self._turn_us else 1
        self._turn_us = now_us
        if self._turns_now > TURNS_AT_ONCE_MAX:
            raise RuntimeError(f"node {self._process.node_id} never rests: {list(self._ready)[:3]}")

    # --- what asyncio asks of a loop -----------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self)
        if not self.is_over:
            self._ready.append(handle)
            self._turn_soon()
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        process = self._process
        timer = _Timer(self.time() + delay, callback, args, self)
        if not self.is_over:
            delay_us = process.clock.loop_us(delay)
            process.loop.call_after(delay_us, self._due, timer)
        return timer

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_later(max(0.0, when - self.time()), callback, *args, context=context)

    def _due(self, timer: asyncio.TimerHandle) -> None:
        if not timer._cancelled:
            self._process.run(self._life, lambda: self._fire(timer))

    def _fire(self, timer: asyncio.TimerHandle) -> None:
        if not timer._cancelled:
            self._ready.append(timer)
            self._turn_soon()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It stays until it is due, and does nothing then."""

    def time(self) -> float:
        return self._process.clock.monotonic_seconds()

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: object = None, context: Context | None = None
    ) -> "asyncio.Task[Any]":
        task = asyncio.Task(coro, loop=self, name=f"task-{next(self._names)}", context=context)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._tasks.append(task)
        if len(self._tasks) > 200:
            self._tasks = [each for each in self._tasks if not each.done()]
        return task

    def spawn(self, coro: Coroutine[Any, Any, None]) -> None:
        """Runs a task that nobody waits for: what it raises ends the run."""
        self.create_task(coro).add_done_callback(_raise_error)

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BufferedProtocol],
        host: str | None = None,
        port: int | None = None,
        **_: Any,
    ) -> tuple[asyncio.Transport, asyncio.BufferedProtocol]:
        assert host is not None
        assert port is not None
        return await self._network.connect(self._process, self, host, port, protocol_factory)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.is_over

    def is_closed(self) -> bool:
        return self.is_over

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Called where Python collects what nobody looked at: when that is, is in no seed."""

    def end_tasks(self) -> None:
        """Ends what was never finished, when the run is over."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            coroutine = task.get_coro()
            if not task.done() and coroutine is not None:
                with contextlib.suppress(Exception, PowerCut, GeneratorExit):
                    coroutine.close()
