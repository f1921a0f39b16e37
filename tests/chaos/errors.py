"""Errors that consumers met, and went on: each is counted, and some may not come whatever happens to brokers.

That a broker is gone, that somebody else leads or coordinates, or that a group rebalances is what the faults
are there for.  That a topic is unknown that is there, an offset out of range, bytes that are corrupt or a
broker that does not know what happened are none of what a client may be told by any fault.
"""

from collections import Counter
from typing import Final

from distributedlog.model.error_codes import ErrorCode
from tests.reliability.checker import Finding
from tests.reliability.journal import Met

NEVER: Final = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""What a broker said; librdkafka itself calls each partition unknown (-190) while it reaches no broker."""


def judge_errors(met: Counter[Met]) -> list[Finding]:
    strange = Counter({each: count for each, count in met.items() if each.code in NEVER})
    return [Finding("error met", f"{each}, {count} times") for each, count in sorted_by_name(strange)]


def describe_errors(met: Counter[Met]) -> str:
    told = "; ".join(f"{each} {count}" for each, count in sorted_by_name(met)) or "none"
    return f"errors that consumers met: {told}"


def sorted_by_name(met: Counter[Met]) -> list[tuple[Met, int]]:
    return sorted(met.items(), key=lambda item: str(item[0]))
