"""Taking out of a stopped node's log what nobody can read.

A batch may be whole, with a right checksum, and yet hold records that cannot be decoded: it was written
before records were walked when they came, or with `record.validation=header`, or damaged before its checksum
was made.  Readers stop there, and compaction fails.  And a record of an internal topic may be one that its
coordinator cannot read; it skips that one at every start.

| found                                             | becomes                                          |
|---------------------------------------------------|--------------------------------------------------|
| a batch whose records cannot be walked            | a batch without records, with the same offsets   |
| a batch some of whose records cannot be read      | a batch of the others, with the same offsets     |
| a control batch that cannot be read               | itself: without it its transaction would not end |
| anything else, also what a crash left at the end  | itself, byte for byte                            |

No offset moves and no readable record goes.  Every batch that is changed is first kept in `quarantine`, byte
for byte.  Then the new segment takes the old one's place as a compacted one does, by a `.swap` file, so that
opening the log finishes what a crash interrupts (`recovery`); its indexes are made anew when they are needed.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from distributedlog.model.buffers import Buffer
from distributedlog.model.errors import (
    CorruptBatchError,
    DlogError,
    InvalidRecordError,
    MalformedMessageError,
    RecordTooLargeError,
    UnsupportedCompressionError,
)
from distributedlog.records.control import read_end_marker
from distributedlog.records.record import decode_batch, decompress_records, find_record_spans, rebuild_batch
from distributedlog.storage.compaction.batch_filter import placeholder
from distributedlog.storage.files import Files, ManagedFile
from distributedlog.storage.recovery import QUARANTINE
from distributedlog.storage.scan import WINDOW_BYTES, BadBatchError, LocatedBatch, walk
from distributedlog.storage.segment import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    file_name,
)
from distributedlog.storage.verification.directory import segment_bases

UNDECODABLE = (CorruptBatchError, InvalidRecordError)
"""What a batch raises that nobody can walk, whatever limits and codecs they have."""
UNREADABLE = (*UNDECODABLE, MalformedMessageError, RecordTooLargeError, UnsupportedCompressionError)
"""What the only reader of an internal topic cannot take; it will be no better the next time."""

CheckRecord = Callable[[bytes | None, bytes | None], object]
"""Reads a record's key and value, and raises a DlogError if it cannot."""


class UnreadableRecord(NamedTuple):
    path: str
    position: int
    """Where its batch stands in the file."""
    offset: int
    """Its own, or the first of a batch whose records cannot be told apart."""
    record_count: int
    """1, or what the batch claims."""
    key: bytes | None
    reason: str
    is_droppable: bool


def find_unreadable(
    files: Files, directory: str, check: CheckRecord | None = None
) -> Iterator[UnreadableRecord]:
    """Yields every record of a log that cannot be read.  Changes nothing; what a crash left at the end, or
    damage, is where the search of a segment ends."""
    for base_offset in segment_bases(files.names(directory)):
        log = files.manage(f"{directory}/{file_name(base_offset, LOG_SUFFIX)}", writable=False)
        try:
            for batch in walk(log, 0, log.size()):
                yield from _examine(log.path, batch, check)
        except BadBatchError:
            pass
        finally:
            log.close()


def _examine(path: str, batch: LocatedBatch, check: CheckRecord | None) -> list[UnreadableRecord]:
    header = batch.header
    if header.record_count == 0:
        return []
    try:
        if header.is_control:
            read_end_marker(batch.window, batch.at, header)
            return []
        records = decode_batch(batch.window, batch.at)
    except UNREADABLE as error:
        if check is None and not isinstance(error, UNDECODABLE):
            return []  # others may have larger limits, or more codecs
        whole = UnreadableRecord(
            path,
            batch.position,
            header.base_offset,
            header.record_count,
            None,
            str(error),
            is_droppable=not header.is_control,
        )
        return [whole]
    found = []
    for record in records if check is not None else ():
        assert check is not None
        try:
            check(record.key, record.value)
        except DlogError as error:
            found.append(
                UnreadableRecord(
                    path, batch.position, record.offset, 1, record.key, str(error), is_droppable=True
                )
            )
    return found


def drop_unreadable(files: Files, directory: str, found: Sequence[UnreadableRecord]) -> list[str]:
    """Takes what was found out of the log; the files in which it is kept.  The log must not be in use."""
    files.refuse_link(directory)
    files.refuse_link(f"{directory}/{QUARANTINE}")
    kept = []
    by_path: dict[str, dict[int, list[UnreadableRecord]]] = {}
    for each in found:
        if each.is_droppable:
            by_path.setdefault(each.path, {}).setdefault(each.position, []).append(each)
    for path, by_position in by_path.items():
        kept += _rewrite(files, directory, path, by_position)
    return kept


def _rewrite(
    files: Files, directory: str, path: str, by_position: dict[int, list[UnreadableRecord]]
) -> list[str]:
    home = f"{directory}/{QUARANTINE}"
    files.make_directory(home)
    files.refuse_link(path)
    log, cleaned = files.manage(path, writable=False), files.create(f"{path}{CLEANED_SUFFIX}")
    kept: list[str] = []
    done = written = 0
    try:
        size = log.size()
        try:
            for batch in walk(log, 0, size):
                found = by_position.get(batch.position)
                became: Buffer = batch.data
                if found is not None:
                    kept.append(_keep_aside(files, home, path, batch))
                    became = _without(batch, found)
                cleaned.append_at(written, became)
                written += len(became)
                done = batch.position + batch.header.size
        except BadBatchError:
            _copy_rest(log, done, size, cleaned, written)
        cleaned.sync()
    finally:
        log.close()
        cleaned.close()
    files.sync_directory(home)
    _swap(files, directory, path)
    return kept


def _without(batch: LocatedBatch, found: list[UnreadableRecord]) -> Buffer:
    header = batch.header
    gone = {each.offset - header.base_offset for each in found}
    if found[0].record_count > 1 or len(gone) >= header.record_count:
        return placeholder(batch)
    try:
        section = decompress_records(batch.window, batch.at, header)
        spans = find_record_spans(section, header)
    except UNREADABLE:  # the one record that it claims
        return placeholder(batch)
    left = [span for span in spans if span.offset_delta not in gone]
    return rebuild_batch(header, b"".join([section[span.start : span.end] for span in left]), len(left))


def _keep_aside(files: Files, home: str, path: str, batch: LocatedBatch) -> str:
    name = path.rpartition("/")[2]
    target = files.find_free_path(f"{home}/{name}.{batch.position}")
    copy = files.create(target)
    try:
        copy.append_at(0, bytes(batch.data))
        copy.sync()
    finally:
        copy.close()
    return target


def _copy_rest(log: ManagedFile, position: int, end: int, target: ManagedFile, written: int) -> None:
    while position < end:
        part = log.read_at(position, min(WINDOW_BYTES, end - position))
        if not part:
            return
        target.append_at(written, part)
        position += len(part)
        written += len(part)


def _swap(files: Files, directory: str, path: str) -> None:
    """Puts the new file in the place of the old one, as `recovery` would if it found the `.swap` file."""
    files.rename(f"{path}{CLEANED_SUFFIX}", f"{path}{SWAP_SUFFIX}")
    files.sync_directory(directory)
    stem = path.removesuffix(LOG_SUFFIX)
    for suffix in SEGMENT_SUFFIXES[1:]:
        files.remove(stem + suffix)
    files.rename(f"{path}{SWAP_SUFFIX}", path)
    files.sync_directory(directory)
