"""The two loops: what is posted runs there, in order, and a loop that ended is no error."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from distributedlog.broker.loops import ControlThread, LoopScheduler, post
from distributedlog.ports.clock import SystemClock


def test_what_is_posted_to_the_control_thread_runs_there_in_order() -> None:
    thread = ControlThread("a-name")
    thread.start()
    ran: list[tuple[int, str]] = []
    done = threading.Event()
    scheduler = LoopScheduler(thread.loop, SystemClock())
    for number in range(100):
        scheduler.post(lambda number=number: ran.append((number, threading.current_thread().name)))  # type: ignore[misc]
    scheduler.post(done.set)
    assert done.wait(10)
    thread.stop()
    assert ran == [(number, "a-name") for number in range(100)]


def test_a_loop_that_posts_to_itself_is_not_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    thread = ControlThread()
    thread.start()
    wakes: list[str] = []
    woken = thread.loop.call_soon_threadsafe
    done = threading.Event()

    def wake(callback: Callable[[], None]) -> None:
        wakes.append(threading.current_thread().name)
        woken(callback)

    with monkeypatch.context() as patch:
        patch.setattr(thread.loop, "call_soon_threadsafe", wake)
        post(thread.loop, lambda: post(thread.loop, done.set))
        assert done.wait(10)
    thread.stop()
    assert wakes == [threading.current_thread().name]


def test_a_callback_in_the_past_runs_at_once_and_one_in_the_future_later() -> None:
    thread = ControlThread()
    thread.start()
    clock = SystemClock()
    scheduler = LoopScheduler(thread.loop, clock)
    order: list[str] = []
    done = threading.Event()

    def later() -> None:
        order.append("later")
        done.set()

    def plan() -> None:
        scheduler.call_at(clock.monotonic_ms() + 20, later)
        scheduler.call_at(clock.monotonic_ms() - 1000, lambda: order.append("at once"))

    scheduler.post(plan)
    assert done.wait(10)
    thread.stop()
    assert order == ["at once", "later"]


def test_stopping_cancels_what_waits_and_ends_the_thread() -> None:
    thread = ControlThread()
    thread.start()
    waiting = thread.submit(asyncio.Event().wait())
    thread.stop()
    assert waiting.cancelled() or waiting.exception() is not None
    assert thread.loop.is_closed()


def test_posting_to_a_loop_that_ended_is_no_error() -> None:
    thread = ControlThread()
    thread.start()
    thread.stop()
    post(thread.loop, lambda: pytest.fail("a closed loop runs nothing"))


def test_a_thread_that_was_never_started_can_be_stopped() -> None:
    thread = ControlThread()
    thread.stop()
    assert thread.loop.is_closed()
