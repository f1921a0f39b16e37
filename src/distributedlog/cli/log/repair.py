"""`dlog log repair`: takes records that nobody can read out of a stopped node's logs.

What they are and what becomes of them is `storage.repair`'s matter; here it is shown.  Every record of
`__consumer_offsets` is read as a coordinator reads it; of other topics only whether records can be walked.
"""

import os

import click

from distributedlog.cli.locations import locate, selection_options
from distributedlog.cli.log.index import owned
from distributedlog.cli.output import output_option, print_json, print_line
from distributedlog.groups.records import decode_record
from distributedlog.model.internal_topics import OFFSETS_TOPIC
from distributedlog.ports.disk import SystemDisk
from distributedlog.storage.files import Files
from distributedlog.storage.repair.unreadable import UnreadableRecord, drop_unreadable, find_unreadable

EXIT_UNREADABLE = 1
KEY_BYTES_MAX = 64
"""So much of a key is shown on a line; JSON has all of it."""


@click.command()
@click.argument("path", metavar="DIR")
@selection_options
@click.option(
    "--check", "check_only", is_flag=True, help="Only say what would be dropped; exit code 1 if anything."
)
@output_option
def repair(path: str, topic: str | None, partition: int | None, check_only: bool, output: str) -> int:
    """Drop records that cannot be read: batches whose records cannot be walked, where readers stop and
    compaction fails, and records of __consumer_offsets that their coordinator skips.

    Offsets stay, and so does every record that can be read.  What is dropped is kept, byte for byte, in the
    partition's directory `quarantine`.  The data directory must not be in use, but with --check it may be.

    \b
    dlog log repair data --check
    dlog log repair data --topic __consumer_offsets
    """
    location = locate(path, topic, partition)
    files = Files(SystemDisk())
    report = Report(as_json=output == "json", root=location.path, check_only=check_only)
    with owned(files, location, is_needed=not check_only):
        for each in location.partitions:
            is_offsets = each.partition is not None and each.partition.topic == OFFSETS_TOPIC
            found = list(find_unreadable(files, each.path, decode_record if is_offsets else None))
            kept = [] if check_only else drop_unreadable(files, each.path, found)
            for record in found:
                report.show(record)
            report.show_kept(kept)
    return report.finish(len(location.partitions))


class Report:
    def __init__(self, *, as_json: bool, root: str, check_only: bool) -> None:
        self._as_json = as_json
        self._root = root
        self._check_only = check_only
        self._found = 0
        self._stays = 0

    def show(self, found: UnreadableRecord) -> None:
        self._found += found.record_count
        self._stays += 0 if found.is_droppable and not self._check_only else found.record_count
        path = os.path.relpath(found.path, self._root)
        key = None if found.key is None else found.key.hex()
        if self._as_json:
            facts = {**found._asdict(), "path": path, "key": key}
            is_dropped = facts.pop("is_droppable") and not self._check_only
            print_json({"type": "unreadable", **facts, "dropped": is_dropped})
            return
        if found.is_droppable:
            verb = "would be dropped" if self._check_only else "dropped"
        else:
            verb = "stays: without its marker a transaction would not end"
        what = f"offset {found.offset}" if found.record_count == 1 else f"{found.record_count} records"
        where = "" if found.record_count == 1 else f" from offset {found.offset} on"
        shown = "" if key is None else f", key {key[: 2 * KEY_BYTES_MAX]}"
        print_line(f"{path} at {found.position}: {what}{where}{shown}: {found.reason}; {verb}")

    def show_kept(self, paths: list[str]) -> None:
        for path in paths:
            kept = os.path.relpath(path, self._root)
            print_json({"type": "kept", "path": kept}) if self._as_json else print_line(f"kept in {kept}")

    def finish(self, partitions: int) -> int:
        if not self._as_json:
            verb = "to drop" if self._check_only else "dropped"
            count = self._found if self._check_only else self._found - self._stays
            print_line(f"{count} records {verb} in {partitions} partitions")
        return EXIT_UNREADABLE if self._stays else 0
