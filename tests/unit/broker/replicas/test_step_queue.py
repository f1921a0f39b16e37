import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from distributedlog.broker.replicas.step_queue import StepQueue
from distributedlog.model.errors import StorageError
from distributedlog.ports.executor import Outcome
from distributedlog.protocol.messages.list_offsets import ListOffsetsResponse
from distributedlog.protocol.schema import Message
from distributedlog.storage.timestamps import Steps
from tests.simulation.executor import InlineExecutor


def on_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    return lambda: asyncio.run(test())


class HeldExecutor(InlineExecutor):
    """Does nothing before it is told to."""

    def __init__(self) -> None:
        self.begun: list[tuple[Callable[[], Any], Callable[[Outcome[Any]], None]]] = []

    def run_blocking(self, work: Callable[[], Any], done: Callable[[Outcome[Any]], None]) -> None:
        self.begun.append((work, done))

    def finish_one(self) -> None:
        work, done = self.begun.pop(0)
        done(Outcome.of(work))


class Story:
    """Searches that write down their steps, and that they were ended."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def search(self, name: str, count: int) -> Steps[Message]:
        try:
            for number in range(count):
                yield lambda number=number: self.lines.append(f"{name}{number}")  # type: ignore[misc]
        finally:
            self.lines.append(f"{name} ended")
        return ListOffsetsResponse(topics=[])


@on_a_loop
async def test_addresses_have_their_turns_and_one_step_is_done_at_a_time() -> None:
    story, executor = Story(), HeldExecutor()
    queue = StepQueue(executor)
    responses = [queue.run("1.1.1.1", story.search(name, 2)) for name in "abc"]
    responses.append(queue.run("2.2.2.2", story.search("x", 2)))
    while executor.begun:
        assert len(executor.begun) == 1
        executor.finish_one()
    assert [line for line in story.lines if "ended" not in line] == [
        "a0", "b0", "x0", "c0", "x1", "a1", "b1", "c1"
    ]  # fmt: skip
    assert all(isinstance(each, asyncio.Future) and each.result() for each in responses)


@on_a_loop
async def test_what_has_no_step_is_answered_at_once() -> None:
    assert isinstance(StepQueue(HeldExecutor()).run("1.1.1.1", Story().search("a", 0)), Message)


@on_a_loop
async def test_a_client_that_is_gone_ends_its_search_and_no_other() -> None:
    story, executor = Story(), HeldExecutor()
    queue = StepQueue(executor)
    running, waiting, other = (queue.run("1.1.1.1", story.search(name, 3)) for name in "abc")
    assert isinstance(running, asyncio.Future)
    assert isinstance(waiting, asyncio.Future)
    running.cancel()
    waiting.cancel()
    await asyncio.sleep(0)
    assert story.lines == ["b ended"], "the step that runs has the search's file"
    while executor.begun:
        executor.finish_one()
    assert story.lines == ["b ended", "a0", "a ended", "c0", "c1", "c2", "c ended"]
    assert isinstance(other, asyncio.Future)
    assert other.done()


@on_a_loop
async def test_what_a_step_raises_is_the_searchs() -> None:
    def fail() -> None:
        raise StorageError("no such bytes")

    def search(catches: bool) -> Steps[Message]:
        try:
            yield fail
        except StorageError:
            if not catches:
                raise
        return ListOffsetsResponse(topics=[])

    queue = StepQueue(InlineExecutor())
    caught, raised = (queue.run("1.1.1.1", search(catches)) for catches in (True, False))
    assert isinstance(caught, asyncio.Future)
    assert isinstance(raised, asyncio.Future)
    assert caught.result() == ListOffsetsResponse(topics=[])
    assert isinstance(raised.exception(), StorageError)


def test_so_many_steps_are_done_at_a_time_and_what_they_come_to_is_told() -> None:
    story, executor = Story(), HeldExecutor()
    queue = StepQueue(executor, running_max=2)
    outcomes: list[Outcome[Message]] = []
    for name in "abc":
        queue.submit("1.1.1.1", story.search(name, 1), outcomes.append)
    assert queue.submit("1.1.1.1", story.search("d", 0), outcomes.append) is None
    assert len(outcomes) == 1
    assert len(executor.begun) == 2
    executor.finish_one()
    assert (len(outcomes), len(executor.begun)) == (2, 2)
    while executor.begun:
        executor.finish_one()
    assert [outcome.value() for outcome in outcomes] == [ListOffsetsResponse(topics=[])] * 4


def test_after_the_end_nothing_goes_on_and_nobody_is_called_back() -> None:
    story, executor = Story(), HeldExecutor()
    queue = StepQueue(executor)
    outcomes: list[Outcome[Message]] = []
    for name in "ab":
        queue.submit("1.1.1.1", story.search(name, 2), outcomes.append)
    queue.close()
    assert story.lines == ["b ended"]
    executor.finish_one()
    assert story.lines == ["b ended", "a0", "a ended"]
    assert (outcomes, executor.begun) == ([], [])


def test_who_fails_when_it_is_told_holds_up_no_other() -> None:
    def fail(outcome: Outcome[Message]) -> None:
        raise ZeroDivisionError

    story, executor = Story(), HeldExecutor()
    queue = StepQueue(executor)
    outcomes: list[Outcome[Message]] = []
    queue.submit("1.1.1.1", story.search("a", 1), fail)
    queue.submit("1.1.1.1", story.search("b", 1), outcomes.append)
    with pytest.raises(ZeroDivisionError):
        executor.finish_one()
    executor.finish_one()
    assert len(outcomes) == 1
