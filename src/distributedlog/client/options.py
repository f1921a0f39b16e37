"""What every client can be told.  Pure.

The defaults are Kafka's clients', but for `connect_timeout_ms`, which has a person waiting.
"""

from dataclasses import dataclass
from typing import Final

from distributedlog.model.errors import ConfigError

MIB: Final = 1024 * 1024
TIMEOUT_MS_MAX: Final = 2**31 - 1
JITTER_PERCENT: Final = 20
PAUSE_DOUBLINGS_MAX: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    client_id: str = "dlog"
    connect_timeout_ms: int = 10_000
    """The time to connect and to learn what the broker speaks."""
    request_timeout_ms: int = 30_000
    """The time from sending one request to its response."""
    call_timeout_ms: int = 60_000
    """The time for one call with all its retries."""
    retry_pause_ms: int = 100
    retry_pause_ms_max: int = 1_000
    reconnect_pause_ms: int = 50
    """How long a broker that could not be reached is not tried again; twice as long after each failure."""
    reconnect_pause_ms_max: int = 1_000
    metadata_age_ms_max: int = 300_000
    frame_bytes_max: int = 100 * MIB
    waits_for_first_contact: bool = False
    """Whether a cluster that was never reached is waited for like one that is gone for a while."""
    rebootstraps: bool = True
    """Whether the bootstrap list is asked again when none of the brokers that are known can be reached."""
    rebootstrap_after_ms: int = 300_000
    """How long the metadata may fail to be renewed until all that is known is given up for the bootstrap
    list."""

    def __post_init__(self) -> None:
        for name in (
            "connect_timeout_ms",
            "request_timeout_ms",
            "call_timeout_ms",
            "retry_pause_ms",
            "retry_pause_ms_max",
            "reconnect_pause_ms",
            "reconnect_pause_ms_max",
            "rebootstrap_after_ms",
            "metadata_age_ms_max",
            "frame_bytes_max",
        ):
            value = getattr(self, name)
            if not 0 < value <= TIMEOUT_MS_MAX:
                raise ConfigError(f"{name} is {value}; it must be from 1 to {TIMEOUT_MS_MAX}")

    def pause_ms_range(self, attempt: int) -> tuple[int, int]:
        """The shortest and the longest pause before try number `attempt` (1: the first retry).

        Each pause is twice the one before up to the largest, give or take a fifth, so that clients that
        failed together do not come back together.
        """
        return _doubling(self.retry_pause_ms, self.retry_pause_ms_max, attempt)

    def reconnect_ms_range(self, tries: int) -> tuple[int, int]:
        """The same for connecting to a broker that could not be reached `tries` times."""
        return _doubling(self.reconnect_pause_ms, self.reconnect_pause_ms_max, tries)


def _doubling(pause_ms: int, pause_ms_max: int, attempt: int) -> tuple[int, int]:
    doubled = pause_ms << min(max(attempt - 1, 0), PAUSE_DOUBLINGS_MAX)
    middle = min(doubled, pause_ms_max)
    spread = middle * JITTER_PERCENT // 100
    return max(1, middle - spread), middle + spread
