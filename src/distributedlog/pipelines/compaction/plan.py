"""Which files of a table are merged with which.  Nothing here has effects.

Files may be merged if nobody can tell afterwards: they lie in the same directory (a partition of the
table), and every stream that reads the table has read all of them or none.  Then the merged file is marked as
read for those that have, and is new to those that have not.  A file that a stream has taken and not yet read
stays as it is, because it will be asked for by its name.

Large files stay: a file is merged with others until it has half the size that is aimed at.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from distributedlog.pipelines.compaction.metadata_log import Entry, local_path
from distributedlog.pipelines.compaction.streams import FileStream

TARGET_BYTES: Final = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Merge:
    """Files that become one."""

    entries: tuple[Entry, ...]
    streams: tuple[FileStream, ...] = ()
    """Those that have read them."""

    @property
    def directory(self) -> str:
        """Returns their directory as the log writes it."""
        return directory_of(self.entries[0])

    @property
    def modified_ms(self) -> int:
        """Returns the time of the newest, by which streams judge the age of a file."""
        return max(int(each["modificationTime"]) for each in self.entries)


def plan_merges(
    entries: Iterable[Entry], streams: Sequence[FileStream], target_bytes: int = TARGET_BYTES
) -> tuple[Merge, ...]:
    groups: dict[tuple[str, tuple[int, ...]], list[Entry]] = {}
    for entry in entries:
        path = local_path(entry["path"])
        if path is None or not _is_file(entry) or entry["size"] * 2 >= target_bytes:
            continue
        if any(path in stream.pending for stream in streams):
            continue
        read_by = tuple(number for number, stream in enumerate(streams) if path in stream.read)
        groups.setdefault((directory_of(entry), read_by), []).append(entry)
    merges = []
    for (_, read_by), files in sorted(groups.items(), key=lambda group: group[0]):
        files.sort(key=lambda entry: (entry["modificationTime"], entry["path"]))
        readers = tuple(streams[number] for number in read_by)
        merges += [Merge(packed, readers) for packed in _pack(files, target_bytes) if len(packed) > 1]
    return tuple(merges)


def _pack(files: Iterable[Entry], target_bytes: int) -> list[tuple[Entry, ...]]:
    packs: list[tuple[Entry, ...]] = []
    pack: list[Entry] = []
    held = 0
    for entry in files:
        if pack and held + entry["size"] > target_bytes:
            packs.append(tuple(pack))
            pack, held = [], 0
        pack.append(entry)
        held += entry["size"]
    return [*packs, tuple(pack)] if pack else packs


def directory_of(entry: Entry) -> str:
    return str(entry["path"]).rpartition("/")[0]


def _is_file(entry: Entry) -> bool:
    return (
        entry.get("action") == "add"
        and entry.get("isDir") is False
        and isinstance(entry.get("size"), int)
        and isinstance(entry.get("modificationTime"), int)
    )
