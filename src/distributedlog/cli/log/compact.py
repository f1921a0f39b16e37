"""`dlog log compact`: compaction of logs, offline and now.

The directory is opened as its owner would open it (so what a crash left is repaired first), the wanted logs
are compacted whatever their dirty ratio, and everything is closed again.  `--dry-run` does the
very same on a shadow of the directory.

What a topic is for is not written in its directory.  Compaction drops records without a key, so a log that
has such records is refused unless they are given up by name; and of many topics one must be named.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import click

from distributedlog.cli.locations import Location, PartitionDirectory, locate, selection_options
from distributedlog.cli.log.index import circumstances_of
from distributedlog.cli.output import output_option, print_json, print_line, show_size
from distributedlog.cli.scratch_disk import ScratchDisk
from distributedlog.model.config import INT64_MAX, LogConfig
from distributedlog.model.errors import ConfigError, CorruptLogError, DirectoryLockedError, InvalidRecordError
from distributedlog.model.ids import TopicPartition
from distributedlog.ports.clock import SystemClock
from distributedlog.ports.disk import Disk, SystemDisk
from distributedlog.ports.randomness import SystemRandomness
from distributedlog.records.record import decompress_records, find_record_spans
from distributedlog.storage.compaction.log import (
    commit_compaction,
    plan_compaction,
    run_compaction,
)
from distributedlog.storage.files import Files
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.recovery import open_log
from distributedlog.storage.scan import LocatedBatch
from distributedlog.storage.segment import LOG_SUFFIX, file_name
from distributedlog.storage.store import FOREVER_MS, LogStore
from distributedlog.storage.verification.directory import PartitionVerification, segment_bases
from distributedlog.storage.verification.findings import Severity
from distributedlog.storage.verification.segment import walk_through

DEFAULTS = {"cleanup.policy": "compact"}


@click.command()
@click.argument("path", metavar="DIR")
@selection_options
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A log setting, e.g. delete.retention.ms=0."
)
@click.option(
    "--roll", is_flag=True, help="Seal the active segment first, so that all of the log is compacted."
)
@click.option(
    "--drop-keyless", is_flag=True, help="Records without a key are dropped; otherwise they are refused."
)
@click.option("--dry-run", is_flag=True, help="Do it on a shadow of the directory; change nothing.")
@output_option
def compact(
    path: str,
    topic: str | None,
    partition: int | None,
    settings: tuple[str, ...],
    roll: bool,
    drop_keyless: bool,
    dry_run: bool,
    output: str,
) -> int:
    """Keep the last value of each key, now.  The data directory must not be in use.

    DIR is one partition's directory, or a data directory; if that has many topics, --topic says which.

    \b
    dlog log compact data --topic users --dry-run
    dlog log compact data/users-0 --roll --set delete.retention.ms=0
    """
    config = _config(settings)
    location = locate(path, topic, partition)
    topics = {each.partition.topic for each in location.partitions if each.partition is not None}
    if len(topics) > 1:
        raise click.UsageError(f"say which to compact with --topic: {', '.join(sorted(topics)[:20])}")
    if location.is_in_use:
        asking = "; of a running cluster, dlog topic analyze --full says it" if dry_run else ""
        raise DirectoryLockedError(
            f"{location.data_directory} is in use by another process; stop it first, "
            f"or copy the directory and compact the copy{asking}"
        )
    for each in location.partitions:
        _refuse_damaged(location, each)
        if not drop_keyless:
            _refuse_keyless(each)
    with _opened(location, config, dry_run=dry_run) as (disk, logs):
        outcomes = [_compact(log, disk, roll=roll) for log in logs]
    for outcome in outcomes:
        _print(outcome, as_json=output == "json", dry_run=dry_run)
    return 0


def _config(settings: tuple[str, ...]) -> LogConfig:
    given = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise click.UsageError(f"--set {setting}: write KEY=VALUE, as in --set delete.retention.ms=0")
        given[key.strip()] = value.strip()
    config = LogConfig.from_properties(DEFAULTS | given)
    if not config.compacts:
        raise ConfigError(f"cleanup.policy is {given['cleanup.policy']!r}, with which nothing is compacted")
    return config


# --- opening -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _OpenLog:
    label: str
    partition: TopicPartition | None
    log: PartitionLog
    first_dirty_offset: int
    store: LogStore | None

    def note_clean(self, offset: int) -> None:
        self.first_dirty_offset = offset
        if self.store is not None and self.partition is not None:
            self.store.first_dirty_offsets[self.partition] = offset


@contextmanager
def _opened(location: Location, config: LogConfig, *, dry_run: bool) -> Iterator[tuple[Disk, list[_OpenLog]]]:
    """The wanted logs, opened on the real disk or on a shadow of it, and closed again."""
    with ExitStack() as stack:
        disk: Disk = SystemDisk()
        if dry_run:
            disk = ScratchDisk(stack.enter_context(tempfile.TemporaryDirectory(prefix="dlog-dry-run-")))
        if location.data_directory is None:
            yield disk, [stack.enter_context(_open_alone(disk, location.partitions[0], config))]
        else:
            yield disk, stack.enter_context(_open_store(disk, location, config))


def _refuse_damaged(location: Location, each: PartitionDirectory) -> None:
    files = Files(SystemDisk())
    circumstances = circumstances_of(files, location, each)
    for finding in PartitionVerification(files, each.path, circumstances).run():
        if finding.severity is Severity.DAMAGE:
            raise CorruptLogError(
                f"{each.label} is damaged and not compacted; see dlog log verify: {finding}"
            )


def _refuse_keyless(each: PartitionDirectory) -> None:
    files = Files(SystemDisk())
    for base in segment_bases(files.names(each.path)):
        log = files.manage(f"{each.path}/{file_name(base, LOG_SUFFIX)}", writable=False)
        for batch in walk_through(log, 0, log.size()):
            if isinstance(batch, LocatedBatch) and not batch.header.is_control:
                section = decompress_records(batch.window, batch.at, batch.header)
                if any(span.key is None for span in find_record_spans(section, batch.header)):
                    raise InvalidRecordError(
                        f"{each.label} has records without a key, the first in the batch at offset "
                        f"{batch.header.base_offset}; compaction would drop them: say --drop-keyless "
                        "if that is meant"
                    )
        log.close()


@contextmanager
def _open_store(disk: Disk, location: Location, config: LogConfig) -> Iterator[list[_OpenLog]]:
    assert location.data_directory is not None
    store = LogStore.open(
        disk, location.data_directory, clock=SystemClock(), randomness=SystemRandomness(), config=config
    )
    opened = []
    for each in location.partitions:
        assert each.partition is not None
        first_dirty = store.first_dirty_offsets.get(each.partition, 0)
        opened.append(_OpenLog(each.label, each.partition, store.logs[each.partition], first_dirty, store))
    try:
        yield opened
    except Exception:
        store.close()
        raise
    except BaseException:
        store.abandon()  # as a crash would leave it: the next open puts it in order
        raise
    store.close()


@contextmanager
def _open_alone(disk: Disk, each: PartitionDirectory, config: LogConfig) -> Iterator[_OpenLog]:
    files = Files(disk)
    # Without a data directory nobody knows how far it was compacted: gaps are taken as right.
    log, _ = open_log(files, each.path, config, now_ms=SystemClock().wall_ms(), first_dirty_offset=INT64_MAX)
    try:
        yield _OpenLog(each.label, each.partition, log, 0, None)
        log.close()
    finally:
        log.abandon()
        files.close()


# --- compacting --------------------------------------------------------------------------------


@dataclass(slots=True)
class Outcome:
    label: str
    bytes_before: int = 0
    bytes_after: int = 0
    segments_before: int = 0
    segments_after: int = 0
    records_dropped: int = 0
    tombstones_dropped: int = 0
    markers_dropped: int = 0
    first_dirty_offset: int = 0
    runs: int = 0


def _compact(opened: _OpenLog, disk: Disk, *, roll: bool) -> Outcome:
    log, now_ms = opened.log, SystemClock().wall_ms()
    outcome = Outcome(opened.label, bytes_before=log.size_bytes, segments_before=len(log.segments))
    if roll:
        log.roll(now_ms)
        log.sync()
    has_more = True
    while has_more:  # a run looks at so many keys and no more; the next goes on where it stopped
        plan = plan_compaction(log, opened.first_dirty_offset, now_ms, force=True)
        if plan is None:
            break
        result = run_compaction(plan, disk)
        if not commit_compaction(log, result, now_ms):
            break
        has_more = plan.first_dirty_offset < result.first_dirty_offset < plan.end_offset
        opened.note_clean(result.first_dirty_offset)
        log.remove_deleted_files(FOREVER_MS)  # nobody else reads them
        outcome.runs += 1
        outcome.records_dropped += result.counts.records_before - result.counts.records_after
        outcome.tombstones_dropped += result.counts.tombstones_dropped
        outcome.markers_dropped += result.counts.markers_dropped
    outcome.bytes_after, outcome.segments_after = log.size_bytes, len(log.segments)
    outcome.first_dirty_offset = opened.first_dirty_offset
    return outcome


# --- printing ----------------------------------------------------------------------------------


def _print(outcome: Outcome, *, as_json: bool, dry_run: bool) -> None:
    if as_json:
        print_json(
            {
                "type": "compaction",
                "partition": outcome.label,
                "dry_run": dry_run,
                "is_compacted": outcome.runs > 0,
                "bytes_before": outcome.bytes_before,
                "bytes_after": outcome.bytes_after,
                "segments_before": outcome.segments_before,
                "segments_after": outcome.segments_after,
                "records_dropped": outcome.records_dropped,
                "tombstones_dropped": outcome.tombstones_dropped,
                "markers_dropped": outcome.markers_dropped,
                "first_dirty_offset": outcome.first_dirty_offset,
            }
        )
        return
    if outcome.runs == 0:
        print_line(
            f"{outcome.label}  nothing to compact (the active segment is left alone; --roll seals it first)"
        )
        return
    change = 100 * (outcome.bytes_after - outcome.bytes_before) / max(outcome.bytes_before, 1)
    verb = "would become" if dry_run else "became"
    print_line(
        f"{outcome.label}  {show_size(outcome.bytes_before)} in {outcome.segments_before} segments {verb} "
        f"{show_size(outcome.bytes_after)} in {outcome.segments_after} ({change:+.0f} %): "
        f"{outcome.records_dropped} records dropped, {outcome.tombstones_dropped} tombstones, "
        f"{outcome.markers_dropped} markers"
    )
