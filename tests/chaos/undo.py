"""What a power cut takes away: a journal of all that was done to files and names and is not yet synced.

Every change is written to the journal before it is made, with what undoes it.  After a process is killed,
`cut_power` goes through the journal from its end and undoes what no sync has made durable:

    {"did": "write", "file", "at", "old", "size"}     bytes that were there, and the size of the file before
    {"did": "truncate", "file", "old", "size"}
    {"did": "begin", "of", "sync"}                    a sync of a file or of a directory's names begins
    {"did": "end", "of", "sync"}                      all of it that was done before that beginning is durable
    {"did": "create" | "mkdir" | "rmdir", "path"}
    {"did": "remove", "path", "file"}
    {"did": "rename", "path", "target", "file"}       `file`: what the target was before, or null

`file` is a number under which a hard link to the file is kept beside the journal, so that its bytes are found
whatever became of its name.  Changes of one directory's names are undone from the last one back to the last
sync of that directory.  What is undone of a file is all of it, or, as a disk does it, all but some first
writes: those that are kept are drawn.  A line of the journal that is not whole belongs to a change that was
not made.
"""

import base64
import json
import os
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

Entry = dict[str, Any]
UNDO, JOURNAL, FILES = "undo", "journal", "files"
KEPT_SHARE = 0.5
"""The share of files of which some first writes are kept though they were not synced."""


class UndoJournal:
    """Written by a node, and by its children: a line is one append, so that theirs do not mix."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        os.makedirs(f"{directory}/{FILES}", exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._syncs = count()
        self._descriptor = os.open(f"{directory}/{JOURNAL}", flags, 0o600)

    def note(self, did: str, **facts: Any) -> None:
        os.write(self._descriptor, json.dumps({"did": did, **facts}).encode() + b"\n")

    @contextmanager
    def syncing(self, of: int | str) -> Iterator[None]:
        """A sync of the file of that number, or of the names in that directory."""
        sync = f"{os.getpid()}-{next(self._syncs)}"
        self.note("begin", of=of, sync=sync)
        yield
        self.note("end", of=of, sync=sync)

    def hold(self, path: str) -> int:
        """The number of a file, which is kept for as long as the journal is."""
        number = os.stat(path).st_ino
        with suppress(FileExistsError):
            os.link(path, f"{self.directory}/{FILES}/{number}")
        return number


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def cut_power(directory: Path, chance: Random) -> tuple[int, int]:
    """Undoes what was not durable, and begins the journal anew; how many changes of bytes and of names."""
    journal = directory / JOURNAL
    if not journal.exists():
        return 0, 0
    with journal.open("rb") as lines:
        names, writes = unsynced(json.loads(line) for line in lines if line.endswith(b"\n"))
    for entry in reversed(names):
        _undo_name(entry, directory / FILES)
    undone = sum(
        _undo_writes(directory / FILES / str(number), found, chance) for number, found in writes.items()
    )
    forget(directory)
    return undone, len(names)


def forget(directory: Path) -> None:
    """Begins anew: all that is there now is durable."""
    shutil.rmtree(directory / FILES, ignore_errors=True)
    (directory / JOURNAL).unlink(missing_ok=True)


def unsynced(told: Iterable[Entry]) -> tuple[list[Entry], dict[int, list[Entry]]]:
    """Changes of names, in their order; and changes of bytes of each file."""
    names: list[Entry] = []
    writes: dict[int, list[Entry]] = defaultdict(list)
    durable: dict[str, list[Entry]] = {}
    """What each sync that has begun makes durable."""
    for entry in told:
        match entry["did"]:
            case "begin" if isinstance(entry["of"], str):
                durable[entry["sync"]] = [each for each in names if _directory(each) == entry["of"]]
            case "begin":
                durable[entry["sync"]] = list(writes[entry["of"]])
            case "end" if isinstance(entry["of"], str):
                done = {id(each) for each in durable.pop(entry["sync"])}
                names = [each for each in names if id(each) not in done]
            case "end":
                done = {id(each) for each in durable.pop(entry["sync"])}
                writes[entry["of"]] = [each for each in writes[entry["of"]] if id(each) not in done]
            case "write" | "truncate":
                writes[entry["file"]].append(entry)
            case _:
                names.append(entry)
    return names, {number: found for number, found in writes.items() if found}


def _directory(entry: Entry) -> str:
    return os.path.dirname(str(entry["path"]))


def _undo_name(entry: Entry, files: Path) -> None:
    path = entry["path"]
    match entry["did"]:
        case "create":
            Path(path).unlink(missing_ok=True)
        case "mkdir":
            shutil.rmtree(path, ignore_errors=True)
        case "remove" if os.path.isdir(os.path.dirname(path)) and not os.path.exists(path):
            os.link(files / str(entry["file"]), path)
        case "rmdir":
            os.makedirs(path, exist_ok=True)
        case "rename" if os.path.exists(entry["target"]) and os.stat(entry["target"]).st_ino != entry["file"]:
            os.replace(entry["target"], path)
            if entry["file"] is not None:
                os.link(files / str(entry["file"]), entry["target"])
        case _:
            pass


def _undo_writes(file: Path, entries: list[Entry], chance: Random) -> int:
    kept = chance.randrange(len(entries) + 1) if chance.random() < KEPT_SHARE else 0
    with file.open("r+b") as opened:
        for entry in reversed(entries[kept:]):
            opened.seek(entry["at"])
            opened.write(base64.b64decode(entry["old"]))
            opened.truncate(entry["size"])
    return len(entries) - kept
