"""A network that delays, loses, doubles and reorders, and that can be cut, all from one seed.

Links are one-way and each has its own fate.  A message is decided on when it is sent (lost, doubled,
how late) and once more when it arrives: a link cut meanwhile swallows what was on the way.
"""

import random
from collections.abc import Callable, Iterable

from tests.simulation.loop import SimLoop

Deliver = Callable[[int, int, bytes], None]
"""Called with sender, receiver and message."""


class SimNetwork:
    def __init__(self, loop: SimLoop, chance: random.Random, deliver: Deliver) -> None:
        self._loop = loop
        self._chance = chance
        self._deliver = deliver
        self.cut: set[tuple[int, int]] = set()
        self.loss = 0.0
        self.duplication = 0.0
        self.delay_min_us = 200
        self.delay_max_us = 2_000
        self.sent = 0
        self.delivered = 0

    def calm(self) -> None:
        """Fast, whole and faithful."""
        self.cut.clear()
        self.loss = self.duplication = 0.0
        self.delay_min_us, self.delay_max_us = 200, 2_000

    def send(self, sender: int, receiver: int, message: bytes) -> None:
        self.sent += 1
        chance = self._chance
        if (sender, receiver) in self.cut or (self.loss and chance.random() < self.loss):
            return
        copies = 2 if self.duplication and chance.random() < self.duplication else 1
        for _ in range(copies):
            span_us = self.delay_max_us - self.delay_min_us
            delay_us = self.delay_min_us + int(chance.random() * span_us)
            self._loop.call_after(delay_us, self._arrive, sender, receiver, message)

    def _arrive(self, sender: int, receiver: int, message: bytes) -> None:
        if (sender, receiver) not in self.cut:
            self.delivered += 1
            self._deliver(sender, receiver, message)

    # --- ways to cut it ------------------------------------------------------------------------

    def split(self, one_side: Iterable[int], other_side: Iterable[int]) -> None:
        """No message passes between the two sides."""
        others = list(other_side)
        for a in one_side:
            for b in others:
                self.cut |= {(a, b), (b, a)}

    def mute(self, node: int, others: Iterable[int]) -> None:
        """One way: the node hears the others but is not heard."""
        self.cut |= {(node, other) for other in others if other != node}

    def deafen(self, node: int, others: Iterable[int]) -> None:
        """One way: the node is heard but hears nobody."""
        self.cut |= {(other, node) for other in others if other != node}

    def bridge(self, middle: int, one_side: Iterable[int], other_side: Iterable[int]) -> None:
        """Two sides that see each other only through one node."""
        self.split([n for n in one_side if n != middle], [n for n in other_side if n != middle])
