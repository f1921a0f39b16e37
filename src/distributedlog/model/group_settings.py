"""Settings that one consumer group may have for itself, by Kafka's names, and their values.

They count for groups of the new consumer protocol: members of classic groups choose their own.  The bounds
are the brokers' (see `groups.consumer.settings`); here is what can be said without them.
"""

from collections.abc import Mapping
from typing import Final

from distributedlog.model.errors import ConfigError

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
GROUP_SETTINGS: Final = (HEARTBEAT_INTERVAL, SESSION_TIMEOUT)
DIGITS_MAX: Final = 10


def read_ms(name: str, text: str) -> int:
    """At least 1."""
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX and int(digits) >= 1):
        raise ConfigError(f"{name} cannot be {text[:100]!r}: it is a whole number, at least 1")
    return int(digits)


def read_settings(settings: Mapping[str, str]) -> dict[str, int]:
    unknown = [name for name in settings if name not in GROUP_SETTINGS]
    if unknown:
        raise ConfigError(
            f"unknown setting {unknown[0][:100]!r}; of a group known are {', '.join(GROUP_SETTINGS)}"
        )
    return {name: read_ms(name, value) for name, value in settings.items()}
