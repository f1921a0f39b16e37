"""Time: the wall clock for what is written down, the monotonic one for what is awaited."""

import time
from typing import Protocol


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Milliseconds since 1970, as people and records count; may jump."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back; for timers and timeouts."""
        ...


class SystemClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
