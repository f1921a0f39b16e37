"""The ready report: one JSON object that a node writes once it serves, for whoever started it.

    {"id": 1, "pid": 123, "client": "127.0.0.1:9092", "control": "127.0.0.1:9093",
     "ops": "127.0.0.1:9644", "data_dir": "..."}

The addresses are those in fact listened on, so port 0 of the settings shows as what was chosen.  What is
turned off is null.  A file is replaced atomically: a reader finds no report or a whole one.  One of an
earlier run is removed before anything is started: it speaks of a process that is gone.
"""

import contextlib
import json
import os
from typing import NamedTuple


class ReadyReport(NamedTuple):
    id: int
    pid: int
    client: str | None
    """Null for a node that is only a controller."""
    control: str
    ops: str | None
    data_dir: str

    def to_json(self) -> str:
        return json.dumps(self._asdict())


def remove_old_report(path: str) -> None:
    """Removes the report of another run; what cannot be removed cannot be replaced either, and is reported
    then."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def write_file_atomically(path: str, text: str) -> None:
    """Readers see the old file or the new one.  Not synced: nobody needs it after a power cut."""
    scratch = f"{path}.{os.getpid()}.tmp"
    try:
        with open(scratch, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(scratch, path)
    except BaseException:
        if os.path.exists(scratch):
            os.unlink(scratch)
        raise


def write_to_descriptor(descriptor: int, text: str) -> None:
    """Writes all of it and closes the descriptor: its reader sees one line and the end."""
    with open(descriptor, "w", encoding="utf-8") as pipe:
        pipe.write(text)
