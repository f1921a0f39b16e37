"""Making the indexes of a log anew from its batches, where they are not right.

A verification says which are wrong; those, or all, are built from the log files and compared byte for byte
with what is there.  A file that differs is replaced atomically, so a crash leaves an old or a new one, and
either is checked before it is believed.  The log files themselves are only read.

The log must not be in use.  What cannot be indexed is left alone: from a damaged place on a log file has no
certain positions, so a damaged segment raises `CorruptLogError`; the torn end of the last segment, which
opening the log cuts off, is left out.
"""

from collections.abc import Iterator
from typing import NamedTuple

from distributedlog.model.config import LogConfig
from distributedlog.model.errors import CorruptLogError
from distributedlog.storage.files import Files
from distributedlog.storage.index import OFFSET_ENTRY, TIME_ENTRY
from distributedlog.storage.producer_history import apply_batch
from distributedlog.storage.producers import ProducerStates
from distributedlog.storage.scan import BadBatchError, walk
from distributedlog.storage.segment import SNAPSHOT_SUFFIX, Segment, file_name
from distributedlog.storage.txn_index import ENTRY as TXN_ENTRY
from distributedlog.storage.txn_index import VERSION as TXN_VERSION
from distributedlog.storage.txn_index import AbortedTransaction
from distributedlog.storage.verification.directory import PartitionVerification, segment_bases
from distributedlog.storage.verification.findings import Circumstances, Finding, Severity


class IndexChange(NamedTuple):
    path: str
    reason: str
    bytes_before: int | None
    """None if there was no file."""
    bytes_after: int | None
    """None if there is to be none: an empty transaction index has no file."""


Content = bytes | None


def reindex(
    files: Files,
    directory: str,
    circumstances: Circumstances,
    *,
    index_interval_bytes: int = LogConfig().index_interval_bytes,
    is_every: bool = False,
    is_dry: bool = False,
) -> Iterator[IndexChange]:
    """Replaces the indexes that are wrong, or every one that differs (`is_every`); says which.

    `is_dry` only says.
    """
    findings = list(PartitionVerification(files, directory, circumstances).run())
    wrong = {finding.path: finding.message for finding in findings}
    damaged = _damaged_log(findings)
    if damaged is not None:
        raise CorruptLogError(
            f"{damaged.path} is damaged at position {damaged.position}: {damaged.message}; "
            "the indexes are left alone"
        )
    bases = segment_bases(files.names(directory))
    states = _states_at_start(files, directory, bases[0]) if bases else ProducerStates()
    for base in bases:
        segment = Segment(files, directory, base, index_interval_bytes)
        for path, content in _fresh_indexes(files, segment, states):
            reason = wrong.get(path, "differs" if is_every else None)
            if reason is None:
                continue
            before = files.read_small(path)
            if before != content:
                if not is_dry:
                    _replace(files, directory, path, content)
                yield IndexChange(path, reason, _length(before), _length(content))


def _damaged_log(findings: list[Finding]) -> Finding | None:
    damage = (finding for finding in findings if finding.severity is Severity.DAMAGE)
    return next((finding for finding in damage if finding.position is not None), None)


def _states_at_start(files: Files, directory: str, first_base: int) -> ProducerStates:
    """Transactions may be open where the log begins; a snapshot there says so."""
    data = files.read_small(f"{directory}/{file_name(first_base, SNAPSHOT_SUFFIX)}")
    try:
        return ProducerStates() if data is None else ProducerStates.decode_snapshot(data)
    except CorruptLogError:
        return ProducerStates()


def _fresh_indexes(files: Files, segment: Segment, states: ProducerStates) -> Iterator[tuple[str, Content]]:
    """Yields path and content of each index that the segment's batches call for."""
    segment.reset_indexes()
    aborted: list[AbortedTransaction] = []
    log = files.manage(segment.log.path, writable=False)
    try:
        for batch in walk(log, 0, log.size()):
            segment.note(batch.header, batch.position)
            ended = apply_batch(states, batch)
            if ended is not None:
                aborted.append(ended)
    except BadBatchError:
        pass  # the torn end of the last segment: what is damage was found before
    finally:
        log.close()
    if segment.max_timestamp >= 0:
        segment.time_index.append_if_newer(segment.max_timestamp, segment.max_timestamp_offset)
    base = segment.base_offset
    yield (
        segment.offset_index.path,
        b"".join(
            OFFSET_ENTRY.pack(offset - base, position) for offset, position in segment.offset_index.entries()
        ),
    )
    yield (
        segment.time_index.path,
        b"".join(
            TIME_ENTRY.pack(timestamp, offset - base) for timestamp, offset in segment.time_index.entries()
        ),
    )
    yield segment.txn_index.path, b"".join(TXN_ENTRY.pack(TXN_VERSION, *entry) for entry in aborted) or None


def _replace(files: Files, directory: str, path: str, content: Content) -> None:
    if content is None:
        files.remove(path)
        files.sync_directory(directory)
    else:
        files.write_atomically(path, content)


def _length(content: Content) -> int | None:
    return None if content is None else len(content)


__all__ = ["IndexChange", "reindex"]
