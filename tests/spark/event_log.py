"""What Spark's own event log tells of tasks that were run twice at a time."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple


class Speculation(NamedTuple):
    """Attempts that were begun because another one was slow."""

    begun: int
    won: int


def settings(directory: Path) -> dict[str, str]:
    """Has a session write its log there, as lines of text; the directory has to exist."""
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": directory.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }


def speculation(directory: Path) -> Speculation:
    """Counts over all sessions that have written there."""
    begun = won = 0
    for event in _events(directory):
        if not event.get("Task Info", {}).get("Speculative"):
            continue
        begun += event["Event"] == "SparkListenerTaskStart"
        won += (
            event["Event"] == "SparkListenerTaskEnd"
            and event.get("Task End Reason", {}).get("Reason") == "Success"
        )
    return Speculation(begun, won)


def _events(directory: Path) -> Iterator[Mapping[str, Any]]:
    for log in sorted(directory.iterdir()):
        if not log.is_file() or log.name.startswith("."):
            continue
        for line in log.read_text().splitlines(keepends=True):
            if line.endswith("\n"):  # the last line of a driver that was killed is cut off
                yield json.loads(line)
