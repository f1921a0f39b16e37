"""A disk on which nothing happens: reads come from the real files, changes go to a scratch directory.

A dry run is the real run on such a disk, so that what it says is what would happen.  A file is copied when
it is first changed; most that are opened for writing never are.  Names are kept in memory.  Directories can
be made and emptied and removed, not renamed.
"""

import errno
import os
import shutil

from distributedlog.model.buffers import Buffer
from distributedlog.ports.disk import File, Lock, SystemDisk


class _Node:
    """Where the bytes of a file are: in the real file until it is changed, then in the scratch directory."""

    __slots__ = ("is_copy", "real_path")

    def __init__(self, real_path: str, is_copy: bool) -> None:
        self.real_path = real_path
        self.is_copy = is_copy


class _NoLock:
    def release(self) -> None:
        return None

    def identity(self) -> None:
        return None


class _ScratchFile:
    def __init__(self, disk: "ScratchDisk", path: str, node: _Node, writable: bool) -> None:
        self.path = path
        self._disk = disk
        self._node = node
        self._writable = writable
        self._opened_path = ""
        self._opened: File | None = None

    def _handle(self) -> File:
        """Returns a handle of where the bytes are now: another handle may have been the first to change
        them."""
        if self._opened is None or self._opened_path != self._node.real_path:
            self.close()
            self._opened_path = self._node.real_path
            self._opened = SystemDisk().open(self._opened_path, write=self._node.is_copy)
        return self._opened

    def _own(self) -> File:
        if not self._writable:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        self._disk.copy_node(self._node)
        return self._handle()

    def read_at(self, position: int, length: int) -> bytes:
        return self._handle().read_at(position, length)

    def write_at(self, position: int, data: Buffer) -> None:
        self._own().write_at(position, data)

    def truncate(self, size: int) -> None:
        if size != self.size():
            self._own().truncate(size)

    def size(self) -> int:
        return self._handle().size()

    def start_writeback(self) -> None:
        """Nothing here has to survive."""

    def sync(self) -> None:
        """The same."""

    def fileno(self) -> int:
        return self._handle().fileno()

    def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()


class ScratchDisk:
    """Implements the disk port over the system's files; `scratch` is a directory for the changed ones."""

    def __init__(self, scratch: str) -> None:
        self._scratch = scratch
        self._nodes: dict[str, _Node | None] = {}
        self._directories: dict[str, bool] = {}
        """Those that were made (True) or removed (False) here."""
        self._copies = 0

    # --- nodes ---------------------------------------------------------------------------------

    def _node(self, path: str) -> _Node | None:
        if path not in self._nodes and os.path.isfile(path):
            self._nodes[path] = _Node(path, is_copy=False)
        return self._nodes.get(path)

    def _present(self, path: str) -> _Node:
        node = self._node(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def _scratch_path(self) -> str:
        self._copies += 1
        return os.path.join(self._scratch, str(self._copies))

    def copy_node(self, node: _Node) -> None:
        if not node.is_copy:
            copy = self._scratch_path()
            shutil.copyfile(node.real_path, copy)
            node.real_path, node.is_copy = copy, True

    # --- the port ------------------------------------------------------------------------------

    def open(self, path: str, *, write: bool = False, create: bool = False) -> _ScratchFile:
        path = os.path.normpath(path)
        if create and self._node(path) is None:
            fresh = self._scratch_path()
            SystemDisk().open(fresh, create=True).close()
            self._nodes[path] = _Node(fresh, is_copy=True)
        return _ScratchFile(self, path, self._present(path), write or create)

    def exists(self, path: str) -> bool:
        path = os.path.normpath(path)
        return self._node(path) is not None or self.is_directory(path)

    def size(self, path: str) -> int:
        return os.stat(self._present(os.path.normpath(path)).real_path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(self._present(os.path.normpath(path)).real_path).st_mtime_ns // 1_000_000

    def list_directory(self, path: str) -> list[str]:
        path = os.path.normpath(path)
        if not self.is_directory(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        names = set(os.listdir(path)) if os.path.isdir(path) else set()
        known = [*self._nodes.items(), *self._directories.items()]
        for inner, state in known:
            if os.path.dirname(inner) == path:
                (names.add if state else names.discard)(os.path.basename(inner))
        return sorted(names)

    def is_directory(self, path: str) -> bool:
        path = os.path.normpath(path)
        return self._directories.get(path, os.path.isdir(path))

    def is_link(self, path: str) -> bool:
        path = os.path.normpath(path)
        return path not in self._nodes and path not in self._directories and os.path.islink(path)

    def make_directory(self, path: str) -> None:
        path = os.path.normpath(path)
        while path and not self.is_directory(path):
            self._directories[path] = True
            path = os.path.dirname(path)

    def remove_directory(self, path: str) -> None:
        if self.list_directory(path):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        self._directories[os.path.normpath(path)] = False

    def rename(self, source: str, target: str) -> None:
        source, target = os.path.normpath(source), os.path.normpath(target)
        node = self._present(source)
        self._nodes[target], self._nodes[source] = node, None

    def remove(self, path: str) -> None:
        path = os.path.normpath(path)
        if self.is_directory(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        node = self._present(path)
        self._nodes[path] = None
        if node.is_copy:
            os.unlink(node.real_path)

    def sync_directory(self, path: str) -> None:
        """Nothing here has to survive."""

    def lock(self, path: str) -> Lock:
        return _NoLock()

    def free_bytes(self, path: str) -> int:
        return SystemDisk().free_bytes(self._scratch)

    def total_bytes(self, path: str) -> int:
        return SystemDisk().total_bytes(self._scratch)
