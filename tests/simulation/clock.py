"""A clock that stands still until it is told to go on."""


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
