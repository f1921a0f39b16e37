"""Chance: jitter, election timeouts, identifiers."""

import os
import random
from typing import Protocol

from distributedlog.model.ids import ZERO_UUID, Uuid


class Randomness(Protocol):
    def between(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        ...

    def new_uuid(self) -> Uuid:
        """An identifier that nobody else has; never zero, and never one that begins with '-' in print."""
        ...


def uuid_from(draw_16_bytes: "DrawBytes") -> Uuid:
    while True:
        candidate = Uuid(draw_16_bytes(16))
        if candidate != ZERO_UUID and not str(candidate).startswith("-"):
            return candidate


class DrawBytes(Protocol):
    def __call__(self, count: int, /) -> bytes: ...


class SystemRandomness:
    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def between(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def new_uuid(self) -> Uuid:
        return uuid_from(os.urandom)
