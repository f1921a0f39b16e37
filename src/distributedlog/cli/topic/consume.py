"""`dlog topic consume`: records of a topic, printed as they come.

Without --to it goes on until Ctrl-C.  --to and -e stop each partition at an offset that is fixed when the
command starts, so that it ends also under a writer that does not.  Output is flushed whenever there is
nothing more to print at once.

Records go into a pipe or a file byte for byte; on a terminal their control characters are escaped.
"""

import sys
from collections.abc import Callable

import click

from distributedlog.cli.escaping import escape_bytes
from distributedlog.cli.output import (
    TextTable,
    columns,
    print_json,
    show_bytes,
    show_time,
)
from distributedlog.cli.records.formats import compile_format
from distributedlog.cli.records.offset_specs import OffsetSpecType
from distributedlog.cli.records.options import partitions_option
from distributedlog.cli.records.parsing import record_fields
from distributedlog.cli.records.ranges import ISOLATIONS, POLL_MS, topic_partitions
from distributedlog.cli.session import cluster_options, run
from distributedlog.cli.standard_output import check_stdout_open
from distributedlog.client.admin.admin import Admin
from distributedlog.client.consumer import Consumer
from distributedlog.client.fetcher import Fetched, FetchOptions
from distributedlog.client.offset_specs import END, OffsetSpec
from distributedlog.client.offsets import resolve
from distributedlog.model.ids import TopicPartition, check_topic_name
from distributedlog.records.record import Record

COLUMNS = columns("partition>9 offset>10 time<24 key<16 value<32 headers<7")
VALUES = "%v\\n"

Show = Callable[[TopicPartition, Record], None]


@click.command()
@click.argument("topic")
@click.option(
    "--from",
    "start",
    type=OffsetSpecType(),
    default="beginning",
    show_default=True,
    metavar="PLACE",
    help="Where to begin: beginning, end, an offset, -10 (the last ten of each partition), -10m (ten minutes "
    "ago), 2026-01-31T12:00, @MILLISECONDS.",
)
@click.option(
    "--to", "end", type=OffsetSpecType(), metavar="PLACE", help="Where to stop, short of it; as for --from."
)
@click.option(
    "-e", "--exit", "until_end", is_flag=True, help="Stop at what is the end now; the same as --to end."
)
@click.option("-c", "--count", type=click.IntRange(1), metavar="N", help="Stop after so many records.")
@partitions_option
@click.option(
    "-f",
    "--format",
    "template",
    metavar="FORMAT",
    help="%t topic, %p partition, %o offset, %T time, %k key, %v value, %h headers, %K %S lengths, "
    "\\n \\t \\0.",
)
@click.option("-Z", "--null", "show_null", is_flag=True, help="Print NULL for a key or value that is null.")
@click.option(
    "--isolation",
    type=click.Choice(list(ISOLATIONS)),
    default="uncommitted",
    show_default=True,
    help="committed: leave out what a transaction may yet take back, or has.",
)
@cluster_options
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    help="A table, or JSON, one object a line.  [default: values, one a line]",
)
def consume(
    topic: str,
    start: OffsetSpec,
    end: OffsetSpec | None,
    until_end: bool,
    count: int | None,
    partitions: tuple[int, ...],
    template: str | None,
    show_null: bool,
    isolation: str,
    bootstrap: str,
    timeout_seconds: float,
    output: str | None,
) -> int:
    """Read records.  Prints their values, one a line; or as -f or -o say.  Goes on until Ctrl-C, unless -e.

    \b
    dlog topic consume orders -e
    dlog topic consume orders --from -10m -f '%T %k %v'
    dlog topic consume orders --from end
    dlog topic consume orders --from 2026-01-31 --to 2026-02-01 -o json
    """
    if template is not None and output is not None:
        raise click.UsageError("-f and -o both say how to print: take one")
    if until_end and end is not None:
        raise click.UsageError("-e and --to both say where to stop: take one")
    show = _printer(template, output, show_null=show_null)
    level = ISOLATIONS[isolation]
    check_topic_name(topic)
    check_stdout_open()

    async def work(admin: Admin) -> None:
        wanted = await topic_partitions(admin, topic, partitions)
        async with Consumer(admin.cluster, FetchOptions(isolation=level)) as consumer:
            stops = None
            if end is not None or until_end:
                stops = await resolve(admin.cluster, dict.fromkeys(wanted, end or END), level)
            await consumer.assign(dict.fromkeys(wanted, start))
            await _Reading(consumer, stops, count, show).run()

    return run(bootstrap, timeout_seconds, work)


class _Reading:
    """Prints until every partition is where it should stop, or there were enough."""

    def __init__(
        self, consumer: Consumer, stops: dict[TopicPartition, int] | None, count: int | None, show: Show
    ) -> None:
        self._consumer = consumer
        self._stops = stops
        self._left = sys.maxsize if count is None else count
        self._show = show

    async def run(self) -> None:
        self._drop_finished()
        while self._consumer.positions and self._left:
            for fetched in await self._consumer.poll(POLL_MS):
                self._print(fetched)
            sys.stdout.flush()
            self._drop_finished()

    def _print(self, fetched: Fetched) -> None:
        stop = sys.maxsize if self._stops is None else self._stops[fetched.partition]
        for record in fetched.records:
            if not self._left or record.offset >= stop:
                return
            self._show(fetched.partition, record)
            self._left -= 1

    def _drop_finished(self) -> None:
        if self._stops is None:
            return
        for partition, position in list(self._consumer.positions.items()):
            if position >= self._stops[partition]:
                self._consumer.drop(partition)


def _printer(template: str | None, output: str | None, *, show_null: bool) -> Show:
    if output == "json":
        return _print_json
    if output == "table":
        table = TextTable(COLUMNS)
        return lambda partition, record: table.row(
            partition.partition,
            record.offset,
            show_time(record.timestamp_ms),
            show_bytes(record.key),
            show_bytes(record.value),
            ", ".join(f"{each.key}={show_bytes(each.value)}" for each in record.headers) or None,
        )
    escape = escape_bytes if sys.stdout.isatty() else None
    form = compile_format(template or VALUES, b"NULL" if show_null else b"", escape=escape)
    write = sys.stdout.buffer.write

    def show(partition: TopicPartition, record: Record) -> None:
        write(form(partition, record))

    return show


def _print_json(partition: TopicPartition, record: Record) -> None:
    print_json(record_fields(partition, record))
