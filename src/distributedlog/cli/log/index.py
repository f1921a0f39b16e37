"""`dlog log index`: makes the indexes of logs anew from their batches.  It takes the directory's lock."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import click

from distributedlog.cli.locations import Location, PartitionDirectory, locate, selection_options
from distributedlog.cli.output import output_option, print_json, print_line, show_size, warn
from distributedlog.model.config import LogConfig
from distributedlog.model.errors import CorruptLogError
from distributedlog.ports.disk import SystemDisk
from distributedlog.storage.checkpoints import LOCK_FILE
from distributedlog.storage.files import Files
from distributedlog.storage.repair.reindexing import IndexChange, reindex
from distributedlog.storage.verification.directory import DirectoryVerification
from distributedlog.storage.verification.findings import Circumstances

EXIT_UNSOUND = 1


@click.command()
@click.argument("path", metavar="DIR")
@selection_options
@click.option(
    "--check", "check_only", is_flag=True, help="Only say what would change; exit code 1 if anything."
)
@click.option(
    "--all", "is_every", is_flag=True, help="Rebuild also those that are right but would be different."
)
@click.option(
    "--interval-bytes",
    metavar="BYTES",
    type=click.IntRange(min=0, max=2**31 - 1),
    default=LogConfig().index_interval_bytes,
    show_default=True,
    help="One entry for about this much log (index.interval.bytes).",
)
@output_option
def index(
    path: str,
    topic: str | None,
    partition: int | None,
    check_only: bool,
    is_every: bool,
    interval_bytes: int,
    output: str,
) -> int:
    """Rebuild the indexes of a log that are missing or wrong, from the log itself.

    For .index, .timeindex and .txnindex files.  The log files are not changed.  The data directory must not
    be in use, but with --check it may be.

    \b
    dlog log index data --topic orders --check
    dlog log index data/orders-0
    """
    location = locate(path, topic, partition)
    files = Files(SystemDisk())
    report = Report(as_json=output == "json", root=location.path, check_only=check_only)
    with owned(files, location, is_needed=not check_only):
        for each in location.partitions:
            try:
                for change in reindex(
                    files,
                    each.path,
                    circumstances_of(files, location, each),
                    index_interval_bytes=interval_bytes,
                    is_every=is_every,
                    is_dry=check_only,
                ):
                    report.change(change)
            except CorruptLogError as error:
                warn(str(error))
                report.damaged += 1
    return report.finish(len(location.partitions))


@contextmanager
def owned(files: Files, location: Location, *, is_needed: bool) -> Iterator[None]:
    """Holds the data directory's lock; DirectoryLockedError if another process has it."""
    if location.data_directory is None or not is_needed:
        yield
        return
    lock = files.lock(f"{location.data_directory}/{LOCK_FILE}")
    try:
        yield
    finally:
        lock.release()


def circumstances_of(files: Files, location: Location, each: PartitionDirectory) -> Circumstances:
    if location.data_directory is None or each.partition is None:
        return Circumstances()
    return DirectoryVerification(files, location.data_directory).circumstances_of(each.partition)


class Report:
    def __init__(self, *, as_json: bool, root: str, check_only: bool) -> None:
        self._as_json = as_json
        self._root = root
        self._check_only = check_only
        self._changes = 0
        self.damaged = 0

    def change(self, change: IndexChange) -> None:
        self._changes += 1
        path = os.path.relpath(change.path, self._root)
        if self._as_json:
            print_json(
                {"type": "index_change", **change._asdict(), "path": path, "done": not self._check_only}
            )
            return
        before = "none" if change.bytes_before is None else show_size(change.bytes_before)
        after = "none" if change.bytes_after is None else show_size(change.bytes_after)
        verb = "would be rebuilt" if self._check_only else "rebuilt"
        print_line(f"{path}  {verb} ({before} -> {after}): {change.reason}")

    def finish(self, partitions: int) -> int:
        if not self._as_json:
            verb = "to rebuild" if self._check_only else "rebuilt"
            print_line(f"{self._changes} indexes {verb} in {partitions} partitions")
        is_unsound = self.damaged or (self._check_only and self._changes)
        return EXIT_UNSOUND if is_unsound else 0
