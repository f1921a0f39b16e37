"""A clock that stands still until it is told to go on, and chance from a seed."""

import random

from distributedlog.model.ids import Uuid
from distributedlog.ports.randomness import uuid_from


class ManualClock:
    """Both clocks of the port; the wall clock may be set apart from the monotonic one, as real ones jump."""

    def __init__(self, wall_ms: int = 1_700_000_000_000, monotonic_ms: int = 0) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, duration_ms: int) -> None:
        if duration_ms < 0:
            raise ValueError("time does not go back; set_wall does")
        self._wall_ms += duration_ms
        self._monotonic_ms += duration_ms

    def set_wall(self, wall_ms: int) -> None:
        """The wall clock jumps; the monotonic one does not notice."""
        self._wall_ms = wall_ms


class SeededRandomness:
    """Draws the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def between(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def new_uuid(self) -> Uuid:
        return uuid_from(self._random.randbytes)
