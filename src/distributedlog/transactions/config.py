"""The bounds within which transactions live."""

from dataclasses import dataclass, replace
from typing import Final

from distributedlog.model.config import DAY_MS, HOUR_MS, MINUTE_MS
from distributedlog.model.errors import InvalidTransactionTimeoutError

TRANSACTIONAL_ID_BYTES_MAX: Final = 10_000
"""Well below the 32,767 bytes that the record format can hold."""


def check_timeout(timeout_ms: int, timeout_ms_max: int) -> None:
    """Checks what a producer asks for; whoever finds that it is wrong says so, coordinator or not."""
    if not 0 < timeout_ms <= timeout_ms_max:
        raise InvalidTransactionTimeoutError(
            f"the transaction timeout is {timeout_ms} ms; it must lie between 1 and {timeout_ms_max} "
            "(transaction.max.timeout.ms)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    timeout_ms_max: int = 15 * MINUTE_MS
    """The longest timeout that a producer may ask for."""
    id_expiration_ms: int = 7 * DAY_MS
    """How long a transactional id is kept that nothing is done with."""
    id_expiration_check_ms: int = 1 * HOUR_MS
    ids_max: int = 100_000
    """The transactional ids of one partition of the topic."""
    sink_queries_max: int = 100_000
    """The queries of sinks of one partition of the topic."""
    sink_attempts_max: int = 10_000
    """The attempts that may write in one batch of a sink."""
    entry_bytes_max: int = 1_000_000
    """What one record may take: the topic's `max.message.bytes`, less a little."""

    def with_entry_bytes_max(self, entry_bytes_max: int) -> "TransactionConfig":
        return replace(self, entry_bytes_max=entry_bytes_max)
