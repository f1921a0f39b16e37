"""What the programs on confluent-kafka have in common."""

from typing import Any

COMMON: dict[str, Any] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    # When no broker can be reached librdkafka 2.16 throws away all that it knows and begins with its
    # bootstrap servers again; what waits for a coordinator then may wait for minutes (its issue 5511).
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}
