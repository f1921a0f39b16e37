"""Rounds: what is taken first, what never waits for what, and how outcomes come back."""

import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from distributedlog.ports.executor import Outcome
from distributedlog.ports.round_executor import SHARE_MAX, STARTED_MIN, Lanes, Piece, RoundPool, SingleRounds
from tests.simulation.executor import StepExecutor

SECONDS_MAX = 60


class Work:
    """A piece that ends when the test says so, or at once."""

    def __init__(self, *, waits: bool = False, error: BaseException | None = None) -> None:
        self.began = threading.Event()
        self.may_end = threading.Event()
        self.was_started = False
        self.error = error
        if not waits:
            self.may_end.set()

    def start(self) -> None:
        self.was_started = True

    def run(self) -> None:
        self.began.set()
        assert self.may_end.wait(SECONDS_MAX)
        if self.error is not None:
            raise self.error


# --- the order ---------------------------------------------------------------------------------


class LanesModel(RuleBasedStateMachine):
    """Against two lists: urgent ones first, several where there are many, each lane in order, others one by
    one and never on all threads."""

    @initialize(threads=st.integers(2, 5))
    def begin(self, threads: int) -> None:
        self.threads = threads
        self.lanes: Lanes[Work] = Lanes(threads)
        self.urgent: list[Work] = []
        self.others: list[Work] = []
        self.running: list[tuple[Sequence[Work], bool]] = []

    @rule(urgent=st.integers(0, 40), others=st.integers(0, 4))
    def add(self, urgent: int, others: int) -> None:
        first, second = [Work() for _ in range(urgent)], [Work() for _ in range(others)]
        self.lanes.add(first, second)
        self.urgent += first
        self.others += second

    @precondition(lambda self: self.others or self.running)
    @rule(data=st.data())
    def hurry(self, data: st.DataObject) -> None:
        running = [work for pieces, _ in self.running for work in pieces]
        work = data.draw(st.sampled_from(self.others + running))
        self.lanes.hurry(work)
        if work in self.others:
            self.others.remove(work)
            self.urgent.append(work)

    @precondition(lambda self: len(self.running) < self.threads)
    @rule()
    def take(self) -> None:
        taken = self.lanes.take()
        others_running = sum(not is_urgent for _, is_urgent in self.running)
        if self.urgent:
            assert taken, "an urgent piece is taken whenever a thread is free"
            count = len(taken)
            assert list(taken) == self.urgent[:count]
            assert count == 1 or (count - 1) * self.threads < len(self.urgent), "no more than its share"
            assert count == SHARE_MAX or count * self.threads >= len(self.urgent)
            del self.urgent[:count]
            self.running.append((taken, True))
        elif self.others and others_running < self.threads - 1:
            assert list(taken) == [self.others.pop(0)]
            self.running.append((taken, False))
        else:
            assert not taken

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        ended = data.draw(st.sampled_from(self.running))
        self.running.remove(ended)
        self.lanes.end(ended[0])

    @invariant()
    def others_leave_a_thread(self) -> None:
        if hasattr(self, "threads"):
            assert sum(not is_urgent for _, is_urgent in self.running) < self.threads
            assert len(self.lanes) == len(self.urgent) + len(self.others)


TestLanes = LanesModel.TestCase


def test_one_thread_would_let_what_is_urgent_wait() -> None:
    with pytest.raises(ValueError, match="one thread"):
        Lanes(1)


# --- threads -----------------------------------------------------------------------------------


class Loop:
    """A loop of which the test runs each posted callback."""

    def __init__(self) -> None:
        self.posted: queue.Queue[Callable[[], None]] = queue.Queue()
        self.done: list[tuple[Piece, BaseException | None]] = []
        self.threads: set[str] = set()

    def note(self, piece: Piece, outcome: Outcome[None]) -> None:
        self.threads.add(threading.current_thread().name)
        self.done.append((piece, outcome.error))

    def run_until(self, count: int) -> int:
        """Runs callbacks until so many pieces are done; how many callbacks that took."""
        callbacks = 0
        while len(self.done) < count:
            self.posted.get(timeout=SECONDS_MAX)()
            callbacks += 1
        return callbacks


def test_every_piece_of_a_round_is_done_once_and_told_on_the_loop() -> None:
    loop, seconds = Loop(), list[float]()
    pool = RoundPool(loop.posted.put, measured=seconds.append)
    works = [Work() for _ in range(50)]
    pool.run_round(works[:20], works[20:], loop.note)
    loop.run_until(50)
    assert {piece for piece, _ in loop.done} == set(works)
    assert len(seconds) == 50
    assert loop.threads == {threading.current_thread().name}
    pool.close()


def test_many_outcomes_travel_in_one_callback() -> None:
    loop = Loop()
    pool = RoundPool(loop.posted.put, threads=2)
    pool.run_round([Work() for _ in range(30)], [], loop.note)
    pool.close()  # waits for all of them, and the loop has not looked yet
    assert loop.posted.qsize() == 1
    assert loop.run_until(30) == 1


def test_many_urgent_pieces_are_told_of_in_a_few_callbacks() -> None:
    loop = Loop()
    pool = RoundPool(loop.posted.put, threads=2)
    works = [Work() for _ in range(100)]
    pool.run_round(works, [], loop.note)
    assert loop.run_until(100) <= 20, "not one for each"
    assert {piece for piece, _ in loop.done} == set(works)
    pool.close()


def test_the_pieces_of_a_large_share_are_started_before_one_is_waited_for() -> None:
    loop = Loop()
    pool = RoundPool(loop.posted.put, threads=2)
    held = [Work(waits=True) for _ in range(2)]
    pool.run_round(held, [], loop.note)
    for work in held:
        assert work.began.wait(SECONDS_MAX)
    works = [Work(waits=True) for _ in range(2 * STARTED_MIN)]
    pool.run_round(works, [], loop.note)
    assert not any(work.was_started for work in works)
    held[0].may_end.set()
    assert works[0].began.wait(SECONDS_MAX)
    is_of_share = [True] * STARTED_MIN + [False] * STARTED_MIN
    assert [work.was_started for work in works] == is_of_share, "half of them are its share"
    for work in (held[1], *works):
        work.may_end.set()
    loop.run_until(2 + len(works))
    assert not held[0].was_started, "alone there is nothing to be won"
    pool.close()


def test_pieces_are_done_side_by_side() -> None:
    loop = Loop()
    pool = RoundPool(loop.posted.put, threads=3)
    works = [Work(waits=True) for _ in range(3)]
    pool.run_round(works, [], loop.note)
    for work in works:
        assert work.began.wait(SECONDS_MAX)
    for work in works:
        work.may_end.set()
    loop.run_until(3)
    pool.close()


def test_what_somebody_waits_for_does_not_wait_for_others() -> None:
    loop = Loop()
    pool = RoundPool(loop.posted.put, threads=2)
    others = [Work(waits=True) for _ in range(5)]
    pool.run_round([], others, loop.note)
    assert others[0].began.wait(SECONDS_MAX)
    urgent = Work()
    pool.run_round([urgent], [], loop.note)
    loop.run_until(1)
    assert loop.done == [(urgent, None)]
    pool.hurry(others[4])
    assert others[4].began.wait(SECONDS_MAX), "it is urgent by now, and overtakes"
    assert not others[1].began.is_set()
    for work in others:
        work.may_end.set()
    loop.run_until(6)
    pool.close()


def test_a_piece_that_fails_is_told_and_keeps_no_other_from_being_done() -> None:
    loop = Loop()
    pool = RoundPool(loop.posted.put)
    error = OSError("no")
    works = [Work(error=error), Work()]
    pool.run_round(works, [], loop.note)
    loop.run_until(2)
    assert dict(loop.done) == {works[0]: error, works[1]: None}
    pool.close()


def test_whoever_raises_when_told_keeps_no_other_from_being_told() -> None:
    loop = Loop()
    pool = RoundPool(loop.posted.put, threads=2)
    works = [Work() for _ in range(3)]

    def tell(piece: Piece, outcome: Outcome[None]) -> None:
        loop.note(piece, outcome)
        raise RuntimeError("a waiter's own fault")

    pool.run_round(works, [], tell)
    pool.close()
    for _ in range(3):
        with pytest.raises(RuntimeError, match="own fault"):
            loop.posted.get(timeout=SECONDS_MAX)()
    assert {piece for piece, _ in loop.done} == set(works)


def test_a_closed_pool_takes_no_more() -> None:
    pool = RoundPool(lambda callback: None)
    pool.close()
    with pytest.raises(RuntimeError, match="ended"):
        pool.run_round([Work()], [], lambda piece, outcome: None)


def test_on_an_ordinary_executor_each_piece_is_stepped_through() -> None:
    loop, executor = Loop(), StepExecutor()
    rounds = SingleRounds(executor)
    works = [Work(), Work()]
    rounds.run_round(works[:1], works[1:], loop.note)
    rounds.hurry(works[1])
    assert executor.waiting == 2
    executor.run_one(1)
    assert loop.done == [(works[1], None)]
    executor.run_all()
    assert loop.done == [(works[1], None), (works[0], None)]


def test_rounds_from_outcomes_go_on_for_ever_without_a_stuck_thread() -> None:
    """Each outcome begins the next round of its log, as appends do; ten logs, two threads."""
    loop = Loop()
    pool = RoundPool(loop.posted.put, threads=2)

    def again(left: int, piece: Piece, outcome: Outcome[None]) -> None:
        loop.note(piece, outcome)
        if left:
            pool.run_round(
                [Work()] if left % 2 else [], [] if left % 2 else [Work()], partial(again, left - 1)
            )

    for _ in range(10):
        pool.run_round([], [Work()], partial(again, 20))
    loop.run_until(210)
    pool.close()
