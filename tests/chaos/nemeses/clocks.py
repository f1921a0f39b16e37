"""Clocks: the wall clock of one broker jumps by up to an hour, forward or back, until healed."""

from collections.abc import Callable, Mapping

from tests.chaos.nemeses.stage import Nemesis, Stage

HOUR_MS = 3_600_000


class ClockJump:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._node = 0

    def begin(self) -> str:
        self._node = self._stage.any_broker()
        ahead_ms = self._stage.chance.randint(-HOUR_MS, HOUR_MS)
        self._stage.cluster.brokers[self._node].switches.ahead_ms = ahead_ms
        return f"clock of broker {self._node} jumps by {ahead_ms // 1000} s"

    def heal(self) -> None:
        self._stage.cluster.brokers[self._node].switches.ahead_ms = 0


MAKERS: Mapping[str, Callable[[Stage], Nemesis]] = {"clock-jump": ClockJump}
