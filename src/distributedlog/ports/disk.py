"""The disk, as a port.

Positions are explicit (no seek pointer), a write is whole or raises, and nothing is durable before
`sync` (for a file's bytes and size) or `sync_directory` (for names: creation, renaming, removal).  What is
made is its owner's alone: directories 0700, files 0600.  A symbolic link is never written through: whoever
opens one to write, or to lock, gets ELOOP.  Errors
are plain `OSError`s; what they mean for a log is decided in `storage/files.py`, the only user of this port.
"""

import contextlib
import errno
import fcntl
import os
import struct
from typing import Protocol

from distributedlog.model.buffers import Buffer
from distributedlog.ports.writeback import start_writeback

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"
BOOT_ID_LENGTH_MAX = 64
LINK_REFUSED = "it is a symbolic link, and what it leads to is not changed"


class File(Protocol):
    """One open file."""

    path: str

    def read_at(self, position: int, length: int) -> bytes:
        """Reads up to `length` bytes; fewer only where the file ends."""
        ...

    def write_at(self, position: int, data: Buffer) -> None:
        """All of `data`, or an OSError after which any prefix of it may be there."""
        ...

    def truncate(self, size: int) -> None: ...

    def size(self) -> int: ...

    def start_writeback(self) -> None:
        """Lets the system begin what `sync` waits for, where it can.  A hint: it never raises, and nothing is
        durable by it."""
        ...

    def sync(self) -> None:
        """Makes bytes and size durable.  After an error nobody knows what is: never call it again."""
        ...

    def fileno(self) -> int:
        """The descriptor, for sendfile.  A simulated file has none and raises OSError."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...

    def identity(self) -> str | None:
        """Names the locked file, and the running system whose lock it is; None where that cannot be told.

        Who holds a lock of this identity knows that whoever held one of the same identity before does not
        hold it any more: a file that is open keeps its inode, so no other file has its name meanwhile.
        """
        ...


class Disk(Protocol):
    """The file system below it.  Paths are plain strings."""

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        """Opens a file; FileNotFoundError if it is not there and `create` is false.

        A symbolic link is followed to read, and refused with ELOOP otherwise.
        """
        ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int:
        """Returns when the file was last written, by the wall clock."""
        ...

    def list_directory(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        ...

    def is_directory(self, path: str) -> bool:
        """Whether it is one, or a link to one."""
        ...

    def is_link(self, path: str) -> bool: ...

    def make_directory(self, path: str) -> None:
        """Makes a directory with its parents; not an error if it is there."""
        ...

    def remove_directory(self, path: str) -> None:
        """An empty one."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Renames atomically, replacing `target`."""
        ...

    def remove(self, path: str) -> None:
        """A file, or a link and not what it points at; IsADirectoryError for a directory."""
        ...

    def sync_directory(self, path: str) -> None: ...

    def lock(self, path: str) -> Lock:
        """Takes the lock file for this process; BlockingIOError if another has it."""
        ...

    def free_bytes(self, path: str) -> int: ...

    def total_bytes(self, path: str) -> int:
        """Returns the bytes of the whole volume, used or not."""
        ...


class SystemFile:
    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def read_at(self, position: int, length: int) -> bytes:
        data = os.pread(self._descriptor, length, position)
        if len(data) == length or not data:
            return data
        parts = [data]
        missing = length - len(data)
        while missing:
            data = os.pread(self._descriptor, missing, position + length - missing)
            if not data:
                break
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def write_at(self, position: int, data: Buffer) -> None:
        written = os.pwrite(self._descriptor, data, position)
        if written == len(data):
            return
        view = memoryview(data)
        while written < len(view):
            written += os.pwrite(self._descriptor, view[written:], position + written)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def start_writeback(self) -> None:
        start_writeback(self._descriptor)

    def sync(self) -> None:
        if self._descriptor < 0:  # fdatasync would raise ValueError
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        os.fdatasync(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


def _open_own(path: str, flags: int) -> int:
    """Opens a file that is to be changed, and therefore has to be the directory's own."""
    try:
        return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK) and os.path.islink(path):  # EMLINK is FreeBSD's
            raise OSError(errno.ELOOP, LINK_REFUSED, path) from error
        raise


def _lock_whole_file(descriptor: int) -> None:
    """An open-file-description lock where there is one: it also excludes a JVM, which takes POSIX locks."""
    if hasattr(fcntl, "F_OFD_SETLK"):
        exclusive = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, exclusive)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _boot_id() -> str | None:
    """Returns what no other running system has, and this one not after it was started again."""
    try:
        with open(BOOT_ID_FILE, encoding="ascii") as source:
            return source.read(BOOT_ID_LENGTH_MAX).strip() or None
    except (OSError, UnicodeDecodeError):
        return None


class SystemLock:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def identity(self) -> str | None:
        boot_id = _boot_id()
        if boot_id is None or self._descriptor < 0:
            return None
        status = os.fstat(self._descriptor)
        return f"{boot_id} {status.st_dev} {status.st_ino}"

    def release(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class SystemDisk:
    """The operating system's file system.  Has no state, so that it can be sent to a child process."""

    def open(self, path: str, *, write: bool = False, create: bool = False) -> SystemFile:
        if create:
            return SystemFile(path, _open_own(path, os.O_RDWR | os.O_CREAT))
        if write:
            return SystemFile(path, _open_own(path, os.O_RDWR))
        return SystemFile(path, os.open(path, os.O_CLOEXEC | os.O_RDONLY))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def list_directory(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def is_link(self, path: str) -> bool:
        return os.path.islink(path)

    def make_directory(self, path: str) -> None:
        os.makedirs(path, DIRECTORY_MODE, exist_ok=True)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except PermissionError as error:  # which is what macOS says of a directory
            if os.path.isdir(path) and not os.path.islink(path):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path) from error
            raise

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> SystemLock:
        descriptor = _open_own(path, os.O_RDWR | os.O_CREAT)
        try:
            _lock_whole_file(descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.close(descriptor)
            raise
        return SystemLock(descriptor)

    def free_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def total_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize
