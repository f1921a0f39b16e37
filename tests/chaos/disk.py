"""The operating system's file system with faults: full, failing to sync, and forgetting at a power cut.

A node's process is given one; its child processes get a copy by pickling.  It looks at the switches before it
writes or syncs, and tells the journal of `undo.py` what it changes; all else is the `SystemDisk`'s.
"""

import errno
import os
from pathlib import Path

from distributedlog.model.buffers import Buffer
from distributedlog.ports.disk import SystemDisk, SystemFile
from tests.chaos.switches import SWITCHES, Switches
from tests.chaos.undo import UNDO, UndoJournal, encoded


class FaultyFile(SystemFile):
    __slots__ = ("_disk", "_number")

    def __init__(self, disk: "FaultyDisk", path: str, descriptor: int) -> None:
        super().__init__(path, descriptor)
        self._disk = disk
        self._number = disk.journal.hold(path)

    def write_at(self, position: int, data: Buffer) -> None:
        size = self.size()
        if position + len(data) > size:
            self._disk.need_room(self.path)
        old = self.read_at(position, min(len(data), size - position)) if position < size else b""
        self._disk.journal.note("write", file=self._number, at=position, old=encoded(old), size=size)
        super().write_at(position, data)

    def truncate(self, size: int) -> None:
        before = self.size()
        old = self.read_at(size, before - size) if size < before else b""
        self._disk.journal.note("truncate", file=self._number, at=size, old=encoded(old), size=before)
        super().truncate(size)

    def sync(self) -> None:
        self._disk.may_sync(self.path)
        with self._disk.journal.syncing(self._number):
            super().sync()


class FaultyDisk(SystemDisk):
    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._switches = Switches(Path(directory) / SWITCHES)
        self.journal = UndoJournal(f"{directory}/{UNDO}")

    def __reduce__(self) -> tuple[type["FaultyDisk"], tuple[str]]:
        return FaultyDisk, (self._directory,)

    def need_room(self, path: str) -> None:
        if self._switches.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def may_sync(self, path: str) -> None:
        if self._switches.sync_fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def open(self, path: str, *, write: bool = False, create: bool = False) -> SystemFile:
        if not write and not create:
            return super().open(path)
        if create and not os.path.exists(path):
            self.need_room(path)
            self.journal.note("create", path=path)
        opened = super().open(path, write=write, create=create)
        faulty = FaultyFile(self, path, os.dup(opened.fileno()))
        opened.close()
        return faulty

    def make_directory(self, path: str) -> None:
        if not os.path.isdir(path):
            self.need_room(path)
            self.journal.note("mkdir", path=path)
        super().make_directory(path)

    def remove_directory(self, path: str) -> None:
        super().remove_directory(path)
        self.journal.note("rmdir", path=path)

    def rename(self, source: str, target: str) -> None:
        replaced = self.journal.hold(target) if os.path.isfile(target) else None
        self.journal.note("rename", path=source, target=target, file=replaced)
        super().rename(source, target)

    def remove(self, path: str) -> None:
        if os.path.isfile(path) and not os.path.islink(path):
            self.journal.note("remove", path=path, file=self.journal.hold(path))
        super().remove(path)

    def sync_directory(self, path: str) -> None:
        self.may_sync(path)
        with self.journal.syncing(path):
            super().sync_directory(path)

    def free_bytes(self, path: str) -> int:
        return 0 if self._switches.is_full else super().free_bytes(path)
