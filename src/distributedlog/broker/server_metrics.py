"""What the Kafka server tells about itself: called on the hot path, so an implementation only counts."""

from typing import Protocol


class ServerMetrics(Protocol):
    def connection_opened(self, listener: str) -> None: ...

    def connection_closed(self, listener: str, reason: str) -> None:
        """`reason` is one of a few fixed words."""
        ...

    def request_received(self, api: str, version: int, size: int) -> None:
        """`size` in bytes, without the frame's own length."""
        ...

    def request_answered(self, api: str, seconds: float, error_code: int) -> None:
        """From the frame's arrival until its answer is ready to be sent."""
        ...

    def bytes_out(self, n: int) -> None: ...

    def parked(self, delta: int) -> None:
        """How many more, or fewer, requests wait for their second phase."""
        ...


class NoMetrics:
    """Counts nothing."""

    def connection_opened(self, listener: str) -> None:
        return

    def connection_closed(self, listener: str, reason: str) -> None:
        return

    def request_received(self, api: str, version: int, size: int) -> None:
        return

    def request_answered(self, api: str, seconds: float, error_code: int) -> None:
        return

    def bytes_out(self, n: int) -> None:
        return

    def parked(self, delta: int) -> None:
        return
