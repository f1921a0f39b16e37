"""Compaction of a log: the latest record of each key stays, what it replaced goes.  Offsets stay.

    plan_compaction   on the log's thread       what to do, as data             `plan`
    run_compaction    anywhere, takes long      cleaned files beside the log    `cleaning`, `batch_filter`
    commit_compaction on the log's thread       the cleaned files take over     here

While the work is done the log lives on: it is appended to, read, trimmed, even truncated.  The commit looks
whether the result still fits.  Segments that retention deleted meanwhile are left out; after a truncation,
or if anything else is not as it was, all of the result is thrown away and the log stays as it is.

The swap, for the groups in the order of their offsets, and what a crash behind each step leaves:

    1  {base}.log.{token}.cleaned → {base}.log.swap, for every group     old, or new for the first groups
    2  sync the directory                                                new: this is the commit
    3  old files → .deleted, oldest first; .swap → .log; indexes too     new: opening finishes it (`recovery`)
    4  sync the directory                                                new

New for the first groups and old for the rest is sound: a record goes because of one behind it; a tombstone
goes only in a later run than what it deleted, and a marker than its transaction's batches.  So no group needs
what one before it lost.  A segment ends where the next one begins, also when new
(`cleaning`), so that recovery removes exactly the old segments for which a `.swap` file stands.

Readers that hold a region of an old segment keep it: the file is renamed, not removed.  The caller writes
`first_dirty_offset` of the result down once it is committed; written too late it only costs work.  If the
log is truncated below it, it must be lowered to there.
"""

from contextlib import suppress

from distributedlog.model.errors import DiskFullError, StorageError
from distributedlog.storage.compaction.cleaning import run_compaction
from distributedlog.storage.compaction.plan import (
    CleanedGroup,
    CompactionCounts,
    CompactionPlan,
    CompactionResult,
    compute_dirty_ratio,
    plan_compaction,
)
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.segment import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    file_name,
)

__all__ = [
    "CompactionCounts",
    "CompactionPlan",
    "CompactionResult",
    "commit_compaction",
    "compute_dirty_ratio",
    "discard_compaction",
    "plan_compaction",
    "run_compaction",
]


def commit_compaction(log: PartitionLog, result: CompactionResult, now_ms: int) -> bool:
    """Puts the cleaned segments in the place of the old; False if the log has changed too much meanwhile.

    If True the log is clean up to `result.first_dirty_offset`, durably.  If False, or on an error, the
    result is gone.
    """
    first_base = log.segments.first.base_offset
    groups = [group for group in result.groups if group.old[-1].end_offset > first_base]
    if log.is_closed or not _still_fits(log, result, groups):
        discard_compaction(log, result)
        return False
    try:
        log.write_epochs()  # else a crash might leave neither an epoch nor a batch that tells of it
        _make_swaps(log, result, groups)
    except StorageError:
        discard_compaction(log, result)
        raise
    try:
        for group in groups:
            _swap(log, result, group, now_ms)
    except DiskFullError as error:  # past the commit there is no way back, and to the end we cannot go
        raise log.files.fail("cannot finish a compaction", OSError(str(error))) from error
    log.files.sync_directory(log.directory)
    discard_compaction(log, result)
    return True


def discard_compaction(log: PartitionLog, result: CompactionResult) -> None:
    """Removes whatever files a result still has.  Best effort: opening the log removes them too."""
    for group in result.groups:
        for suffix in (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            with suppress(StorageError):
                log.files.remove(_cleaned_path(result, group, suffix))
        with suppress(StorageError):
            log.files.remove(_swap_path(log, group))


def _still_fits(log: PartitionLog, result: CompactionResult, groups: list[CleanedGroup]) -> bool:
    if log.truncations != result.truncations or not log.config.compacts:
        return False
    first_base = log.segments.first.base_offset
    found = {segment.base_offset: segment.size for segment in log.segments.sealed}
    for extent in result.segments:
        if extent.end_offset > first_base and found.get(extent.base_offset) != extent.size:
            return False
    return all(_is_whole(log, result, group) for group in groups)


def _is_whole(log: PartitionLog, result: CompactionResult, group: CleanedGroup) -> bool:
    """The group's first segment must be there still, and the new file as it was made."""
    path = _cleaned_path(result, group, LOG_SUFFIX)
    return (
        group.base_offset >= log.segments.first.base_offset
        and log.files.exists(path)
        and log.files.size(path) == group.size
    )


def _make_swaps(log: PartitionLog, result: CompactionResult, groups: list[CleanedGroup]) -> None:
    for group in groups:
        log.files.rename(_cleaned_path(result, group, LOG_SUFFIX), _swap_path(log, group))
    log.files.sync_directory(log.directory)


def _swap(log: PartitionLog, result: CompactionResult, group: CleanedGroup, now_ms: int) -> None:
    bases = {extent.base_offset for extent in group.old}
    old = [segment for segment in log.segments if segment.base_offset in bases]
    for segment in old:
        log.rename_deleted(segment)
    fresh = Segment(log.files, log.directory, group.base_offset, log.config.index_interval_bytes)
    log.files.rename(_swap_path(log, group), fresh.log.path)
    for suffix, path in (
        (OFFSET_INDEX_SUFFIX, fresh.offset_index.path),
        (TIME_INDEX_SUFFIX, fresh.time_index.path),
    ):
        if log.files.exists(_cleaned_path(result, group, suffix)):
            log.files.rename(_cleaned_path(result, group, suffix), path)
    fresh.size = group.size
    fresh.first_timestamp = group.first_timestamp
    fresh.max_timestamp = group.max_timestamp
    fresh.max_timestamp_offset = group.max_timestamp_offset
    log.replace_segments(old, [fresh], now_ms)
    for base_offset in bases - {group.base_offset}:
        log.snapshots.remove(base_offset)


def _cleaned_path(result: CompactionResult, group: CleanedGroup, suffix: str) -> str:
    return f"{result.directory}/{file_name(group.base_offset, suffix)}{result.cleaned_suffix}"


def _swap_path(log: PartitionLog, group: CleanedGroup) -> str:
    return f"{log.directory}/{file_name(group.base_offset, LOG_SUFFIX)}{SWAP_SUFFIX}"
