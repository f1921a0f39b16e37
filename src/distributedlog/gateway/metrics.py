"""What the gateway counts, for whoever gives it something to count with.

The gateway is a client like any other, and knows no way to show numbers: its command puts them on a port
(`cli/gateway_metrics`).
"""

from typing import Protocol


class GatewayMetrics(Protocol):
    """Counts what the gateway does.  Called on its loop."""

    def called(self, method: str, status: str, seconds: float, received_bytes: int) -> None:
        """A call has ended, with gRPC's word for how."""

    def sent(self, method: str, size_bytes: int) -> None:
        """A response, or one of a stream's, was handed to gRPC."""

    def set_streams(self, count: int) -> None: ...

    def set_health(self, reason: str | None) -> None:
        """Takes why the cluster does not serve; None if it does."""


class Uncounted:
    """Counts nothing."""

    def called(self, method: str, status: str, seconds: float, received_bytes: int) -> None: ...

    def sent(self, method: str, size_bytes: int) -> None: ...

    def set_streams(self, count: int) -> None: ...

    def set_health(self, reason: str | None) -> None: ...
