"""Rounds: many pieces of blocking work handed over at once, done side by side by threads of their own.

    loop ── run_round(urgent, others) ──►  two lanes  ◄── take ── threads
     ▲                                                              │ one after the other, side by side
     └───────── one posted callback for all that are done by then ◄─┘

A piece is *urgent* if somebody waits for it.  A thread that is free takes an urgent piece if there is one.
The others never occupy all threads, so that an urgent piece does not wait for work that nobody waits for.
`hurry` moves a piece that has not begun to the urgent lane.  Within a lane pieces are taken in the order they
came.

A round costs one hand-over, whatever the number of its pieces: threads are woken that are asleep, and not
more than there are pieces.  Where many urgent ones wait a thread takes several, its share of them, and their
outcomes are posted together when the last of them has ended: a round of a hundred logs wakes the loop a few
times, and not for each.  The pieces of a large share are all started before the first of them is waited for.
The shares get smaller towards the end, so that the threads end together.  Others are taken one by one: each
may become urgent as long as it has not begun.  What ends before the loop has looked travels with what ended
before it.

`Lanes` is the order alone, pure; `RoundPool` has the threads; `SingleRounds` makes every piece a piece of
work of an ordinary executor, which simulations and tests step through.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Final, Generic, Protocol, TypeVar

from distributedlog.ports.executor import Executor, Outcome

ROUND_THREADS: Final = 4
SHARE_MAX: Final = 16
"""The urgent pieces that a thread takes at a time, at most: they are told of together."""
STARTED_MIN: Final = 8
"""The pieces of a share, at least, for which starting them first costs less than it saves."""


class Piece(Protocol):
    def start(self) -> None:
        """Begins what `run` waits for, and does not wait.  On any thread; never raises."""
        ...

    def run(self) -> None:
        """Waits for the operating system.  On any thread."""
        ...


P = TypeVar("P", bound=Piece)
PieceDone = Callable[[Piece, Outcome[None]], None]


class RoundExecutor(Protocol):
    def run_round(self, urgent: Sequence[Piece], others: Sequence[Piece], done: PieceDone) -> None:
        """Runs all pieces; `done` is called once for each, on the loop."""
        ...

    def hurry(self, piece: Piece) -> None:
        """Somebody waits for this piece now.  Nothing happens if it has begun, or is done."""
        ...


class Lanes(Generic[P]):
    """What is taken next, and what is under way."""

    def __init__(self, threads: int) -> None:
        if threads < 2:
            raise ValueError("with one thread an urgent piece would wait for others")
        self._threads = threads
        self._others_max = threads - 1
        self._urgent: dict[P, None] = {}
        self._others: dict[P, None] = {}
        self._others_running: set[P] = set()

    def __len__(self) -> int:
        """Returns how many pieces have not begun."""
        return len(self._urgent) + len(self._others)

    def add(self, urgent: Sequence[P], others: Sequence[P]) -> None:
        self._urgent.update(dict.fromkeys(urgent))
        self._others.update(dict.fromkeys(others))

    def hurry(self, piece: P) -> None:
        if piece in self._others:
            del self._others[piece]
            self._urgent[piece] = None

    def take(self) -> Sequence[P]:
        """Returns the pieces that a free thread runs now, one after the other; none if it has to wait."""
        if self._urgent:
            share = min(-(-len(self._urgent) // self._threads), SHARE_MAX)
            pieces = list(islice(self._urgent, share))
            for piece in pieces:
                del self._urgent[piece]
            return pieces
        if self._others and len(self._others_running) < self._others_max:
            piece = next(iter(self._others))
            del self._others[piece]
            self._others_running.add(piece)
            return (piece,)
        return ()

    def end(self, pieces: Iterable[P]) -> None:
        self._others_running.difference_update(pieces)


class RoundPool:
    """Threads of their own for rounds; outcomes come back by `post`, which any thread may call.

    `measured` is told, with the outcome, how many seconds the piece took.
    """

    def __init__(
        self,
        post: Callable[[Callable[[], None]], None],
        *,
        threads: int = ROUND_THREADS,
        name: str = "dlog-sync",
        measured: Callable[[float], None] | None = None,
    ) -> None:
        self._post = post
        self._name = name
        self._measured = measured
        self._lanes: Lanes[Piece] = Lanes(threads)
        self._work = threading.Condition()
        """Guards everything below, and the lanes."""
        self._threads_max = threads
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._done: dict[Piece, PieceDone] = {}
        self._ended: list[tuple[Piece, Outcome[None], float]] = []
        self._is_closed = False

    def run_round(self, urgent: Sequence[Piece], others: Sequence[Piece], done: PieceDone) -> None:
        with self._work:
            if self._is_closed:
                raise RuntimeError("the threads for rounds have ended")
            self._lanes.add(urgent, others)
            for piece in (*urgent, *others):
                self._done[piece] = done
            wanted = len(self._lanes)
            self._work.notify(wanted)
            for _ in range(min(wanted - self._idle, self._threads_max - len(self._threads))):
                self._start_thread()

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def hurry(self, piece: Piece) -> None:
        with self._work:
            self._lanes.hurry(piece)
            self._work.notify()

    def _run(self) -> None:
        while True:
            with self._work:
                pieces = self._take()
            if not pieces:
                return
            if len(pieces) >= STARTED_MIN:
                for piece in pieces:
                    piece.start()
            ended = [_run_piece(piece) for piece in pieces]
            with self._work:
                self._lanes.end(pieces)
                is_first = not self._ended
                self._ended += ended
            if is_first:
                self._post(self._deliver)

    def _take(self) -> Sequence[Piece]:
        """Waits for pieces; none when there will be none any more."""
        while not (pieces := self._lanes.take()):
            if self._is_closed and not len(self._lanes):
                self._work.notify_all()
                return ()
            self._idle += 1
            self._work.wait()
            self._idle -= 1
        return pieces

    def _deliver(self) -> None:
        """Tells, on the loop, of all that is done by now."""
        with self._work:
            ended, self._ended = self._ended, []
            calls: list[Callable[[], None]] = [
                partial(self._done.pop(piece), piece, outcome) for piece, outcome, _ in ended
            ]
        for _, _, seconds in ended:
            if self._measured is not None:
                self._measured(seconds)
        self._call(calls)

    def _call(self, calls: list[Callable[[], None]]) -> None:
        """One that raises keeps no other from being told."""
        for at, call in enumerate(calls):
            try:
                call()
            except BaseException:
                self._post(partial(self._call, calls[at + 1 :]))
                raise

    def close(self) -> None:
        """Waits for all that was handed over."""
        with self._work:
            self._is_closed = True
            self._work.notify_all()
        for thread in self._threads:
            thread.join()


def _run_piece(piece: Piece) -> tuple[Piece, Outcome[None], float]:
    """Returns what became of it, and how many seconds it took."""
    began = perf_counter()
    outcome = Outcome.of(piece.run)
    return piece, outcome, perf_counter() - began


class SingleRounds:
    """Rounds on an ordinary executor, which alone decides about the order."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def run_round(self, urgent: Sequence[Piece], others: Sequence[Piece], done: PieceDone) -> None:
        for piece in (*urgent, *others):
            self._run_one(piece, done)

    def _run_one(self, piece: Piece, done: PieceDone) -> None:
        self._executor.run_blocking(piece.run, lambda outcome: done(piece, outcome))

    def hurry(self, piece: Piece) -> None:
        """Changes nothing: its executor knows no lanes."""
