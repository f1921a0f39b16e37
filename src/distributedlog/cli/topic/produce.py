"""`dlog topic produce`: records from lines.

Reading stops at the first line that is no record, and at the first record that is not delivered; what was
read before is delivered or reported.  So nothing is left out in the middle, and the line at which to go on
is known.
"""

import os
import sys
from collections.abc import Callable

import click

from distributedlog.cli.exit_codes import EXISTING_FILE
from distributedlog.cli.output import print_json, warn
from distributedlog.cli.records.formats import unescaped
from distributedlog.cli.records.lines import InputError, read_lines
from distributedlog.cli.records.options import compression_option
from distributedlog.cli.records.parsing import Addressed, parse_json, parse_plain
from distributedlog.cli.records.ranges import topic_partitions
from distributedlog.cli.session import cluster_options, run
from distributedlog.client.admin.admin import Admin
from distributedlog.client.producer import ACKS_ALL, BatchReport, Producer, ProducerOptions
from distributedlog.model.errors import DlogError, InvalidRecordError
from distributedlog.model.ids import check_topic_name
from distributedlog.records.compression import Codec
from distributedlog.records.record import Header

ACKS = {"all": ACKS_ALL, "1": 1, "0": 0}


class HeaderType(click.ParamType[Header]):
    name = "header"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Header:
        if isinstance(value, Header):
            return value
        name, equals, content = str(value).partition("=")
        if not name:
            self.fail(f"{value!r} is not a header: write NAME=VALUE", param, ctx)
        return Header(name, content.encode() if equals else None)


@click.command()
@click.argument("topic")
@click.option(
    "-l", "--lines", "path", type=EXISTING_FILE, metavar="FILE", help="Read this file instead of stdin."
)
@click.option("-k", "--key-separator", metavar="SEP", help=r"A line is key, SEP, value; \t is a tab.")
@click.option(
    "-H",
    "--header",
    "headers",
    type=HeaderType(),
    multiple=True,
    metavar="NAME=VALUE",
    help="A header for every record; NAME alone is one without a value (null).",
)
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(0),
    metavar="N",
    help="All to this partition; without it, by key.",
)
@compression_option
@click.option(
    "--acks",
    type=click.Choice(list(ACKS)),
    default="all",
    show_default=True,
    help="Who must have it before it counts: all in-sync replicas, the leader, or nobody.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Lines are JSON objects, as `consume -o json` prints them."
)
@click.option(
    "-Z",
    "--null",
    "empty_is_null",
    is_flag=True,
    help="An empty value is null (a tombstone), an empty key none.",
)
@cluster_options
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="json: one object at the end says what went where.",
)
def produce(
    topic: str,
    path: str | None,
    key_separator: str | None,
    headers: tuple[Header, ...],
    partition: int | None,
    compression: str,
    acks: str,
    as_json: bool,
    empty_is_null: bool,
    bootstrap: str,
    timeout_seconds: float,
    output: str,
) -> int:
    """Write records, one a line, from stdin or a file.  Ends at the end of the input; Ctrl-D on a terminal.

    With --acks all, which is the default, each record is written once and in order, also over retries.

    \b
    echo hello | dlog topic produce greetings
    dlog topic produce orders -k : -l orders.txt -z zstd
    dlog topic consume orders -e -o json | dlog topic produce copy --json
    echo 'alice:' | dlog topic produce users -k : -Z
    """
    if as_json and (key_separator is not None or empty_is_null):
        raise click.UsageError(
            "--json lines say themselves what is key and what is null: leave -k and -Z away"
        )
    separator = None if key_separator is None else unescaped(key_separator)
    if separator == b"":
        raise click.UsageError("the key separator must not be empty")
    options = ProducerOptions(
        acks=ACKS[acks],
        codec=Codec[compression.upper()],
        delivery_timeout_ms=max(1, int(timeout_seconds * 1000)),
    )

    def parse(line: bytes) -> Addressed:
        if as_json:
            return parse_json(line, headers)
        return parse_plain(line, separator, headers, empty_is_null=empty_is_null)

    check_topic_name(topic)
    counts = Counts(topic)

    async def work(admin: Admin) -> None:
        if partition is not None:
            await topic_partitions(admin, topic, (partition,), allow_creation=True)
        async with Producer(admin.cluster, options, on_batch=counts.add) as producer:
            stopped_by = await _feed(producer, counts, descriptor, parse, partition)
            await producer.flush()
        reason = counts.failure or stopped_by
        if reason is not None:
            raise reason

    descriptor = _open(path)
    try:
        code = run(bootstrap, timeout_seconds, work)
        counts.is_complete = True
        return code
    finally:
        if path is not None:
            os.close(descriptor)
        counts.show(as_json=output == "json")


def _open(path: str | None) -> int:
    """A file, or stdin."""
    if path is not None:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    if sys.stdin.isatty():
        warn("one record a line; Ctrl-D ends")
    return sys.stdin.fileno()


async def _feed(
    producer: Producer,
    counts: "Counts",
    descriptor: int,
    parse: Callable[[bytes], Addressed],
    partition: int | None,
) -> DlogError | InputError | None:
    """Sends line by line; what it stopped at, if that was not the end."""
    number = 0
    try:
        async for lines in read_lines(descriptor):
            for line in lines:
                number += 1
                record, own_partition = parse(line)
                await producer.send(counts.topic, record, own_partition if partition is None else partition)
                if counts.failure is not None:
                    return None
    except InvalidRecordError as error:
        return InputError(f"line {number}: {error}; it was sent up to the line before")
    except (DlogError, InputError) as error:
        return error
    return None


class Counts:
    """What was delivered where."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.failure: DlogError | None = None
        self.is_complete = False
        """The input was sent to its end."""
        self._delivered: dict[int, list[int]] = {}
        """How many were delivered to each partition, the first offset and the last."""
        self._failed = 0

    def add(self, report: BatchReport) -> None:
        if report.error is not None:
            self.failure = self.failure or report.error
            self._failed += report.record_count
            return
        first, last = report.base_offset, report.base_offset + report.record_count - 1
        if first < 0:
            last = -1
        known = self._delivered.setdefault(report.partition.partition, [0, first, last])
        known[0] += report.record_count
        known[2] = max(known[2], last)

    def fields(self) -> dict[str, object]:
        return {
            "type": "produced",
            "topic": self.topic,
            "records": self.total,
            "records_failed": self._failed,
            "partitions": [
                {"partition": partition, "records": count, "first_offset": first, "last_offset": last}
                for partition, (count, first, last) in sorted(self._delivered.items())
            ],
        }

    @property
    def total(self) -> int:
        return sum(each[0] for each in self._delivered.values())

    def show(self, *, as_json: bool) -> None:
        if as_json:
            print_json(self.fields())
            return
        total = self.total
        if not total and not self._failed and not self.is_complete:
            return  # it did not get as far as that
        failed = f", {self._failed} not" if self._failed else ""
        warn(f"{total} record{'' if total == 1 else 's'} delivered to {self.topic}{failed}")
