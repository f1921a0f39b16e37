"""One simulated machine: a disk, a clock, a thread and an executor in virtual time, and the process on them.

A crash ends the process: timers, work under way and messages for it mean nothing any more (`life` tells
them apart), and the disk keeps what its crash mode says.  A pause stops the process as SIGSTOP does: what
is due meanwhile happens when it goes on, in the order it came.
"""

import random
from collections.abc import Callable
from typing import Any, TypeVar

from distributedlog.model.errors import LogDirectoryFailedError
from distributedlog.ports.executor import Done, Outcome
from tests.simulation.disk import PowerCut, SimDisk
from tests.simulation.inodes import CrashMode
from tests.simulation.loop import DriftingClock, SimLoop
from tests.simulation.trace import Trace

T = TypeVar("T")


class SimProcess:
    """Is the scheduler and the executor of what runs in it."""

    def __init__(self, loop: SimLoop, trace: Trace, node_id: int, seed: int, drift_ppm: int) -> None:
        self.loop = loop
        self.trace = trace
        self.node_id = node_id
        self.chance = random.Random(seed)
        self.disk = SimDisk(self.chance.getrandbits(64))
        self.clock = DriftingClock(loop, self.chance.randrange(1_000_000), 1_000_000 + drift_ppm)
        self.disk_slowness = 1
        self.paused = False
        self.life = 0
        """The number of the process: another one each time it starts, and each time it ends."""
        self._waiting: list[Callable[[], None]] = []

    # --- what a subclass says --------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        """A new process on what the disk holds; one that cannot read it stays down."""
        raise NotImplementedError

    def _end(self) -> None:
        """The process is gone: forget what was in its memory."""
        raise NotImplementedError

    def _stepped(self) -> None:
        """Something ran in the process."""

    # --- life ------------------------------------------------------------------------------------

    def say(self, what: str, details: object = "") -> None:
        self.trace.add(self.loop.now_us, what, self.node_id, details)

    def crash(self, mode: CrashMode) -> None:
        self.say(f"crashes, {mode}")
        self.life += 1
        self.paused = False
        self._waiting.clear()
        self._end()
        self.disk.crash(mode)

    def pause(self) -> None:
        self.paused = True
        self.say("pauses")

    def resume(self) -> None:
        self.paused = False
        self.say("resumes")
        waiting, self._waiting = self._waiting, []
        life = self.life
        for callback in waiting:
            self.run(life, callback)

    def _failed(self, error: BaseException) -> None:
        """The driver gave up: so does its process, in the moment after."""
        if not isinstance(error, (OSError, LogDirectoryFailedError)):
            raise error
        self.say("fails:", str(error))
        self.loop.call_after(0, self._crash_if, self.life, "random")

    def _crash_if(self, life: int, mode: CrashMode) -> None:
        if life == self.life:
            self.crash(mode)

    def call(self, callback: Callable[[], None]) -> None:
        """Runs a client's request in this process, if it lives."""
        self.run(self.life, callback)

    def run(self, life: int, callback: Callable[[], None]) -> None:
        """Runs it in the process of that life, if it lives still; later, if it is paused."""
        if life != self.life or not self.is_up:
            return
        if self.paused:
            self._waiting.append(callback)
            return
        callback()
        self._stepped()

    # --- ports -----------------------------------------------------------------------------------

    def call_at(self, monotonic_ms: int, callback: Callable[[], None]) -> None:
        self.loop.call_at(self.clock.time_us_at(monotonic_ms), self.run, self.life, callback)

    def post(self, callback: Callable[[], None]) -> None:
        callback()

    def run_blocking(self, work: Callable[[], T], done: Done[T]) -> None:
        """Takes a while; whether the disk has it early or late in that while is chance."""
        life, loop, chance = self.life, self.loop, self.chance
        latency_us = (100 + int(chance.random() * 2000)) * self.disk_slowness
        wait_us = latency_us // 2 if chance.random() < 0.25 else 0

        def tell(outcome: Outcome[T]) -> None:
            if wait_us:
                loop.call_after(wait_us, self.run, life, lambda: done(outcome))
            else:
                self.run(life, lambda: done(outcome))

        loop.call_after(latency_us - wait_us, self._work, life, work, tell)

    def _work(self, life: int, work: Callable[[], T], then: Callable[[Outcome[T]], None]) -> None:
        if life != self.life:
            return
        outcome = Outcome.of(work)
        if isinstance(outcome.error, PowerCut):
            self.crash("random")
        elif outcome.error is not None and not isinstance(outcome.error, (OSError, LogDirectoryFailedError)):
            raise outcome.error
        else:
            then(outcome)

    def run_cpu(self, function: Callable[..., T], arguments: tuple[Any, ...], done: Done[T]) -> None:
        self.run_blocking(lambda: function(*arguments), done)

    def close(self) -> None:
        return None
