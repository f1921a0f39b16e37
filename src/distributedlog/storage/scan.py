"""Walking the batches of a log file, in windows, from a known batch boundary.

Everything that reads a file front to back uses this: recovery, verification, dumps, rebuilding an index,
replaying producers, compaction.  It stops by raising `BadBatchError` at the first position that does not
hold a whole, sound batch; what that means (a torn tail, corruption) is for the caller to decide.

Who wants to know only which batches there are, and not what is in them, walks their headers
(`walk_headers`): of large batches little is read.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from distributedlog.model.buffers import Buffer
from distributedlog.model.errors import CorruptBatchError, UnsupportedCompressionError, UnsupportedFormatError
from distributedlog.model.limits import RecordLimits
from distributedlog.records.batch import HEADER_BYTES, LOG_OVERHEAD, BatchHeader, read_header, scan

WINDOW_BYTES = 1024 * 1024
HEADER_WINDOW_BYTES = 16 * 1024
"""Some dozens of small batches, or the header of a large one."""
SEARCH_WORK_BYTES = 4 * 1024 * WINDOW_BYTES
"""What recovery reads at the most to tell a torn tail from damage: some seconds."""
CANDIDATE_WORK_BYTES = 1024
"""Looking at a place costs as much as reading so many bytes."""
LIMITS = RecordLimits()


class Readable(Protocol):
    def read_at(self, position: int, length: int) -> bytes: ...


class LocatedBatch(NamedTuple):
    position: int
    """Where it stands in the file."""
    header: BatchHeader
    window: Buffer
    """What was read of the file; the whole batch is in it."""
    at: int
    """Where the batch begins in the window."""

    @property
    def data(self) -> memoryview:
        return memoryview(self.window)[self.at : self.at + self.header.size]


class BadBatchError(Exception):
    """There is no whole and sound batch at `position`."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"at position {position}: {reason}")
        self.position = position
        self.reason = reason


class OutOfOrderError(BadBatchError):
    """A batch is sound but for its offsets, which do not rise: they, or those before, are damaged."""


def walk(
    file: Readable, position: int, end: int, *, check_crc: bool = True, window_bytes: int = WINDOW_BYTES
) -> Iterator[LocatedBatch]:
    """The batches from `position` up to `end`, offsets rising; BadBatchError unless all are sound."""
    window_bytes_wanted = window_bytes
    next_offset = -1
    while position < end:
        wanted = min(window_bytes_wanted, end - position)
        window = file.read_at(position, wanted)
        found = scan(window, check_crc=check_crc)
        at = 0
        for header in found.headers:
            if header.base_offset < next_offset:
                raise OutOfOrderError(
                    position + at, f"offset {header.base_offset} stands after {next_offset - 1}"
                )
            yield LocatedBatch(position + at, header, window, at)
            next_offset = header.next_offset
            at += header.size
        position += found.end
        if found.end:
            window_bytes_wanted = window_bytes
        elif len(window) < wanted:
            raise BadBatchError(position, f"the file ends at {position + len(window)}, and should at {end}")
        elif 0 < found.needs_bytes <= min(end - position, LIMITS.batch_bytes_max):
            window_bytes_wanted = found.needs_bytes
        else:
            raise BadBatchError(position, found.reason or "no batch")


def walk_headers(file: Readable, position: int, end: int) -> Iterator[LocatedBatch]:
    """Walks as `walk` does, without checksums; the window may have only a batch's header.  Control batches
    are in it whole."""
    window = b""
    window_at = position
    next_offset = -1
    while position < end:
        if position + HEADER_BYTES > window_at + len(window):
            window_at, window = position, file.read_at(position, min(HEADER_WINDOW_BYTES, end - position))
        header = _header_at(window, position - window_at, position, end)
        if header.base_offset < next_offset:
            raise OutOfOrderError(position, f"offset {header.base_offset} stands after {next_offset - 1}")
        if header.is_control and position + header.size > window_at + len(window):
            window_at, window = position, file.read_at(position, header.size)
        yield LocatedBatch(position, header, window, position - window_at)
        next_offset = header.next_offset
        position += header.size


def _header_at(window: bytes, at: int, position: int, end: int) -> BatchHeader:
    try:
        header = read_header(window, at)
    except (CorruptBatchError, UnsupportedFormatError, UnsupportedCompressionError) as error:
        raise BadBatchError(position, str(error)) from None
    if header.size > min(end - position, LIMITS.batch_bytes_max):
        raise BadBatchError(position, "the last batch is cut off")
    return header


def find_valid_batch_behind(
    file: Readable, position: int, end: int, *, work_bytes_max: int | None = None
) -> int | None:
    """The position of a sound batch after a bad one at `position`, if any stands there.

    A torn write leaves nothing sound behind it; damage in the middle does.  Batches are not aligned, so
    every byte where the format's version stands at its place is tried.  Bytes made to look like many large
    batches would keep it busy for hours: once it has cost more than `work_bytes_max`, the next place counts
    as a batch, which errs on the side of keeping.
    """
    start, work_bytes = position + 1, 0
    while start < end:
        window = file.read_at(start, min(WINDOW_BYTES + HEADER_BYTES, end - start))
        at = window.find(b"\x02", 16)
        while at != -1 and at - 16 < WINDOW_BYTES:
            size = _claimed_size(window, at - 16, end - start)
            work_bytes += CANDIDATE_WORK_BYTES + size
            if work_bytes_max is not None and work_bytes > work_bytes_max:
                return start + at - 16
            if size > 0 and _is_batch(file, window, at - 16, start, size):
                return start + at - 16
            at = window.find(b"\x02", at + 1)
        start += WINDOW_BYTES
    return None


def _claimed_size(window: bytes, at: int, left: int) -> int:
    """The size of the batch that begins at `at`, by its header; 0 if none can."""
    header = window[at : at + HEADER_BYTES]
    if len(header) < HEADER_BYTES:
        return 0
    size = LOG_OVERHEAD + int.from_bytes(header[8:12], "big", signed=True)
    if not HEADER_BYTES <= size <= min(left - at, LIMITS.batch_bytes_max):
        return 0
    base_offset = int.from_bytes(header[0:8], "big", signed=True)
    last_offset_delta = int.from_bytes(header[23:27], "big", signed=True)
    return size if base_offset >= 0 and last_offset_delta >= 0 else 0


def _is_batch(file: Readable, window: bytes, at: int, start: int, size: int) -> bool:
    batch = window[at : at + size]
    if len(batch) < size:
        batch = file.read_at(start + at, size)
    return len(scan(batch).headers) == 1
