"""What the streams that read tables have read of them, by their checkpoints.

A stream that reads files keeps the list of those it has taken (`sources/N`, a metadata log whose entries have
a `path`, a `timestamp` and the `batchId` of the log), and in `offsets/N` up to which batch of that log each
of its micro-batches goes; `commits/N` says that one is done.

| an entry's batch                     | the file is                                                    |
|--------------------------------------|----------------------------------------------------------------|
| at or below that of the last commit  | read                                                           |
| above it, or it cannot be made out   | pending: taken, to be read by its name when the stream goes on |
| in no entry                          | not known to the stream: new, when it looks                    |

**A file may be marked as read** before it is there: an entry with the batch -1, which no micro-batch of any
stream has, is remembered when the stream starts and never read.  It is put before all others, because Spark
looks at the last entry to see where it is.

A pipeline keeps a checkpoint for each time a flow was made anew, in directories that are numbered; only the
highest is used.
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from distributedlog.model.errors import PipelineError
from distributedlog.pipelines.compaction.metadata_log import (
    BatchFile,
    Entry,
    local_path,
    read_entries,
    replace_entries,
    valid_batches,
)

SOURCES: Final = "sources"
NEVER_READ: Final = -1
"""The batch of an entry that is remembered and not read."""
OFFSETS_BYTES_MAX: Final = 64 * 1024 * 1024
DEPTH_MAX: Final = 12


@dataclass(frozen=True, slots=True)
class FileStream:
    """One source of a stream that reads files."""

    log_directory: str
    read: Mapping[str, str]
    """Path on this machine → as the stream writes it."""
    pending: frozenset[str]


def find_streams(root: str) -> list[FileStream]:
    """All whose checkpoints are below this directory and are in use."""
    found = []
    for checkpoint in _checkpoints(root):
        sources = os.path.join(checkpoint, SOURCES)
        logs = {name: valid_batches(os.path.join(sources, name)) for name in sorted(os.listdir(sources))}
        logs = {name: batches for name, batches in logs.items() if batches}
        committed = _committed(checkpoint, list(logs))
        for name, batches in logs.items():
            found.append(_stream(os.path.join(sources, name), batches, committed.get(name, NEVER_READ)))
    return found


def mark_read(stream: FileStream, files: Iterable[tuple[str, int]]) -> None:
    """Has the stream take these files for ones that it has read: paths as it writes them, and their times.
    It must not be running."""
    batches = valid_batches(stream.log_directory)
    if not batches:
        raise PipelineError(f"{stream.log_directory} is no longer there")
    marks: list[Entry] = [
        {"path": path, "timestamp": time_ms, "batchId": NEVER_READ} for path, time_ms in files
    ]
    replace_entries(batches[-1], [*marks, *read_entries(batches[-1])])


def _stream(directory: str, batches: tuple[BatchFile, ...], committed: int) -> FileStream:
    read: dict[str, str] = {}
    pending: set[str] = set()
    for batch in batches:
        for entry in read_entries(batch):
            at = entry.get("batchId")
            if not isinstance(at, int):
                raise PipelineError(f"{batch.path} has an entry without a batch")
            path = local_path(entry["path"])
            if path is None:
                continue
            if at <= committed or at == NEVER_READ:
                read[path] = entry["path"]
            else:
                pending.add(path)
    return FileStream(directory, read, frozenset(pending))


def _checkpoints(root: str) -> list[str]:
    """Directories that hold `sources`, but for those of flows that were made anew since."""
    found = []
    for directory, names, _ in os.walk(root):
        if SOURCES in names:
            found.append(directory)
            names.clear()
            continue
        if directory[len(root) :].count(os.sep) >= DEPTH_MAX:
            raise PipelineError(f"{root} has directories in directories without end; it holds no checkpoints")
        numbered = [name for name in names if name.isdecimal()]
        if numbered:
            names[:] = [*(set(names) - set(numbered)), max(numbered, key=int)]
    return sorted(found)


def _committed(checkpoint: str, names: list[str]) -> dict[str, int]:
    """Source → the last batch of its log that is done; sources that cannot be made out are not in it."""
    last = max(_numbers(os.path.join(checkpoint, "commits")), default=None)
    if last is None:
        return {}
    try:
        with open(os.path.join(checkpoint, "offsets", str(last)), encoding="utf-8") as file:
            version, _, *lines = file.read(OFFSETS_BYTES_MAX).split("\n")
    except (FileNotFoundError, ValueError):
        return {}
    if version == "v1":
        # Lines are in the order of the sources, which nothing says for sure: of several the lowest counts.
        positions = [at for line in lines if (at := _log_offset(line)) is not None]
        return dict.fromkeys(names, min(positions)) if positions and len(positions) >= len(names) else {}
    if version == "v2":
        told = (line.partition(":") for line in lines)
        return {name: at for name, _, offset in told if (at := _log_offset(offset)) is not None}
    return {}


def _log_offset(text: str) -> int | None:
    """Returns the offset of a source of files; others have other offsets."""
    try:
        told = json.loads(text)
    except ValueError:
        return None
    at = told.get("logOffset") if isinstance(told, dict) else told
    return at if isinstance(at, int) and not isinstance(at, bool) else None


def _numbers(directory: str) -> list[int]:
    try:
        return [int(name) for name in os.listdir(directory) if name.isdecimal()]
    except FileNotFoundError:
        return []
