"""`dlog topic import`: records of a file into a topic, each into the partition it came from, or by its key.

With --state it can be cut short and goes on: the state file says how many records of the input each partition
has got.  Records of one partition are delivered in the input's order, and where a record goes depends on the
input alone, so the ones that a partition has are the first so many of its own.

    {"input": "orders.jsonl", "topic": "orders", "partitions": 3, "by_key": false, "delivered": {"0": 512, …}}

It is written every second, atomically, and removed when all is done.  After a kill it may be a second old,
and what was delivered in that second is delivered again; after Ctrl-C, or a broker that refuses, it is exact,
but for batches that were under way.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from typing import Final

import click

from distributedlog.cli.exit_codes import EXISTING_FILE
from distributedlog.cli.output import output_option, print_json, warn
from distributedlog.cli.records.lines import InputError
from distributedlog.cli.records.options import compression_option, file_format_option
from distributedlog.cli.records.parsing import Addressed
from distributedlog.cli.records.record_files import STANDARD_STREAM, check_directory_of, format_of, reading
from distributedlog.cli.session import cluster_options, run
from distributedlog.cli.topic.produce import Counts
from distributedlog.client.admin.admin import Admin
from distributedlog.client.partitioner import partition_of
from distributedlog.client.producer import BatchReport, Producer, ProducerOptions
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import check_topic_name
from distributedlog.records.compression import Codec
from distributedlog.records.record import Record

SAVE_SECONDS: Final = 1.0
STATE_BYTES_MAX: Final = 4 * 1024 * 1024


@click.command(name="import")
@click.argument("topic")
@click.argument("path", metavar="FILE")
@file_format_option
@click.option(
    "--by-key", is_flag=True, help="Choose partitions by key, as a producer does; without it, as in the file."
)
@click.option("--now", "stamp_now", is_flag=True, help="New timestamps; without it, those of the file.")
@click.option("--no-headers", is_flag=True, help="Leave the headers out.")
@click.option(
    "--state",
    "state_path",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Keep in this file how far it is: the same command goes on there.",
)
@compression_option
@cluster_options
@output_option
def import_records(
    topic: str,
    path: str,
    given_format: str | None,
    by_key: bool,
    stamp_now: bool,
    no_headers: bool,
    state_path: str | None,
    compression: str,
    bootstrap: str,
    timeout_seconds: float,
    output: str,
) -> int:
    """Write the records of a file that `dlog topic export` made, or one like it.  The topic must be there.

    Each is written once and in order, also over retries.  With --state the same command goes on after it was
    cut short.

    \b
    dlog topic import orders orders.jsonl.gz
    dlog topic import copy orders.parquet --by-key --now
    dlog topic import orders big.jsonl --state big.state
    """
    check_topic_name(topic)
    kind = format_of(path, given_format)
    _check_files(path, state_path)
    options = ProducerOptions(
        codec=Codec[compression.upper()],
        delivery_timeout_ms=max(1, int(timeout_seconds * 1000)),
        allow_creation=False,
    )
    counts = Counts(topic)

    async def work(admin: Admin) -> None:
        partitions = await admin.cluster.partition_count(topic)
        state = ImportState(state_path, path, topic, partitions, by_key=by_key)
        state.save()  # if it cannot be kept, nothing is written that the next one would write again
        if state.total:
            warn(f"{state.total} records are there already: going on behind them")

        def report(batch: BatchReport) -> None:
            counts.add(batch)
            if batch.error is None:
                state.add(batch.partition.partition, batch.record_count)

        placed = place(reading(path, kind), partitions, by_key=by_key)
        missing = (
            (_shaped(record, stamp_now=stamp_now, no_headers=no_headers), partition)
            for record, partition in placed
            if state.take_missing(partition)
        )
        try:
            async with Producer(admin.cluster, options, on_batch=report) as producer:
                stopped_by = await _feed(producer, missing, state, counts)
                await producer.flush()
        finally:
            state.save()
        if reason := counts.failure or stopped_by:
            raise reason
        state.remove()

    try:
        code = run(bootstrap, timeout_seconds, work)
        counts.is_complete = True
        return code
    finally:
        _show(counts, path, as_json=output == "json")


def _check_files(path: str, state_path: str | None) -> None:
    if state_path is not None and path == STANDARD_STREAM:
        raise click.UsageError("--state is for a file: stdin cannot be read a second time")
    if path != STANDARD_STREAM:
        EXISTING_FILE.convert(path, None, None)
    if state_path is not None:
        check_directory_of(state_path)


async def _feed(
    producer: Producer, records: Iterator[tuple[Record, int]], state: "ImportState", counts: Counts
) -> DlogError | InputError | None:
    """Sends one after the other; what it stopped at, if that was not the end."""
    try:
        for record, partition in records:
            await producer.send(counts.topic, record, partition)
            state.save_sometimes()
            if counts.failure is not None:
                return None
    except (DlogError, InputError) as error:
        return error
    return None


def place(records: Iterator[Addressed], partitions: int, *, by_key: bool) -> Iterator[tuple[Record, int]]:
    """Returns where each goes.  Pure: the same input goes to the same partitions, however often it is
    read."""
    for index, (record, own) in enumerate(records):
        if by_key or own is None:
            yield record, index % partitions if record.key is None else partition_of(record.key, partitions)
        elif own < partitions:
            yield record, own
        else:
            raise InputError(
                f"record {index + 1} was in partition {own}, and the topic has 0 to {partitions - 1}: give "
                "it more ('dlog topic alter --partitions'), or add --by-key"
            )


def _shaped(record: Record, *, stamp_now: bool, no_headers: bool) -> Record:
    if stamp_now or no_headers:
        headers = () if no_headers else record.headers
        return Record(record.value, record.key, headers, -1 if stamp_now else record.timestamp_ms)
    return record


class ImportState:
    """How many records of the input each partition has."""

    def __init__(self, path: str | None, source: str, topic: str, partitions: int, *, by_key: bool) -> None:
        self._path = path
        self._of = {
            "input": os.path.abspath(source),
            "topic": topic,
            "partitions": partitions,
            "by_key": by_key,
        }
        self._delivered: Counter[int] = Counter(self._load())
        self._to_skip = Counter(self._delivered)
        self._saved_at = time.monotonic()

    @property
    def total(self) -> int:
        return sum(self._delivered.values())

    def take_missing(self, partition: int) -> bool:
        """Takes the next record of the input; returns whether it is missing.  Called for each, in order."""
        if self._to_skip[partition] > 0:
            self._to_skip[partition] -= 1
            return False
        return True

    def add(self, partition: int, count: int) -> None:
        self._delivered[partition] += count

    def _load(self) -> dict[int, int]:
        if self._path is None or not os.path.exists(self._path):
            return {}
        with open(self._path, "rb") as file:
            data = file.read(STATE_BYTES_MAX + 1)
        try:
            found = json.loads(data)
            delivered = {int(each): int(count) for each, count in found.pop("delivered").items()}
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise InputError(f"{self._path} is no state of an import: remove it, or name another") from error
        if found != self._of:
            differs = next(name for name in self._of if found.get(name) != self._of[name])
            raise InputError(
                f"{self._path} is of another import: its {differs} is {found.get(differs)!r}, not "
                f"{self._of[differs]!r}"
            )
        return delivered

    def save_sometimes(self) -> None:
        if self._path is not None and time.monotonic() - self._saved_at > SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        if self._path is None:
            return
        self._saved_at = time.monotonic()
        state = {**self._of, "delivered": {str(key): count for key, count in sorted(self._delivered.items())}}
        with open(self._path + ".tmp", "w", encoding="utf-8") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self._path + ".tmp", self._path)

    def remove(self) -> None:
        if self._path is not None and os.path.exists(self._path):
            os.unlink(self._path)


def _show(counts: Counts, path: str, *, as_json: bool) -> None:
    if as_json:
        print_json({**counts.fields(), "type": "imported", "path": path})
    else:
        counts.show(as_json=False)
