"""What the process says of itself, on stderr: one line for each thing that happened.

    console   2026-01-31T12:00:00.123Z  WARN   node 1  control  raft_driver  the disk is slow  seconds=2.1
    json      {"time": "2026-01-31T12:00:00.123Z", "level": "warning", "node": 1, "plane": "control",
               "logger": "distributedlog.broker.cluster.raft_driver", "message": "the disk is slow",
               "seconds": 2.1}

Modules log with the standard library (`logging.getLogger(__name__)`); fields of their own go into
`extra={"fields": {...}}`.  The plane is known from the thread.  What peers wrote may be in a message: control
characters are escaped, so that a line is always one line, except for a traceback on the console.

The formatter is ours because importing a logging library takes up to half of the time in which a node
has to be ready.
"""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, Final, TextIO

PACKAGE: Final = "distributedlog"
CONTROL_THREAD: Final = "dlog-control"
MESSAGE_LENGTH_MAX: Final = 10_000
LEVEL_WORDS: Final = {"WARNING": "WARN", "CRITICAL": "FATAL"}


def configure_logging(*, node_id: int, log_format: str, log_level: str, stream: TextIO | None = None) -> None:
    """Sends everything that is logged in this process to `stream` (stderr).  Replaces what was set up."""
    formatter = JsonFormatter(node_id) if log_format == "json" else ConsoleFormatter(node_id)
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger(PACKAGE).setLevel(log_level.upper())
    logging.raiseExceptions = False  # a reader of stderr that left is no reason to fail


class JsonFormatter(logging.Formatter):
    def __init__(self, node_id: int) -> None:
        super().__init__()
        self._node_id = node_id

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "node": self._node_id,
            "plane": _plane_of(record),
            "logger": record.name,
            "message": _message_of(record),
        }
        for name, value in _fields_of(record).items():
            line.setdefault(name, value)
        if record.exc_info is not None and record.exc_info[0] is not None:
            line["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(line, default=str)


class ConsoleFormatter(logging.Formatter):
    def __init__(self, node_id: int) -> None:
        super().__init__()
        self._node_id = node_id

    def format(self, record: logging.LogRecord) -> str:
        level = LEVEL_WORDS.get(record.levelname, record.levelname)
        name = record.name.removeprefix(f"{PACKAGE}.").removeprefix("broker.")
        parts = [
            _time_of(record),
            level.ljust(5),
            f"node {self._node_id}",
            _plane_of(record).ljust(7),
            name,
            _printable(_message_of(record)),
        ]
        parts.extend(f"{key}={_printable(str(value))}" for key, value in _fields_of(record).items())
        line = "  ".join(parts)
        if record.exc_info is not None and record.exc_info[0] is not None:
            trace = "".join(traceback.format_exception(*record.exc_info)).rstrip()
            line += "\n    " + trace.replace("\n", "\n    ")
        return line


def _time_of(record: logging.LogRecord) -> str:
    time = datetime.fromtimestamp(record.created, UTC)
    return f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03d}Z"


def _plane_of(record: logging.LogRecord) -> str:
    return "control" if (record.threadName or "").startswith(CONTROL_THREAD) else "data"


def _message_of(record: logging.LogRecord) -> str:
    try:
        message = record.getMessage()
    except (TypeError, ValueError) as error:
        message = f"{record.msg} (with arguments that do not fit: {error})"
    return message if len(message) <= MESSAGE_LENGTH_MAX else message[:MESSAGE_LENGTH_MAX] + "…"


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    fields = getattr(record, "fields", None)
    return fields if isinstance(fields, dict) else {}


def _printable(text: str) -> str:
    return text if text.isprintable() else json.dumps(text, ensure_ascii=False)[1:-1].replace("\x7f", "\\x7f")
