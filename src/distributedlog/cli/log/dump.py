"""`dlog log dump`: what stands in the files of a log.  Opens everything for reading only.

Log files are walked batch by batch, so a dump of any size begins at once and needs little memory.  Where no
sound batch stands, a warning says so and the walk goes on at the next one; the exit code is then 1, unless
it was only the torn end of the last segment.
"""

import os
import sys
from collections.abc import Callable

import click

from distributedlog.cli.exit_codes import NotFoundError
from distributedlog.cli.locations import locate, selection_options
from distributedlog.cli.log.show import (
    ABORTED_COLUMNS,
    EPOCH_COLUMNS,
    INDEX_COLUMNS,
    PRODUCER_COLUMNS,
    TIME_COLUMNS,
    Printer,
)
from distributedlog.cli.output import output_option, warn
from distributedlog.cli.standard_output import check_stdout_open
from distributedlog.cli.timestamps import TimestampType
from distributedlog.model.errors import CorruptLogError, DlogError
from distributedlog.ports.disk import SystemDisk
from distributedlog.records.record import decode_batch
from distributedlog.storage.checkpoints import LEADER_EPOCH_FILE, decode_epochs
from distributedlog.storage.files import Files
from distributedlog.storage.producers import ProducerStates
from distributedlog.storage.scan import LocatedBatch
from distributedlog.storage.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from distributedlog.storage.txn_index import TransactionIndex
from distributedlog.storage.verification.directory import RAFT_SNAPSHOT_SUFFIX, is_stem, segment_bases
from distributedlog.storage.verification.segment import (
    OFFSET_FORM,
    TIME_FORM,
    UnsoundPlace,
    read_entries,
    walk_through,
)

DERIVED_SUFFIXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, SNAPSHOT_SUFFIX)

KNOWN_FILES = (LOG_SUFFIX, *DERIVED_SUFFIXES, LEADER_EPOCH_FILE)


@click.command()
@click.argument("path", metavar="DIR|FILE")
@selection_options
@click.option("--records", "with_records", is_flag=True, help="Show the records, not only the batches.")
@click.option("--keys-only", is_flag=True, help="Records without their values and headers.")
@click.option("--offset", type=click.IntRange(min=0), metavar="N", help="Begin at this offset.")
@click.option(
    "--from-time", type=TimestampType(), help="Begin with the first record of this time: 2026-01-31, -10m."
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after so many rows.")
@click.option(
    "--all", "with_derived", is_flag=True, help="Also the indexes, snapshots and epochs of a directory."
)
@output_option
def dump(
    path: str,
    topic: str | None,
    partition: int | None,
    with_records: bool,
    keys_only: bool,
    offset: int | None,
    from_time: int | None,
    limit: int | None,
    with_derived: bool,
    output: str,
) -> int:
    """Show what is in a log: its batches, and with --records its records.

    Takes a data directory, a partition's directory, or one file: .log, .index, .timeindex, .txnindex,
    .snapshot, leader-epoch-checkpoint.  Changes nothing, and may be used while the log is in use.

    \b
    dlog log dump data --topic orders --records --limit 10
    dlog log dump data/orders-0 --records --offset 1000 -o json
    dlog log dump data/orders-0/00000000000000000000.index
    """
    check_stdout_open()
    printer = Printer(as_json=output == "json", keys_only=keys_only)
    dumping = Dump(printer, with_records or keys_only, offset or 0, from_time, limit or sys.maxsize)
    if os.path.isfile(path):
        dumping.file(None, path)
        return dumping.exit_code
    location = locate(path, topic, partition)
    if location.is_in_use:
        warn(f"{location.data_directory} is in use: this is what has been written so far")
    for each in location.partitions:
        dumping.directory(each.label, each.path, with_derived=with_derived)
    return dumping.exit_code


class Dump:
    """Goes from file to file; counts rows, and remembers whether anything was unsound."""

    def __init__(
        self, printer: Printer, with_records: bool, offset: int, from_time: int | None, limit: int
    ) -> None:
        self._files = Files(SystemDisk())
        self._printer = printer
        self._with_records = with_records
        self._offset = offset
        self._from_time = from_time
        self._left = limit
        self.exit_code = 0

    # --- directories ---------------------------------------------------------------------------

    def directory(self, label: str, path: str, *, with_derived: bool) -> None:
        from_time = self._from_time
        names = os.listdir(path)
        bases = segment_bases(names)
        for at, base in enumerate(bases):
            is_last = at + 1 == len(bases)
            if self._left and (is_last or bases[at + 1] > self._offset):
                show = self._last_log if is_last else self._sealed_log
                self._present(label, f"{path}/{file_name(base, LOG_SUFFIX)}", show)
        self._from_time = from_time  # each partition begins at that time
        if with_derived:
            derived = [name for name in names if name.endswith(DERIVED_SUFFIXES) or name == LEADER_EPOCH_FILE]
            for name in sorted(derived):
                self._present(label, f"{path}/{name}", self.file)

    def _present(self, label: str, path: str, show: Callable[[str | None, str], None]) -> None:
        """A file that a live log removes meanwhile is passed over; one that cannot be read is reported."""
        try:
            show(label, path)
        except FileNotFoundError:
            warn(f"{path} was removed while the directory was read")
        except CorruptLogError as error:
            warn(str(error))
            self.exit_code = 1

    # --- files ---------------------------------------------------------------------------------

    def file(self, label: str | None, path: str) -> None:
        name = os.path.basename(path)
        for ending in (SWAP_SUFFIX, DELETED_SUFFIX, CLEANED_SUFFIX):
            name = name.removesuffix(ending)
        if name == LEADER_EPOCH_FILE:
            self._epochs(label, path)
        elif name.endswith((LOG_SUFFIX, RAFT_SNAPSHOT_SUFFIX)):
            self._last_log(label, path)
        elif name.endswith(SNAPSHOT_SUFFIX):
            self._snapshot(label, path)
        elif name.endswith((OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)):
            self._index(label, path, name)
        else:
            raise click.UsageError(f"{path} is not a file of a log: none of {', '.join(KNOWN_FILES)}")

    def _last_log(self, label: str | None, path: str) -> None:
        self._log(label, path, is_last=True)

    def _sealed_log(self, label: str | None, path: str) -> None:
        self._log(label, path, is_last=False)

    def _log(self, label: str | None, path: str, *, is_last: bool) -> None:
        log = self._files.manage(path, writable=False)
        is_selective = self._offset > 0 or self._from_time is not None
        self._printer.begin_log(label, path, with_records=self._with_records, is_shown_empty=not is_selective)
        try:
            for item in walk_through(log, 0, log.size()):
                if isinstance(item, UnsoundPlace):
                    self._unsound(item, is_damage=item.resumes_at is not None or not is_last)
                elif not self._is_before(item):
                    self._batch(item)
                if not self._left:
                    return
        finally:
            log.close()

    def _unsound(self, place: UnsoundPlace, *, is_damage: bool) -> None:
        self._printer.unsound(place)
        if is_damage:
            self.exit_code = 1

    def _is_before(self, batch: LocatedBatch) -> bool:
        header = batch.header
        return header.last_offset < self._offset or (
            self._from_time is not None and header.max_timestamp < self._from_time
        )

    def _batch(self, batch: LocatedBatch) -> None:
        if self._with_records:
            self._records(batch)
            return
        self._from_time = None
        self._printer.batch(batch)
        self._left -= 1

    def _records(self, batch: LocatedBatch) -> None:
        try:
            records = decode_batch(batch.window, batch.at, check_crc=False)
        except DlogError as error:
            behind = batch.position + batch.header.size
            self._unsound(UnsoundPlace(batch.position, str(error), behind), is_damage=True)
            return
        for record in records:
            if record.offset < self._offset:
                continue
            if self._from_time is not None:
                if record.timestamp_ms < self._from_time:
                    continue
                self._from_time = None
            if not self._left:
                return
            self._printer.record(record, batch)
            self._left -= 1

    # --- what is beside the log ----------------------------------------------------------------

    def _index(self, label: str | None, path: str, name: str) -> None:
        stem = name.partition(".")[0]
        if not is_stem(stem):
            raise click.UsageError(f"{path} is not named by its segment's base offset, twenty digits")
        printer, base = self._printer, int(stem)
        if name.endswith(TXN_INDEX_SUFFIX):
            printer.begin_file(label, path, ABORTED_COLUMNS)
            for aborted in TransactionIndex(self._files, path, base).entries():
                printer.aborted(aborted)
            return
        form = TIME_FORM if name.endswith(TIME_INDEX_SUFFIX) else OFFSET_FORM
        printer.begin_file(label, path, TIME_COLUMNS if form is TIME_FORM else INDEX_COLUMNS)
        try:
            entries, spare = read_entries(self._small(path), form, base)
        except CorruptLogError as error:
            raise CorruptLogError(f"{path} {error}") from error
        for first, second in entries:
            (printer.time_index_entry if form is TIME_FORM else printer.index_entry)(first, second)
        if spare:
            warn(f"{path}: {spare} bytes behind the entries are allocated and not used")

    def _snapshot(self, label: str | None, path: str) -> None:
        self._printer.begin_file(label, path, PRODUCER_COLUMNS)
        for state in _decoded(path, ProducerStates.decode_snapshot, self._small(path)):
            self._printer.producer(state)

    def _epochs(self, label: str | None, path: str) -> None:
        self._printer.begin_file(label, path, EPOCH_COLUMNS)
        for entry in decode_epochs(self._small(path), path):
            self._printer.epoch(entry)

    def _small(self, path: str) -> bytes:
        data = self._files.read_small(path)
        if data is None:
            raise NotFoundError(f"there is no file {path}")
        return data


def _decoded(path: str, decode: Callable[[bytes], ProducerStates], data: bytes) -> ProducerStates:
    try:
        return decode(data)
    except CorruptLogError as error:
        raise CorruptLogError(f"{path}: {error}") from error
