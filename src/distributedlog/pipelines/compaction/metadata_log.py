"""Spark's compactible metadata log (`CompactibleFileStreamLog`), read and changed where it lies.

The sink of a streaming table says in one which files the table has (`_spark_metadata`); a stream that reads
files, which it has taken (`sources/N` of its checkpoint).

    0  1  2  …  8  9.compact  10  11          a file for each micro-batch; every tenth holds all before it too
    v1
    {"path":"file:///…/part-00000-….parquet","size":1234, …}        an entry a line

| what counts             | the newest `.compact` and all behind it; without one, all        |
|-------------------------|------------------------------------------------------------------|
| a number missing in it  | the log is not one that we understand: `PipelineError`           |
| `.9.compact.crc`        | Hadoop's checksum of `9.compact`; without it nothing is compared |

**Replacing a file** of it: the new one is written beside it and synced, the checksum of the old one is
removed, the new one renamed into its place.  After a crash at any point Spark reads the old one or the new
one whole.  A reader that has opened the old one goes on with it.
"""

import contextlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from distributedlog.model.errors import PipelineError
from distributedlog.pipelines.durable_files import replace_file, sync_directory

VERSION_LINE: Final = "v1"
COMPACT: Final = ".compact"
FILE_BYTES_MAX: Final = 512 * 1024 * 1024
_BATCH: Final = re.compile(r"([0-9]{1,18})(\.compact)?")

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class BatchFile:
    path: str
    batch: int
    is_compact: bool


def valid_batches(directory: str) -> tuple[BatchFile, ...]:
    """Those that count, oldest first; empty if there is no log."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return ()
    found: dict[int, BatchFile] = {}
    for name in names:
        if matched := _BATCH.fullmatch(name):
            batch = BatchFile(os.path.join(directory, name), int(matched[1]), matched[2] is not None)
            if batch.batch in found:
                raise PipelineError(f"{directory} has batch {batch.batch} twice")
            found[batch.batch] = batch
    if not found:
        return ()
    latest = max(found)
    first = max((each.batch for each in found.values() if each.is_compact), default=0)
    if missing := [number for number in range(first, latest + 1) if number not in found]:
        raise PipelineError(f"{directory} has no batch {missing[0]}, and Spark cannot read it without")
    return tuple(found[number] for number in range(first, latest + 1))


def read_entries(batch: BatchFile) -> list[Entry]:
    with open(batch.path, "rb") as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise PipelineError(f"{batch.path} has more than {FILE_BYTES_MAX:,} bytes")
    try:
        version, *lines = data.decode("utf-8").split("\n")
        if version != VERSION_LINE:
            raise PipelineError(f"{batch.path} is of version {version[:20]!r}, and only v1 is known")
        entries = [json.loads(line) for line in lines]
    except ValueError as error:
        raise PipelineError(f"{batch.path} is no log of Spark's: {error}") from error
    if not all(isinstance(each, dict) and isinstance(each.get("path"), str) for each in entries):
        raise PipelineError(f"{batch.path} has an entry without a path")
    return entries


def local_path(place: str) -> str | None:
    """A file as the log writes it (`file:///a%20b`), on this machine's disk; None if it is elsewhere."""
    parts = urlsplit(place)
    if parts.scheme not in ("", "file") or parts.netloc not in ("", "localhost"):
        return None
    return unquote(parts.path)


def replace_entries(batch: BatchFile, entries: Iterable[Entry]) -> None:
    """Puts these in the place of what the file holds."""
    lines = [VERSION_LINE]
    lines += (json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in entries)
    directory, name = os.path.split(batch.path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(directory, f".{name}.crc"))
        sync_directory(directory)  # a power cut must not leave the old checksum beside the new file
    replace_file(batch.path, "\n".join(lines).encode("utf-8"))
