"""The syncs of logs that are being opened, gathered.

A killed process leaves what it wrote in the kernel's memory: bytes and names.  From the opening on they
count as stored, so they are synced; one after the other that takes most of a start with thousands of logs.
None of them has to come before another, only all of them before the logs are used: so they are done side by
side, some hundred at a time.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from distributedlog.storage.files import Files, ManagedFile

Work = Callable[[], None]
RunAll = Callable[[Sequence[Work]], None]
"""Runs all of them, in any order, and raises the first error."""

GATHERED_MAX: Final = 256


def run_in_turn(works: Sequence[Work]) -> None:
    for work in works:
        work()


class OpeningSyncs:
    """A context manager: at its end all is synced."""

    def __init__(self, files: Files, run_all: RunAll = run_in_turn) -> None:
        self._files = files
        self._run_all = run_all
        self._pinned: list[ManagedFile] = []
        self._works: list[Work] = []

    def __enter__(self) -> "OpeningSyncs":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.finish()
        else:
            self._let_go()

    def add(self, managed: ManagedFile) -> None:
        """What the file holds now is to be durable."""
        handle = managed.pin()
        self._pinned.append(managed)
        self._gather(partial(self._files.sync_all, (handle,)))

    def add_directory(self, directory: str) -> None:
        """The names in it are to be durable."""
        self._gather(partial(self._files.sync_directory, directory))

    def _gather(self, work: Work) -> None:
        self._works.append(work)
        if len(self._works) >= GATHERED_MAX:
            self.finish()

    def finish(self) -> None:
        works, self._works = self._works, []
        try:
            self._run_all(works)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        pinned, self._pinned = self._pinned, []
        for managed in pinned:
            managed.unpin()
