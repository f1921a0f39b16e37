"""The processes that another one started, and what they hold of memory: read from /proc."""

import os
from pathlib import Path
from typing import NamedTuple

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Process(NamedTuple):
    process_id: int
    command: str
    resident_bytes: int

    @property
    def is_java(self) -> bool:
        return os.path.basename(self.command.split(" ", 1)[0]) == "java"


def descendants(process_id: int) -> list[Process]:
    """All that are alive now, without the process itself."""
    children: dict[int, list[Process]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent, process = _read(entry)
            except OSError:  # it has ended
                continue
            children.setdefault(parent, []).append(process)
    found: list[Process] = []
    waiting = [process_id]
    while waiting:
        born = children.get(waiting.pop(), [])
        found += born
        waiting += [each.process_id for each in born]
    return found


def _read(entry: Path) -> tuple[int, Process]:
    """(parent, the process)."""
    facts = (entry / "stat").read_text().rpartition(")")[2].split()
    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    pages = int((entry / "statm").read_text().split()[1])
    return int(facts[1]), Process(int(entry.name), command, pages * PAGE_BYTES)
