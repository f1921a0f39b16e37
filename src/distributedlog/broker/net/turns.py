"""Whose requests are begun next: turns of the loop, in which every address that asks is heard.

A request is handled in one go, and some take a tenth of a second.  A client that sends a thousand of them, on
one connection or on a thousand, must not make all others wait for all of them.  So

    in each turn of the loop   every address may begin one request
    within SLICE_MS of it      whoever has more goes on
    what is left               waits for the next turn; there, addresses come one after the other, and so do
                               the connections of one address

Who asks one thing at a time waits for at most one request of each other address.  Behind one address all
share: there is nothing else to tell clients apart by before they say who they are.  A broker that has proved
to be one has turns of its own, wherever it connects from: clients beside it, however many, do not keep a
follower from fetching, nor does it take their turns.
"""

import asyncio
from collections import OrderedDict, deque
from typing import Final, Generic, Protocol, TypeVar

from distributedlog.ports.clock import Clock

SLICE_MS: Final = 2


def name_turns(host: str, broker_id: int | None) -> str:
    """Returns whose turns a connection takes: its address's, or those of the broker at the other end."""
    return host if broker_id is None else f"broker {broker_id}"


class TurnTaker(Protocol):
    @property
    def turn_name(self) -> str:
        """Whose turns it takes."""
        ...

    def take_turn(self) -> None:
        """Begins what it may; defers itself again if something is left."""
        ...


P = TypeVar("P", bound=TurnTaker)


class Turns(Generic[P]):
    __slots__ = ("_begun", "_clock", "_deferred", "_ends_ms", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._ends_ms: int | None = None
        """When the present turn's slice ends; None until something happens in it."""
        self._begun: set[str] = set()
        self._deferred: OrderedDict[str, deque[P]] = OrderedDict()

    def try_begin(self, name: str, now_ms: int) -> bool:
        """Begins a request of that name, if that may be in this turn; False if it may not."""
        if self._ends_ms is None:
            self._open(now_ms)
        elif now_ms >= self._ends_ms and name in self._begun:
            return False
        self._begun.add(name)
        return True

    def defer(self, taker: P) -> None:
        """It takes a turn as soon as it is its address's, and its own within that."""
        self._deferred.setdefault(taker.turn_name, deque()).append(taker)
        if self._ends_ms is None:
            self._open(self._clock.monotonic_ms())

    def _open(self, now_ms: int) -> None:
        self._ends_ms = now_ms + SLICE_MS
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._ends_ms = None
        self._begun.clear()
        if not self._deferred:
            return
        ends_ms = self._clock.monotonic_ms() + SLICE_MS
        # One of each address, whatever it takes; then more of them while there is time.
        firsts = len(self._deferred)
        for number in range(sum(map(len, self._deferred.values()))):
            if number >= firsts and self._clock.monotonic_ms() >= ends_ms:
                break
            self._serve_next()
        if self._deferred and self._ends_ms is None:
            self._open(ends_ms - SLICE_MS)

    def _serve_next(self) -> None:
        name, takers = self._deferred.popitem(last=False)
        taker = takers.popleft()
        if takers:
            self._deferred[name] = takers
        taker.take_turn()
