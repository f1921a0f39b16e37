"""`dlog log verify`: reads every byte of logs and prints what is not as it should be.

The judgement is `storage.verification`'s; here it is only rendered.  Exit code 0 if nothing is damaged (what
a crash leaves and the next open repairs is no damage), 1 if something is.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator

import click

from distributedlog.cli.locations import Location, locate, selection_options
from distributedlog.cli.output import output_option, print_json, print_line, show_size, show_time, warn
from distributedlog.cli.progress import progress_bar
from distributedlog.ports.disk import SystemDisk
from distributedlog.storage.files import Files
from distributedlog.storage.segment import LOG_SUFFIX
from distributedlog.storage.verification.directory import DirectoryVerification, PartitionVerification
from distributedlog.storage.verification.findings import Circumstances, Finding, Progress, Severity, Totals

EXIT_DAMAGED = 1
STATES = {Severity.DAMAGE: "damaged", Severity.REPAIRABLE: "repairable"}
MEGABYTE = 1_000_000


@click.command()
@click.argument("path", metavar="DIR")
@selection_options
@output_option
def verify(path: str, topic: str | None, partition: int | None, output: str) -> int:
    """Read every byte of a log and say whether it is sound.

    Every batch's checksum, offsets, records; every index entry; transactions, producers and leader epochs
    against a replay of the log.  Changes nothing, and may be used while the log is in use.

    \b
    damage      what was whole once and is not any more; exit code 1
    repairable  what a crash leaves: the next open, or `dlog log index`, puts it right
    note        worth knowing

    \b
    dlog log verify data
    dlog log verify data/orders-0 -o json
    """
    location = locate(path, topic, partition)
    if location.is_in_use:
        warn(f"{location.data_directory} is in use: this is what has been written so far")
    report = Report(as_json=output == "json", root=location.path)
    with progress_bar("verifying", _log_bytes(location)) as on_progress:
        started = time.perf_counter()
        checking = Checking(location, on_progress)
        for finding in checking.run():
            report.finding(finding)
        seconds = time.perf_counter() - started
    report.finish(checking.partitions, seconds)
    return EXIT_DAMAGED if report.counts[Severity.DAMAGE] else 0


def _log_bytes(location: Location) -> int:
    total = 0
    for each in location.partitions:
        with os.scandir(each.path) as entries:
            total += sum(entry.stat().st_size for entry in entries if entry.name.endswith(LOG_SUFFIX))
    return total


class Checking:
    """The verification that fits the location: of a data directory, or of one log with what surrounds it."""

    def __init__(self, location: Location, on_progress: Progress) -> None:
        self._files = Files(SystemDisk())
        self._location = location
        self._is_live = location.is_in_use
        self._on_progress = on_progress
        self.partitions: dict[str, Totals] = {}

    def run(self) -> Iterator[Finding]:
        return self._data_directory() if self._location.is_data_directory else self._partition()

    def _data_directory(self) -> Iterator[Finding]:
        wanted = {each.partition for each in self._location.partitions}
        verification = DirectoryVerification(
            self._files,
            self._location.path,
            is_wanted=wanted.__contains__,
            is_live=self._is_live,
            on_progress=self._on_progress,
        )
        yield from verification.run()
        self.partitions = {str(key): totals for key, totals in verification.partitions.items()}

    def _partition(self) -> Iterator[Finding]:
        (alone,) = self._location.partitions
        circumstances = Circumstances()
        if self._location.data_directory is not None and alone.partition is not None:
            around = DirectoryVerification(self._files, self._location.data_directory, is_live=self._is_live)
            circumstances = around.circumstances_of(alone.partition)
        verification = PartitionVerification(
            self._files, alone.path, circumstances, on_progress=self._on_progress
        )
        yield from verification.run()
        self.partitions = {alone.label: verification.totals}


class Report:
    def __init__(self, *, as_json: bool, root: str) -> None:
        self._as_json = as_json
        self._root = root
        self.counts: Counter[Severity] = Counter()

    def finding(self, finding: Finding) -> None:
        self.counts[finding.severity] += 1
        path = os.path.relpath(finding.path, self._root)
        if self._as_json:
            print_json(
                {
                    "type": "finding",
                    "severity": finding.severity.value,
                    "path": path,
                    "position": finding.position,
                    "offset": finding.offset,
                    "message": finding.message,
                }
            )
            return
        place = f" at {finding.position}" if finding.position is not None else ""
        offset = f" (offset {finding.offset})" if finding.offset is not None else ""
        print_line(f"{finding.severity.value:<10}  {path}{place}{offset}: {finding.message}")

    def finish(self, partitions: dict[str, Totals], seconds: float) -> None:
        totals = Totals()
        for each in partitions.values():
            totals.add(each)
        if self._as_json:
            self._finish_json(partitions, totals, seconds)
        else:
            self._finish_text(len(partitions), totals, seconds)

    @property
    def state(self) -> str:
        return next((state for severity, state in STATES.items() if self.counts[severity]), "sound")

    def _finish_json(self, partitions: dict[str, Totals], totals: Totals, seconds: float) -> None:
        for label, each in partitions.items():
            offsets = {"first_offset": each.first_offset, "end_offset": each.end_offset}
            print_json({"type": "partition", "partition": label, **_counted(each), **offsets})
        print_json(
            {
                "type": "summary",
                "state": self.state,
                "damage": self.counts[Severity.DAMAGE],
                "repairable": self.counts[Severity.REPAIRABLE],
                "notes": self.counts[Severity.NOTE],
                "partitions": len(partitions),
                **_counted(totals),
                "seconds": round(seconds, 6),
                "megabytes_per_second": round(totals.bytes / MEGABYTE / max(seconds, 1e-9), 3),
            }
        )

    def _finish_text(self, partitions: int, totals: Totals, seconds: float) -> None:
        speed = totals.bytes / MEGABYTE / max(seconds, 1e-9)
        counts = ", ".join(f"{self.counts[severity]} {severity.value}" for severity in Severity)
        print_line(f"{self.state}: {counts}")
        print_line(
            f"read {show_size(totals.bytes)} in {seconds:.2f} s ({speed:.0f} MB/s): {partitions} partitions, "
            f"{totals.segments} segments, {totals.batches} batches, {totals.records} records, "
            f"{totals.index_entries} index entries, {totals.snapshots} snapshots"
        )
        if totals.newest_timestamp >= 0:
            print_line(
                f"records from {show_time(totals.oldest_timestamp)} to {show_time(totals.newest_timestamp)}"
            )


def _counted(totals: Totals) -> dict[str, int]:
    return {
        "segments": totals.segments,
        "bytes": totals.bytes,
        "batches": totals.batches,
        "records": totals.records,
        "index_entries": totals.index_entries,
        "snapshots": totals.snapshots,
        "oldest_timestamp_ms": totals.oldest_timestamp,
        "newest_timestamp_ms": totals.newest_timestamp,
    }
