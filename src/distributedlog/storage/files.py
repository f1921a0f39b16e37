"""The one place where storage touches the disk.

What it adds to the disk port:

- **Bounded open files.**  A `ManagedFile` is a file by name; its descriptor is opened when used and closed
  again when too many are open, least recently used first.  Whatever is *pinned* (unsynced data, a region
  that a reader holds) stays open.
- **Errors with a meaning.**  No room: the append is undone and `DiskFullError` raised, the log lives on.
  No descriptor to open a file with is the same: others took them all, and may give some back.  Any other
  failed write, and every failed sync, fails the whole directory: what the kernel kept is unknown and asking
  again would get a lie.  A failed directory refuses writes for good.
- **Regions.**  A reader holds bytes of a file by position.  Deleting or replacing the file does not touch
  them (the descriptor keeps it); truncating it makes the region raise `RegionChangedError`, because new
  bytes may since stand where the old ones were.
- **Nothing outside.**  No file is changed through a symbolic link: one that stands where a file is to be made
  goes, and what it leads to stays; any other is refused, and so is a link to a directory (`refuse_link`).
- **Atomic small files.**  Write aside, sync, rename, sync the directory: a crash leaves old or new.

Not thread-safe, but for reading a `FileRegion`, `Files.sync_all`, `Files.sync_directory` and
`Files.write_atomically`, which use only pinned descriptors or none.
"""

import contextlib
import errno
import os.path
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import NoReturn, Protocol

from distributedlog.model.buffers import Buffer
from distributedlog.model.errors import (
    CorruptLogError,
    DirectoryLockedError,
    DiskFullError,
    LogDirectoryFailedError,
    RegionChangedError,
    StorageError,
)
from distributedlog.ports.disk import Disk, File, Lock

OPEN_FILES_MAX = 1024
SMALL_FILE_BYTES_MAX = 64 * 1024 * 1024
INDEX_BLOCKS_BYTES_MAX = 32 * 1024 * 1024
TEMPORARY_SUFFIX = ".tmp"
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE})


def is_out_of_room(error: StorageError) -> bool:
    """Whether a file could not be used only for want of room or descriptors, and is as it was."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in NO_ROOM


class ManagedFile:
    """A file by name, whose descriptor comes and goes.  Get one from `Files.manage`."""

    __slots__ = ("_close_when_idle", "_files", "_handle", "generation", "path", "pins", "writable")

    def __init__(self, files: "Files", path: str, writable: bool) -> None:
        self._files = files
        self._handle: File | None = None
        self._close_when_idle = False
        self.path = path
        self.writable = writable
        self.pins = 0
        self.generation = 0

    def handle(self) -> File:
        handle = self._handle
        if handle is None:
            return self._files._open(self)
        self._files._touch(self)
        return handle

    def read_at(self, position: int, length: int) -> bytes:
        try:
            return self.handle().read_at(position, length)
        except OSError as error:
            raise StorageError(f"cannot read {self.path} at {position}: {error.strerror}") from error

    def append_at(self, position: int, data: Buffer) -> None:
        """Writes at `position`, the file's end.  If there is no room the file is as it was before."""
        self._files.check_usable()
        try:
            self._opened().write_at(position, data)
        except OSError as error:
            self.undo_append(position, error)

    def undo_append(self, position: int, error: OSError) -> NoReturn:
        """Ends the file at `position` again after a write there failed, or takes it out of use."""
        self._files._write_failed(self, position, error)

    def truncate(self, size: int) -> None:
        """Every region of this file is void from here on, also those below `size`."""
        self._files.check_usable()
        self.generation += 1
        try:
            self.handle().truncate(size)
        except OSError as error:
            raise self._files.fail(f"cannot truncate {self.path}", error) from error

    def sync(self) -> None:
        try:
            self.handle().sync()
        except OSError as error:
            raise self._files.fail(f"cannot sync {self.path}", error) from error

    def size(self) -> int:
        try:
            return self.handle().size()
        except FileNotFoundError as error:
            raise CorruptLogError(f"{self.path} is missing") from error
        except OSError as error:
            raise StorageError(f"cannot see the size of {self.path}: {error.strerror}") from error

    def pin(self) -> File:
        """The open file, which stays open until `unpin`."""
        handle = self._opened()
        self.pins += 1
        return handle

    def _opened(self) -> File:
        try:
            return self.handle()
        except OSError as error:
            raise StorageError(f"cannot open {self.path}: {error.strerror}") from error

    def unpin(self) -> None:
        self.pins -= 1
        assert self.pins >= 0
        if self._close_when_idle and self.pins == 0:
            self._files._forget(self)
        self._files._trim()

    def close(self) -> None:
        """Gives the descriptor back, or, while it is pinned, when the last pin goes."""
        self._close_when_idle = self.pins > 0
        if self.pins == 0:
            self._files._forget(self)


class FileRegion:
    """Bytes of a file that a reader holds: to `read`, or to send with sendfile from `fileno`."""

    __slots__ = ("_file", "_generation", "_managed", "length", "position")

    def __init__(self, managed: ManagedFile, position: int, length: int) -> None:
        self._file = managed.pin()
        self._managed: ManagedFile | None = managed
        self._generation = managed.generation
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        return self.read_at(self.position, self.length)

    def read_at(self, position: int, length: int) -> bytes:
        """A part of it, by its position in the file."""
        managed = self._held()
        try:
            data = self._file.read_at(position, length)
        except OSError as error:
            raise StorageError(f"cannot read {managed.path} at {position}: {error.strerror}") from error
        self.check_unchanged()  # after the read: a truncation before or during it is seen
        if len(data) != length:
            raise CorruptLogError(
                f"{managed.path} ends at {position + len(data)}, inside what was written to it"
            )
        return data

    def fileno(self) -> int:
        """Returns the descriptor for sendfile; call `check_unchanged` when all is sent."""
        self._held()
        return self._file.fileno()

    def check_whole(self) -> None:
        """Raises if the file ends inside the region."""
        managed = self._held()
        try:
            size = self._file.size()
        except OSError as error:
            raise StorageError(f"cannot see the size of {managed.path}: {error.strerror}") from error
        if size < self.position + self.length:
            raise CorruptLogError(f"{managed.path} ends at {size}, inside what was written to it")

    def check_unchanged(self) -> None:
        managed = self._held()
        if managed.generation != self._generation:
            raise RegionChangedError(
                f"{managed.path} was truncated while it was read; read again from the offset"
            )

    def _held(self) -> ManagedFile:
        if self._managed is None:
            raise ValueError("the region is closed")
        return self._managed

    def close(self) -> None:
        managed, self._managed = self._managed, None
        if managed is not None:
            managed.unpin()

    def __enter__(self) -> "FileRegion":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Releasable(Protocol):
    def release(self) -> None: ...


class IndexBlocks:
    """The indexes that hold entries of their files in memory: so many, with so many bytes together; the least
    recently used gives its own back."""

    def __init__(self, most: int, bytes_max: int = INDEX_BLOCKS_BYTES_MAX) -> None:
        self._most = most
        self._bytes_max = bytes_max
        self._held: OrderedDict[Releasable, int] = OrderedDict()
        self.bytes_held = 0

    def use(self, user: Releasable) -> None:
        """Notes that it is used; one that holds nothing yet is about to."""
        held = self._held
        if user in held:
            held.move_to_end(user)
            return
        held[user] = 0
        self._trim()

    def hold(self, user: Releasable, size_bytes: int) -> None:
        """Notes that it holds so much from now on, instead of what it held."""
        self.bytes_held += size_bytes - self._held.get(user, 0)
        self._held[user] = size_bytes
        self._held.move_to_end(user)
        self._trim()

    def may_hold(self, size_bytes: int) -> bool:
        """Whether one of them may be so large: a quarter of all room."""
        return size_bytes <= self._bytes_max // 4

    def _trim(self) -> None:
        while len(self._held) > self._most or (self.bytes_held > self._bytes_max and len(self._held) > 1):
            oldest = next(iter(self._held))
            self.forget(oldest)
            oldest.release()

    def forget(self, user: Releasable) -> None:
        self.bytes_held -= self._held.pop(user, 0)

    def __len__(self) -> int:
        return len(self._held)


class Files:
    """All files of one data directory."""

    def __init__(
        self,
        disk: Disk,
        *,
        open_files_max: int = OPEN_FILES_MAX,
        on_failure: Callable[[LogDirectoryFailedError], None] | None = None,
    ) -> None:
        self.disk = disk
        self.failure: LogDirectoryFailedError | None = None
        self._open_files_max = open_files_max
        self._on_failure = on_failure
        self._open_files: OrderedDict[ManagedFile, None] = OrderedDict()
        self.index_blocks = IndexBlocks(max(2, open_files_max // 2))

    # --- managed files -------------------------------------------------------------------------

    def manage(self, path: str, *, writable: bool = True) -> ManagedFile:
        return ManagedFile(self, path, writable)

    def create(self, path: str) -> ManagedFile:
        """A new, empty file, also where an old one stood.  Its name is durable after `sync_directory`."""
        self.check_usable()
        managed = ManagedFile(self, path, True)
        try:
            managed._handle = self._open_new(path)
            if managed._handle.size() > 0:
                managed._handle.truncate(0)
        except OSError as error:
            self._refuse_if_full(f"create {path}", error)
            raise self.fail(f"cannot create {path}", error) from error
        self._open_files[managed] = None
        self._trim()
        return managed

    def _open_new(self, path: str) -> File:
        """Opens a file that will be written from its start; a link that stands there makes way."""
        try:
            return self.disk.open(path, create=True)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
        self.disk.remove(path)
        return self.disk.open(path, create=True)

    @property
    def open_count(self) -> int:
        return len(self._open_files)

    def _open(self, managed: ManagedFile) -> File:
        handle = self.disk.open(managed.path, write=managed.writable)
        managed._handle = handle
        self._open_files[managed] = None
        self._trim(keep=managed)
        return handle

    def _touch(self, managed: ManagedFile) -> None:
        self._open_files.move_to_end(managed)

    def _trim(self, keep: ManagedFile | None = None) -> None:
        excess = len(self._open_files) - self._open_files_max
        if excess <= 0:
            return
        idle = (managed for managed in self._open_files if managed.pins == 0 and managed is not keep)
        for managed in [victim for victim, _ in zip(idle, range(excess), strict=False)]:
            self._forget(managed)

    def _forget(self, managed: ManagedFile) -> None:
        handle, managed._handle = managed._handle, None
        managed._close_when_idle = False
        if handle is not None:
            self._open_files.pop(managed, None)
            with contextlib.suppress(OSError):
                handle.close()

    # --- failure -------------------------------------------------------------------------------

    def check_usable(self) -> None:
        if self.failure is not None:
            raise LogDirectoryFailedError(str(self.failure)) from self.failure

    def fail(self, what: str, error: OSError) -> LogDirectoryFailedError:
        """Takes the directory out of use; the first cause is the one that is kept."""
        failure = LogDirectoryFailedError(
            f"{what}: {error.strerror or error}; the log directory is out of use"
        )
        if self.failure is None:
            self.failure = failure
            if self._on_failure is not None:
                self._on_failure(failure)
        return failure

    def _write_failed(self, managed: ManagedFile, position: int, error: OSError) -> NoReturn:
        if error.errno not in NO_ROOM:
            raise self.fail(f"cannot write {managed.path}", error) from error
        try:
            managed.handle().truncate(position)
        except OSError as second:
            raise self.fail(f"cannot undo a partial write of {managed.path}", second) from second
        raise DiskFullError(f"no room to append to {managed.path}: {error.strerror}") from error

    @staticmethod
    def _refuse_if_full(what: str, error: OSError) -> None:
        if error.errno in NO_ROOM:
            raise DiskFullError(f"no room to {what}: {error.strerror}") from error

    @contextlib.contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        self.check_usable()
        try:
            yield
        except OSError as error:
            self._refuse_if_full(what, error)
            raise self.fail(f"cannot {what}", error) from error

    # --- names ---------------------------------------------------------------------------------

    def names(self, directory: str) -> list[str]:
        with _explaining(f"list {directory}"):
            return self.disk.list_directory(directory)

    def exists(self, path: str) -> bool:
        return self.disk.exists(path)

    def find_free_path(self, path: str) -> str:
        """Finds a name like this one that nothing has yet."""
        candidate, taken = path, 0
        while self.disk.exists(candidate):
            taken += 1
            candidate = f"{path}.{taken}"
        return candidate

    def size(self, path: str) -> int:
        with _explaining(f"see the size of {path}"):
            return self.disk.size(path)

    def modified_ms(self, path: str) -> int:
        try:
            return self.disk.modified_ms(path)
        except OSError as error:
            raise StorageError(f"cannot see the age of {path}: {error.strerror}") from error

    def is_directory(self, path: str) -> bool:
        return self.disk.is_directory(path)

    def refuse_link(self, path: str) -> None:
        """Raises if it is a symbolic link: what is done in there would be done elsewhere."""
        if self.disk.is_link(path):
            raise StorageError(
                f"{path} is a symbolic link, which is not followed: put what it leads to in its place, or "
                "remove it; nothing was changed (a data directory as a whole may be a link)"
            )

    def make_directory(self, path: str) -> None:
        """A directory whose name is durable, and so are those of the parents it did not have."""
        with self._failing(f"make the directory {path}"):
            parents = [os.path.dirname(path)]
            while parents[-1] not in ("", "/") and not self.disk.is_directory(parents[-1]):
                parents.append(os.path.dirname(parents[-1]))
            self.disk.make_directory(path)
            for parent in parents:
                self.disk.sync_directory(parent or ".")

    def rename(self, source: str, target: str) -> None:
        with self._failing(f"rename {source} to {target}"):
            self.disk.rename(source, target)

    def rename_managed(self, managed: ManagedFile, target: str) -> None:
        """An open descriptor goes with the file."""
        self.rename(managed.path, target)
        managed.path = target

    def remove(self, path: str) -> None:
        with self._failing(f"remove {path}"), contextlib.suppress(FileNotFoundError):
            self.disk.remove(path)

    def remove_tree(self, directory: str) -> None:
        """A directory with files and no deeper levels than partitions have.  Links go, not what they show."""
        with self._failing(f"remove {directory}"):
            try:
                self.disk.remove(directory)  # a file, or a link to a directory
            except IsADirectoryError:
                for name in self.disk.list_directory(directory):
                    self.remove_tree(f"{directory}/{name}")
                self.disk.remove_directory(directory)

    def make_empty(self, path: str) -> None:
        """Makes a file if there is none; its name is durable after `sync_directory`.  May be called from any
        thread."""
        with self._failing(f"create {path}"):
            self._open_new(path).close()

    def start_writeback(self, pinned: Sequence[File]) -> None:
        """Begins what `sync_all` waits for.  May be called from any thread."""
        if self.failure is None:
            for handle in pinned:
                handle.start_writeback()

    def sync_all(self, pinned: Sequence[File]) -> None:
        """Makes durable what was written to these files.  May be called from any thread."""
        self.check_usable()
        for handle in pinned:
            try:
                handle.sync()
            except OSError as error:
                raise self.fail(f"cannot sync {handle.path}", error) from error

    def sync_directory(self, directory: str) -> None:
        """The names in it are durable then.  May be called from any thread."""
        with self._failing(f"sync the directory {directory}"):
            self.disk.sync_directory(directory)

    # --- small files ---------------------------------------------------------------------------

    def read_small(self, path: str) -> bytes | None:
        """A whole small file, or None if there is none."""
        with _explaining(f"read {path}"):
            try:
                handle = self.disk.open(path)
            except FileNotFoundError:
                return None
            try:
                size = handle.size()
                if size > SMALL_FILE_BYTES_MAX:
                    raise CorruptLogError(f"{path} has {size} bytes; no file of its kind is that large")
                return handle.read_at(0, size)
            finally:
                handle.close()

    def write_atomically(self, path: str, data: bytes) -> None:
        """Writes a file so that it is old or new whenever the power goes, and new and durable on return.  May
        be called from any thread."""
        temporary = path + TEMPORARY_SUFFIX
        with self._failing(f"write {path}"):
            try:
                handle = self._open_new(temporary)
                try:
                    handle.truncate(0)
                    handle.write_at(0, data)
                    handle.sync()
                finally:
                    handle.close()
            except OSError as error:
                if error.errno in NO_ROOM:
                    with contextlib.suppress(OSError):
                        self.disk.remove(temporary)
                raise
            self.disk.rename(temporary, path)
            self.disk.sync_directory(os.path.dirname(path))

    # --- the directory -------------------------------------------------------------------------

    def lock(self, path: str) -> Lock:
        try:
            return self.disk.lock(path)
        except BlockingIOError as error:
            raise DirectoryLockedError(
                f"{os.path.dirname(path)} is in use by another process (lock file {path}); "
                "stop it, or copy the directory and use the copy"
            ) from error
        except OSError as error:
            raise StorageError(f"cannot take the lock file {path}: {error.strerror}") from error

    def free_bytes(self, path: str) -> int:
        return self.disk.free_bytes(path)

    def total_bytes(self, path: str) -> int:
        return self.disk.total_bytes(path)

    def close(self) -> None:
        """Closes all files; what a reader still holds is closed when the reader releases it."""
        for managed in list(self._open_files):
            managed.close()


@contextlib.contextmanager
def _explaining(what: str) -> Iterator[None]:
    """Turns errors of the disk into StorageErrors, but for a file that is not there: that is an answer."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StorageError(f"cannot {what}: {error.strerror}") from error
