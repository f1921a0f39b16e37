"""What the Kafka server counts of itself: called on the hot path, so an implementation only counts."""

from typing import Protocol


class ServerMetrics(Protocol):
    def connection_opened(self, listener: str) -> None: ...

    def connection_closed(self, listener: str, reason: str) -> None:
        """Counts a connection that was closed; `reason` is one of a few fixed words."""
        ...

    def request_received(self, api: str, version: int, size: int) -> None:
        """Counts a request of `size` bytes, without the frame's own length."""
        ...

    def request_answered(self, api: str, seconds: float, error_code: int) -> None:
        """Counts a response, and the time from the frame's arrival until it is ready to be sent."""
        ...

    def bytes_out(self, n: int) -> None: ...

    def requests_delayed(self, delta: int) -> None:
        """Counts how many more, or fewer, requests wait for their second phase."""
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

    def requests_delayed(self, delta: int) -> None:
        return
