"""A clock whose wall time jumps, as the switches say; what is monotonic stays so."""

from distributedlog.ports.clock import SystemClock
from tests.chaos.switches import Switches


class JumpingClock:
    def __init__(self, switches: Switches) -> None:
        self._switches = switches
        self._system = SystemClock()

    def wall_ms(self) -> int:
        return self._system.wall_ms() + self._switches.ahead_ms

    def monotonic_ms(self) -> int:
        return self._system.monotonic_ms()
