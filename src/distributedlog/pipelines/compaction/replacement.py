"""Merged files put in the place of others.  Whoever does it holds the pipeline's lock, and no flow runs.

| step   | what                                                                        | after a crash       |
|--------|-----------------------------------------------------------------------------|---------------------|
| merged | each merged file is written in a directory of its own, and synced           | removed             |
| noted  | a note of what is to be replaced by what is left with the project           | removed             |
| placed | the merged files are moved beside the others; no log names them yet         | removed             |
| marked | streams that have read what was merged are told that they have read the     | stays, and means    |
|        | merged file (`streams`), each in one rename                                 | nothing             |
| named  | the newest `.compact` of the table's log is replaced, in one rename: from   | done                |
|        | here on readers find the merged files                                       |                     |
| swept  | by a later compaction, when nobody can still be reading them: the replaced  | done by the next    |
|        | files are removed                                                           |                     |

A crash between any two leaves a table with the same rows, for those who read all of it and for streams; what
it leaves beside that the next compaction removes.  Only files that the newest `.compact` names are merged:
what was written since is in the next one.

The note is `DIRECTORY/ID.json`.  The log says which of both sides counts: if it names all that was to be
replaced, the merged files are removed; else, after a time, the replaced ones.
"""

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Final
from urllib.parse import quote

from distributedlog.model.errors import PipelineError
from distributedlog.pipelines.compaction.metadata_log import (
    BatchFile,
    Entry,
    local_path,
    read_entries,
    replace_entries,
    valid_batches,
)
from distributedlog.pipelines.compaction.plan import Merge, plan_merges
from distributedlog.pipelines.compaction.streams import FileStream, mark_read
from distributedlog.pipelines.durable_files import replace_file, sync_directory, sync_file

METADATA: Final = "_spark_metadata"
WORKING: Final = "_dlog_compaction"
"""The name of a directory inside a table's; Spark passes over what begins so."""
NOTE_BYTES_MAX: Final = 256 * 1024 * 1024
STEPS: Final = ("merged", "noted", "placed", "marked", "named")

MergeFiles = Callable[[Sequence[str], str], None]
"""Writes the rows of files as one file into a directory that is not there yet."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """What of a table can be merged."""

    location: str
    """The path on this machine."""
    batch: BatchFile
    """The file of the log that names them."""
    merges: tuple[Merge, ...]
    files: int
    """How many the table has."""

    @property
    def files_merged(self) -> int:
        return sum(len(each.entries) for each in self.merges)


@dataclass(frozen=True, slots=True)
class Note:
    location: str
    time_ms: int
    replaced: tuple[str, ...]
    merged: tuple[str, ...]


def find_candidates(location: str, streams: Sequence[FileStream], target_bytes: int) -> Candidates | None:
    """None if the table has no log with a `.compact`: no stream writes it, or there is little of it."""
    batches = valid_batches(os.path.join(location, METADATA))
    if not batches or not batches[0].is_compact:
        return None
    entries = [read_entries(each) for each in batches]
    if any(entry.get("action") != "add" for batch in entries for entry in batch):
        raise PipelineError("its log holds entries other than those of files that were added")
    merges = plan_merges(entries[0], streams, target_bytes)
    return Candidates(location, batches[0], merges, sum(map(len, entries)))


def replace_files(
    candidates: Candidates,
    merge_files: MergeFiles,
    notes: str,
    now_ms: int,
    on_step: Callable[[str], None] = lambda _: None,
) -> int:
    """All steps but the last; how many files the table has then."""
    identifier = uuid.uuid4().hex
    remove_unfinished(candidates.location)
    places = _write_merged(candidates, merge_files)
    on_step("merged")
    merged = [
        _entry_of(merge, path, f"{identifier}-{number}")
        for number, (merge, path) in enumerate(zip(candidates.merges, places, strict=True))
    ]
    replaced = [_local(entry) for merge in candidates.merges for entry in merge.entries]
    note = Note(candidates.location, now_ms, tuple(replaced), tuple(map(_local, merged)))
    os.makedirs(notes, exist_ok=True)
    replace_file(os.path.join(notes, f"{identifier}.json"), json.dumps(asdict(note)).encode("utf-8"))
    on_step("noted")
    for path, entry in zip(places, merged, strict=True):
        _place(path, _local(entry))
    remove_unfinished(candidates.location)
    on_step("placed")
    _mark(candidates.merges, merged)
    on_step("marked")
    gone = set(replaced)
    kept = [entry for entry in read_entries(candidates.batch) if local_path(entry["path"]) not in gone]
    replace_entries(candidates.batch, [*kept, *merged])
    on_step("named")
    return candidates.files - len(replaced) + len(merged)


def remove_unfinished(location: str) -> None:
    """What a compaction that was killed has left of files that it was writing."""
    shutil.rmtree(os.path.join(location, WORKING), ignore_errors=True)


def _write_merged(candidates: Candidates, merge_files: MergeFiles) -> list[str]:
    places = []
    try:
        for number, merge in enumerate(candidates.merges):
            made = os.path.join(candidates.location, WORKING, str(number))
            merge_files([_local(each) for each in merge.entries], made)
            places.append(_only_file(made))
    except BaseException:
        remove_unfinished(candidates.location)  # a full disk is why it may have failed
        raise
    return places


def _only_file(directory: str) -> str:
    names = [name for name in os.listdir(directory) if not name.startswith(("_", "."))]
    if len(names) != 1:
        raise PipelineError(f"{len(names)} files were written where one was asked for")
    path = os.path.join(directory, names[0])
    sync_file(path)
    return path


def _entry_of(merge: Merge, path: str, identifier: str) -> Entry:
    """Returns what the log says of it: like one of those that it replaces, under a name of its own."""
    name = f"part-merged-{identifier}-{os.path.basename(path).removeprefix('part-')}"
    return {
        **merge.entries[0],
        "path": f"{merge.directory}/{quote(name)}",
        "size": os.path.getsize(path),
        "modificationTime": merge.modified_ms,
    }


def _place(path: str, to: str) -> None:
    (directory, name), (to_directory, to_name) = os.path.split(path), os.path.split(to)
    with contextlib.suppress(FileNotFoundError):  # Hadoop's checksum, if there is one
        os.rename(os.path.join(directory, f".{name}.crc"), os.path.join(to_directory, f".{to_name}.crc"))
    os.rename(path, to)
    sync_directory(to_directory)


def _mark(merges: Sequence[Merge], merged: Sequence[Entry]) -> None:
    marks: dict[str, tuple[FileStream, list[tuple[str, int]]]] = {}
    for merge, entry in zip(merges, merged, strict=True):
        for stream in merge.streams:
            known = stream.read[_local(merge.entries[0])]  # written as this stream writes it
            path = f"{known.rpartition('/')[0]}/{str(entry['path']).rpartition('/')[2]}"
            marks.setdefault(stream.log_directory, (stream, []))[1].append((path, entry["modificationTime"]))
    for stream, files in marks.values():
        mark_read(stream, files)


def _local(entry: Entry) -> str:
    path = local_path(entry["path"])
    assert path is not None, "only files of this machine are planned"
    return path


# --- afterwards --------------------------------------------------------------------------------


def sweep(notes: str, keep_ms: int, now_ms: int) -> int:
    """Removes what earlier compactions have left, if it is older than that or was never named; how many
    files are removed."""
    found = {path: _read_note(path) for path in _notes(notes)}
    removed = 0
    for path, note in found.items():
        named = _named(note.location)
        others = {each for other in found.values() if other is not note for each in other.replaced}
        if named.issuperset(note.replaced):  # it did not come so far
            gone: Iterable[str] = note.merged
        elif now_ms - note.time_ms < keep_ms:
            continue
        else:
            gone = {*note.replaced, *(set(note.merged) - others)}
        removed += sum(_remove(each) for each in gone if each not in named)
        os.unlink(path)
    return removed


def _named(location: str) -> set[str]:
    batches = valid_batches(os.path.join(location, METADATA))
    paths = (local_path(entry["path"]) for batch in batches for entry in read_entries(batch))
    return {path for path in paths if path is not None}


def _remove(path: str) -> bool:
    directory, name = os.path.split(path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(directory, f".{name}.crc"))
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def _notes(directory: str) -> list[str]:
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return sorted(os.path.join(directory, name) for name in names if name.endswith(".json"))


def _read_note(path: str) -> Note:
    with open(path, "rb") as file:
        data = file.read(NOTE_BYTES_MAX)
    try:
        told = json.loads(data)
        return Note(
            str(told["location"]),
            int(told["time_ms"]),
            tuple(map(str, told["replaced"])),
            tuple(map(str, told["merged"])),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise PipelineError(
            f"{path} is no note of a compaction ({error}); without it the files that were replaced stay"
        ) from error
