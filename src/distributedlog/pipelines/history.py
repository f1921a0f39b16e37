"""What happened in a pipeline's runs, line by line, for whoever asks later or meanwhile.

One JSON object a line, appended in one write each:

| type   | fields beside `time_ms` and `run`                                                                 |
|--------|---------------------------------------------------------------------------------------------------|
| run    | `state` started, completed or failed; at the end `milliseconds`, `rows`, and `error` if it failed |
| idle   | nothing was new since run `run`, so that none was made                                            |
| batch  | `flow`, `batch`, `rows`, `rows_total`, `rows_out`, `rows_out_total`, `milliseconds`, `positions`, |
|        | `rows_too_late`; rows are those read, rows out those written                                      |
| flow   | `flow`, `state`, and `error` of one that failed                                                   |
| source | `flow`, `bootstrap`, `group`: whom a flow that reads topics tells how far it is; when it changes  |
| compaction | `table`, `files_before`, `files_after`: small files were merged                              |
| lag    | `records`: how many the pipeline is behind its topics; null while no broker answers               |

A crash may cut the last line: a line that is no JSON is skipped, and the next one begins on its own.  It is
a journal for people; where a flow goes on is decided by Spark's checkpoints alone.  The file is moved aside
(`.1`) when it is large, so there are at most two; `rows_total` is in every line so that nothing is
forgotten by that.
"""

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

FILE_BYTES_MAX: Final = 8 * 1024 * 1024
LINE_BYTES_MAX: Final = 1024 * 1024
ERROR_CHARACTERS_MAX: Final = 4_000

Event = Mapping[str, Any]


class History:
    """Written by the one process that runs the pipeline, from several of its threads."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._mutex = threading.Lock()
        os.makedirs(os.path.dirname(path), exist_ok=True)

    def note(self, kind: str, **fields: object) -> dict[str, Any]:
        event = {"type": kind, "time_ms": int(time.time() * 1000), **fields}
        if isinstance(event.get("error"), str):
            event["error"] = str(event["error"])[:ERROR_CHARACTERS_MAX]
        line = json.dumps(event, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        with self._mutex:
            self._move_aside_if_large()
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                size = os.fstat(descriptor).st_size
                if size and os.pread(descriptor, 1, size - 1) != b"\n":
                    line = b"\n" + line
                os.write(descriptor, line)
            finally:
                os.close(descriptor)
        return event

    def _move_aside_if_large(self) -> None:
        try:
            if os.path.getsize(self._path) >= FILE_BYTES_MAX:
                os.replace(self._path, self._path + ".1")
        except FileNotFoundError:
            pass


def read_history(path: str) -> Iterator[Event]:
    """All that is there, oldest first."""
    for each in (path + ".1", path):
        try:
            with open(each, "rb") as file:
                while line := file.readline(LINE_BYTES_MAX):
                    event = _parse(line)
                    if event is not None:
                        yield event
        except FileNotFoundError:
            continue


def _parse(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    if (
        isinstance(event, dict)
        and isinstance(event.get("type"), str)
        and isinstance(event.get("time_ms"), int)
    ):
        return event
    return None
