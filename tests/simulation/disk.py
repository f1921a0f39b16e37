"""A disk in memory that forgets, tears, fills up and breaks, all from one seed.

What is volatile and what is durable:

| changed by                                         | durable after                  |
|----------------------------------------------------|--------------------------------|
| `write_at`, `truncate`                             | `File.sync` of that file       |
| create, rename, remove, make or remove a directory | `sync_directory` of the parent |

A rename inside one directory is one change.  Between two directories it is two, one in each: syncing only
one of them may leave the file under both names or under none, which POSIX allows.

A crash leaves of what was not synced, by its mode:

- ``drop``: nothing.
- ``keep``: all, and what was not synced still is not: the process was killed, the machine runs on.
- ``random``: of each file every unsynced write is, on its own, kept, lost, cut at a sector (512 bytes), kept
  in some of its sectors, or there in length only, as zeros; truncations are kept or lost.  Of each directory
  the changes are kept up to a random point of their order.

Appending and syncing cost what was written and not what the file holds: see `inodes.py`.
A sync that fails leaves its changes neither durable nor pending, as Linux does: a later sync succeeds and
yet does not save them.

After a crash every open handle is stale (EBADF), locks are free, and a power cut is over; rules made with
`inject` stay.  Holes count as space used.  Symbolic links, permissions and `..` do not exist here.
"""

import errno
import fnmatch
import os
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from distributedlog.model.buffers import Buffer
from tests.simulation.inodes import NOBODY, CrashMode, Directory, Forking, Inode, Node, Resize, Write

UNLIMITED_BYTES = 1 << 50

Operation = Literal[
    "*", "open", "read", "size", "list", "lock",
    "create", "write", "truncate", "sync", "rename", "remove", "mkdir", "rmdir", "dirsync",
]  # fmt: skip
"""What a fault can strike.  The second line's are those that `operations` counts and a power cut can hit."""


class PowerCut(BaseException):
    """The machine is off.  Not an `Exception`, so that no handler under test swallows it."""


def _error(number: int, path: str = "") -> OSError:
    """The subclass of OSError that the system raises for this number."""
    return OSError(number, os.strerror(number), path) if path else OSError(number, os.strerror(number))


# --- faults ------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Fault:
    """A rule: after `after` matching operations the next `count` fail with `error`."""

    operation: Operation
    path: re.Pattern[str]
    error: int
    count: int
    after: int
    hits: int = 0

    def strikes(self, operation: Operation, path: str) -> bool:
        if self.operation not in (operation, "*") or not self.path.match(path) or self.hits >= self.count:
            return False
        if self.after > 0:
            self.after -= 1
            return False
        self.hits += 1
        return True


# --- the port ----------------------------------------------------------------------------------


class SimFile:
    """An open file.  It outlives its name, as in POSIX, but not a crash."""

    __slots__ = ("_disk", "_epoch", "_inode", "_writable", "path")

    def __init__(self, disk: "SimDisk", path: str, inode: Inode, writable: bool) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode
        self._epoch = disk.epoch
        self._writable = writable
        inode.handles += 1

    def read_at(self, position: int, length: int) -> bytes:
        self._begin("read", mutates=False)
        if position < 0 or length < 0:
            raise _error(errno.EINVAL)
        return bytes(self._inode.content[position : position + length])

    def write_at(self, position: int, data: Buffer) -> None:
        disk, inode, taken = self._disk, self._inode, bytes(data)
        if self._epoch != disk.epoch or not self._writable:
            raise _error(errno.EBADF)
        if position < 0:
            raise _error(errno.EINVAL)
        fault = disk.begin("write", self.path, mutates=True)
        failure = fault.error if fault is not None else 0
        if fault is not None:
            taken = taken[: disk.chance.randrange(len(taken) + 1)]
        room = len(inode.content) + max(0, disk.room_bytes)
        if taken and position + len(taken) > room:
            taken, failure = taken[: max(0, room - position)], failure or errno.ENOSPC
        if taken:
            size_before = len(inode.content)
            inode.make(Write(inode.content, position, taken))
            inode.modified_ms = disk.wall_ms()
            disk.used_bytes += len(inode.content) - size_before
            disk.dirty[inode] = None
        if failure:
            raise _error(failure)

    def truncate(self, size: int) -> None:
        disk, inode = self._disk, self._inode
        if self._epoch != disk.epoch:
            raise _error(errno.EBADF)
        if not self._writable or size < 0:
            raise _error(errno.EINVAL)
        self._begin("truncate", mutates=True)
        growth = size - len(inode.content)
        if growth > disk.room_bytes:
            raise _error(errno.ENOSPC)
        inode.make(Resize(inode.content, size))
        inode.modified_ms = disk.wall_ms()
        disk.used_bytes += growth
        disk.dirty[inode] = None

    def size(self) -> int:
        self._begin("size", mutates=False)
        return len(self._inode.content)

    def start_writeback(self) -> None:
        """Nothing: what has begun is no more durable than what has not."""

    def sync(self) -> None:
        if self._epoch != self._disk.epoch:
            raise _error(errno.EBADF)
        fault = self._disk.begin("sync", self.path, mutates=True)
        if fault is not None:
            self._inode.fail_sync()
            raise _error(fault.error)
        self._inode.sync()
        if not self._inode.changes:
            self._disk.dirty.pop(self._inode, None)

    def fileno(self) -> int:
        raise _error(errno.ENOTSUP)

    def close(self) -> None:
        """Closes the handle, also a stale one, and with the power off: whoever unwinds closes what it has."""
        if self._epoch == self._disk.epoch:
            self._inode.handles -= 1
            self._disk.release_space(self._inode)
        self._epoch = NOBODY

    def _begin(self, operation: Operation, *, mutates: bool) -> None:
        if self._epoch != self._disk.epoch:
            raise _error(errno.EBADF)
        fault = self._disk.begin(operation, self.path, mutates=mutates)
        if fault is not None:
            raise _error(fault.error)


class SimLock:
    def __init__(self, inode: Inode, epoch: int, identity: str) -> None:
        self._inode = inode
        self._epoch = epoch
        self._identity = identity

    def identity(self) -> str:
        return self._identity

    def release(self) -> None:
        if self._inode.lock_epoch == self._epoch:
            self._inode.lock_epoch = NOBODY
        self._epoch = NOBODY - 1  # matches no lock: releasing twice must not free another's


class SimDisk:
    """See the head of this file.  `capacity_bytes` may be changed at any time; None is no bound.

    `on_operation`, if set, is called with the name and path of each mutating operation before it happens:
    a test can `fork` there and so see the disk at every boundary of one run.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        capacity_bytes: int | None = None,
        wall_ms: Callable[[], int] | None = None,
    ) -> None:
        self._seed = seed
        self.chance = random.Random(seed)
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self.operations = 0
        self.now_ms = 0  # what files that are written now say of their age; a test moves it, or
        self.wall_ms = wall_ms or (lambda: self.now_ms)  # there is a clock
        self.epoch = 0
        self.on_operation: Callable[[str, str], None] | None = None
        self.dirty: dict[Node, None] = {}
        self._root = Directory()
        self._faults: list[Fault] = []
        self._operations_left: int | None = None
        self._powered = True

    # -- the Disk protocol

    def open(self, path: str, *, write: bool = False, create: bool = False) -> SimFile:
        self._begin("open", path, mutates=False)
        directory, name = self._parent(path)
        node = directory.names.get(name)
        if isinstance(node, Directory):
            raise _error(errno.EISDIR, path)
        if node is None:
            if not create:
                raise _error(errno.ENOENT, path)
            node = self._create(directory, name, path)
        return SimFile(self, path, node, write or create)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def size(self, path: str) -> int:
        self._begin("size", path, mutates=False)
        node = self._node(path)
        return 0 if isinstance(node, Directory) else len(node.content)

    def modified_ms(self, path: str) -> int:
        self._begin("size", path, mutates=False)
        node = self._node(path)
        return 0 if isinstance(node, Directory) else node.modified_ms

    def list_directory(self, path: str) -> list[str]:
        self._begin("list", path, mutates=False)
        return sorted(self._directory(path).names)

    def is_directory(self, path: str) -> bool:
        return isinstance(self._find(path), Directory)

    def is_link(self, path: str) -> bool:
        return False

    def make_directory(self, path: str) -> None:
        directory, walked = self._root, ""
        for name in _parts(path):
            walked = f"{walked}/{name}"
            node = directory.names.get(name)
            if node is None:
                self._begin("mkdir", walked, mutates=True)
                node = Directory()
                self._rename_in(directory, (name, node))
            if isinstance(node, Inode):
                last = walked.count("/") == len(_parts(path))
                raise _error(errno.EEXIST if last else errno.ENOTDIR, path)
            directory = node

    def remove_directory(self, path: str) -> None:
        directory, name = self._parent(path)
        if self._directory(path).names:
            raise _error(errno.ENOTEMPTY, path)
        self._begin("rmdir", path, mutates=True)
        self._rename_in(directory, (name, None))

    def rename(self, source: str, target: str) -> None:
        source_directory, source_name = self._parent(source)
        target_directory, target_name = self._parent(target)
        node, replaced = source_directory.names.get(source_name), target_directory.names.get(target_name)
        if node is None:
            raise _error(errno.ENOENT, source)
        self._check_rename(source, target, node, replaced)
        self._begin("rename", source, target, mutates=True)
        if node is replaced:
            return
        if source_directory is target_directory:
            self._rename_in(source_directory, (source_name, None), (target_name, node))
        else:
            self._rename_in(target_directory, (target_name, node))
            self._rename_in(source_directory, (source_name, None))

    def remove(self, path: str) -> None:
        directory, name = self._parent(path)
        if isinstance(self._node(path), Directory):
            raise _error(errno.EISDIR, path)
        self._begin("remove", path, mutates=True)
        self._rename_in(directory, (name, None))

    def sync_directory(self, path: str) -> None:
        directory = self._directory(path)
        self._begin("dirsync", path, mutates=True)
        directory.changes.clear()
        self.dirty.pop(directory, None)

    def lock(self, path: str) -> SimLock:
        self._begin("lock", path, mutates=False)
        self.open(path, create=True).close()
        inode = self._node(path)
        assert isinstance(inode, Inode)
        if inode.lock_epoch == self.epoch:
            raise _error(errno.EAGAIN, path)
        inode.lock_epoch = self.epoch
        return SimLock(inode, self.epoch, f"{self._seed} {path}")

    def free_bytes(self, path: str) -> int:
        self._node(path)
        return max(0, self.room_bytes)

    def total_bytes(self, path: str) -> int:
        self._node(path)
        return UNLIMITED_BYTES if self.capacity_bytes is None else self.capacity_bytes

    # -- what a test does to it

    def crash(self, mode: CrashMode = "drop") -> None:
        """Ends every process that used the disk and leaves of the unsynced what `mode` says."""
        self.epoch += 1
        self._powered, self._operations_left = True, None
        if mode != "keep":
            for node in self.dirty:
                node.crash(mode, self.chance)
            self.dirty.clear()
        self._recount()

    @property
    def is_powered(self) -> bool:
        """False from a power cut on, until the crash that it is."""
        return self._powered

    def fork(self, seed: int | None = None) -> "SimDisk":
        """A disk of its own with the same content, unsynced changes too; no handle, lock or fault."""
        forking = Forking()
        twin = SimDisk(
            self.chance.getrandbits(64) if seed is None else seed, capacity_bytes=self.capacity_bytes
        )
        root = forking.node(self._root)
        assert isinstance(root, Directory)
        twin._root, twin.dirty, twin.now_ms = root, forking.dirty, self.now_ms
        twin._recount()
        return twin

    def fail_after(self, operations: int) -> None:
        """Cuts the power instead of the mutating operation after the next `operations` ones."""
        self._operations_left = operations

    def inject(
        self,
        operation: Operation,
        path_glob: str = "*",
        error: int = errno.EIO,
        *,
        count: int = 1,
        after: int = 0,
    ) -> Fault:
        """Makes matching operations fail; a write that fails so leaves a random prefix of its bytes."""
        fault = Fault(operation, re.compile(fnmatch.translate(path_glob)), error, count, after)
        self._faults.append(fault)
        return fault

    def heal(self) -> None:
        """Forgets all injected faults."""
        self._faults.clear()

    def flip_bit(self, path: str, position: int, bit: int) -> None:
        """Rots one bit, on the medium and in what is read from now on."""
        node = self._node(path)
        assert isinstance(node, Inode)
        assert 0 <= position < len(node.content)
        node.flip(position, 1 << bit)

    def files(self) -> dict[str, bytes]:
        """Every file's path and content, to compare disks by."""
        found: dict[str, bytes] = {}
        stack: list[tuple[str, Node]] = [("", self._root)]
        while stack:
            path, node = stack.pop()
            if isinstance(node, Inode):
                found[path] = bytes(node.content)
            else:
                stack.extend((f"{path}/{name}", child) for name, child in node.names.items())
        return dict(sorted(found.items()))

    # -- for the file handles

    @property
    def room_bytes(self) -> int:
        return UNLIMITED_BYTES if self.capacity_bytes is None else self.capacity_bytes - self.used_bytes

    def begin(self, operation: Operation, path: str, other: str = "", *, mutates: bool) -> Fault | None:
        """Counts an operation, or raises PowerCut; returns the fault that strikes it."""
        self._check_power()
        if mutates:
            if self.on_operation is not None:
                self.on_operation(operation, path)
            if self._operations_left is not None:
                if self._operations_left == 0:
                    self._powered = False
                    raise PowerCut
                self._operations_left -= 1
            self.operations += 1
        for fault in self._faults:
            if fault.strikes(operation, path) or (other and fault.strikes(operation, other)):
                return fault
        return None

    def release_space(self, inode: Inode) -> None:
        if inode.links == 0 and inode.handles == 0:
            self.used_bytes -= len(inode.content)

    # -- names

    def _begin(self, operation: Operation, path: str, other: str = "", *, mutates: bool) -> None:
        fault = self.begin(operation, path, other, mutates=mutates)
        if fault is not None:
            raise _error(fault.error, path)

    def _create(self, directory: Directory, name: str, path: str) -> Inode:
        self._begin("create", path, mutates=True)
        inode = Inode()
        inode.modified_ms = self.wall_ms()
        self._rename_in(directory, (name, inode))
        return inode

    def _rename_in(self, directory: Directory, *change: tuple[str, Node | None]) -> None:
        """Makes one change of names, keeping the counts of links."""
        gone = [directory.names.get(name) for name, _ in change]
        directory.make(*change)
        self.dirty[directory] = None
        for _, node in change:
            if isinstance(node, Inode):
                node.links += 1
        for node in gone:
            if isinstance(node, Inode):
                node.links -= 1
                self.release_space(node)

    @staticmethod
    def _check_rename(source: str, target: str, node: Node, replaced: Node | None) -> None:
        if isinstance(node, Directory):
            if isinstance(replaced, Inode):
                raise _error(errno.ENOTDIR, source)
            if replaced is not None and replaced is not node and replaced.names:
                raise _error(errno.ENOTEMPTY, source)
            if replaced is not node and _parts(target)[: len(_parts(source))] == _parts(source):
                raise _error(errno.EINVAL, source)
        elif isinstance(replaced, Directory):
            raise _error(errno.EISDIR, source)

    def _check_power(self) -> None:
        if not self._powered:
            raise PowerCut

    def _find(self, path: str) -> Node | None:
        self._check_power()
        node: Node | None = self._root
        for name in _parts(path):
            if not isinstance(node, Directory):
                return None
            node = node.names.get(name)
        return node

    def _node(self, path: str) -> Node:
        parts = _parts(path)
        if not parts:
            return self._root
        directory, name = self._parent(path)
        node = directory.names.get(name)
        if node is None:
            raise _error(errno.ENOENT, path)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._node(path)
        if isinstance(node, Inode):
            raise _error(errno.ENOTDIR, path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        self._check_power()
        parts = _parts(path)
        if not parts:
            raise _error(errno.EBUSY, path)
        directory: Node | None = self._root
        for name in parts[:-1]:
            assert isinstance(directory, Directory)
            directory = directory.names.get(name)
            if directory is None:
                raise _error(errno.ENOENT, path)
            if isinstance(directory, Inode):
                raise _error(errno.ENOTDIR, path)
        assert isinstance(directory, Directory)
        return directory, parts[-1]

    def _recount(self) -> None:
        """Counts links and space anew: after a crash there are no handles and other names."""
        self.used_bytes = 0
        stack: list[Node] = [self._root]
        inodes: dict[Inode, int] = {}
        while stack:
            for child in _children(stack.pop()):
                if isinstance(child, Inode):
                    inodes[child] = inodes.get(child, 0) + 1
                else:
                    stack.append(child)
        for inode, links in inodes.items():
            inode.links, inode.handles = links, 0
            self.used_bytes += len(inode.content)


def _children(node: Node) -> list[Node]:
    return list(node.names.values()) if isinstance(node, Directory) else []


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
