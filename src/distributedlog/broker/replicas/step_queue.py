"""Work beside the loop that clients ask for: batches that are opened to find a time, or to be appended.

Such work is made of steps of some milliseconds each, some tens at worst (`storage.timestamps`,
`storage.append`).  At most `running_max` steps are done at a time, on threads of the executor, so that all
work of a queue needs the memory of so many opened batches and leaves the other threads to those who sync.
Addresses have their turns one after the other: whoever asks for a thousand steps waits for a thousand, and
others do not.  Between its steps work is on the loop again, which logs belong to.

Work that is cancelled ends at once, or with the step that it is in.  After `close` nothing goes on, and
nobody is called back.
"""

import asyncio
from collections import OrderedDict, deque
from functools import partial
from typing import Any, Generic, TypeVar

from distributedlog.ports.executor import Done, Executor, Outcome
from distributedlog.storage.timestamps import Step, Steps

T = TypeVar("T")


class StepWork(Generic[T]):
    """One piece of work in a queue."""

    __slots__ = ("_done", "_is_ended", "_is_running", "_step", "_steps", "address")

    def __init__(self, address: str, steps: Steps[T], step: Step, done: Done[T]) -> None:
        self.address = address
        self._steps = steps
        self._step: Step | None = step
        self._done = done
        self._is_running = False
        self._is_ended = False

    @property
    def is_ended(self) -> bool:
        return self._is_ended

    def begin_step(self) -> Step:
        step, self._step = self._step, None
        assert step is not None
        self._is_running = True
        return step

    def end_step(self, outcome: Outcome[None]) -> None:
        """Goes on to the next step, unless it is ended by then."""
        self._is_running = False
        if self._is_ended:
            self._steps.close()
            return
        try:
            error = outcome.error
            self._step = next(self._steps) if error is None else self._steps.throw(error)
        except StopIteration as end:
            self._end(Outcome(end.value))
        except Exception as error:
            self._end(Outcome(error=error))

    def _end(self, outcome: Outcome[T]) -> None:
        self._is_ended = True
        self._done(outcome)

    def cancel(self) -> None:
        """Ends it: what a step has in its hands stays there until it is over."""
        self._is_ended = True
        if not self._is_running:
            self._step = None
            self._steps.close()


class StepQueue:
    """Belongs to the data loop; `executor` calls back there."""

    def __init__(self, executor: Executor, running_max: int = 1) -> None:
        self._executor = executor
        self._running_max = running_max
        self._waiting: OrderedDict[str, deque[StepWork[Any]]] = OrderedDict()
        self._running: dict[StepWork[Any], None] = {}

    def submit(self, address: str, steps: Steps[T], done: Done[T]) -> StepWork[T] | None:
        """Calls `done` with what the steps come to; at once, and there is no work, if there are none."""
        try:
            step = next(steps)
        except StopIteration as end:
            done(Outcome(end.value))
            return None
        work = StepWork(address, steps, step, done)
        self._enter(work)
        return work

    def run(self, address: str, steps: Steps[T]) -> "T | asyncio.Future[T]":
        """Does the steps; what they come to, at once if there is none.  Cancelling the future ends them."""
        try:
            step = next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        response: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        work = StepWork(address, steps, step, partial(_settle, response))
        response.add_done_callback(partial(_cancel_with, work))
        self._enter(work)
        return response

    def _enter(self, work: StepWork[Any]) -> None:
        self._add(work)
        self._start()

    def _add(self, work: StepWork[Any]) -> None:
        self._waiting.setdefault(work.address, deque()).append(work)

    def _start(self) -> None:
        while self._waiting and len(self._running) < self._running_max:
            address, line = self._waiting.popitem(last=False)
            work = line.popleft()
            if line:
                self._waiting[address] = line
            if not work.is_ended:
                self._running[work] = None
                self._executor.run_blocking(work.begin_step(), partial(self._go_on, work))

    def _go_on(self, work: StepWork[Any], outcome: Outcome[None]) -> None:
        self._running.pop(work, None)
        try:
            work.end_step(outcome)
        finally:  # what one comes to must not hold up the others
            if not work.is_ended:
                self._add(work)
            self._start()

    def close(self) -> None:
        """Ends all of it; nobody is called back."""
        for work in [*self._running, *(work for line in self._waiting.values() for work in line)]:
            work.cancel()
        self._waiting.clear()


def _settle(response: "asyncio.Future[T]", outcome: Outcome[T]) -> None:
    if response.cancelled():
        return
    if outcome.error is None:
        response.set_result(outcome.value())
    else:
        response.set_exception(outcome.error)


def _cancel_with(work: StepWork[Any], response: "asyncio.Future[Any]") -> None:
    if response.cancelled():
        work.cancel()
