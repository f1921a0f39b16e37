"""`dlog topic export`: records of a topic into a file, from which `dlog topic import` makes them again."""

from contextlib import aclosing

import click

from distributedlog.cli.output import output_option, print_json, warn
from distributedlog.cli.progress import count_bar
from distributedlog.cli.records.options import file_format_option
from distributedlog.cli.records.ranges import ISOLATIONS, TopicRange, range_options, read_range, resolve_range
from distributedlog.cli.records.record_files import STANDARD_STREAM, check_stdout, format_of, writing
from distributedlog.cli.session import cluster_options, run
from distributedlog.client.admin.admin import Admin
from distributedlog.client.offset_specs import OffsetSpec
from distributedlog.model.ids import check_topic_name


@click.command()
@click.argument("topic")
@click.argument("path", metavar="FILE")
@file_format_option
@click.option("--force", is_flag=True, help="Replace a file that is there already.")
@range_options
@cluster_options
@output_option
def export(
    topic: str,
    path: str,
    given_format: str | None,
    force: bool,
    start: OffsetSpec,
    end: OffsetSpec,
    partitions: tuple[int, ...],
    isolation: str,
    bootstrap: str,
    timeout_seconds: float,
    output: str,
) -> int:
    """Write records into a file: partition, offset, time, key, value and headers, nothing lost.  FILE - is
    stdout.  Stops at what is the end when it starts.

    \b
    dlog topic export orders orders.jsonl.gz
    dlog topic export orders yesterday.parquet --from 2026-01-30 --to 2026-01-31
    dlog topic export orders - -p 0 | jq .value
    """
    check_topic_name(topic)
    kind = format_of(path, given_format)
    if output == "json" and path == STANDARD_STREAM:
        raise click.UsageError("FILE - and -o json both want stdout: name a file")
    if path == STANDARD_STREAM:
        check_stdout(kind)

    async def work(admin: Admin) -> None:
        wanted = await resolve_range(admin, topic, start, end, partitions, ISOLATIONS[isolation])
        count = 0
        with (
            count_bar("exporting", wanted.offset_count) as on_progress,
            writing(path, kind, replace=force) as to,
        ):
            async with aclosing(read_range(admin, wanted)) as portions:
                async for portion in portions:
                    to.write(portion.partition, portion.records)
                    count += len(portion.records)
                    on_progress(portion.offsets_passed)
        _report(wanted, path, kind, count, as_json=output == "json")

    return run(bootstrap, timeout_seconds, work)


def _report(wanted: TopicRange, path: str, kind: str, count: int, *, as_json: bool) -> None:
    if not as_json:
        warn(f"{count} record{'' if count == 1 else 's'} of {wanted.topic} written to {path}")
        return
    spans = sorted(wanted.spans.items())
    print_json(
        {
            "type": "exported",
            "topic": wanted.topic,
            "path": path,
            "format": kind,
            "records": count,
            "partitions": [
                {"partition": each.partition, "start_offset": span.start, "end_offset": span.end}
                for each, span in spans
            ],
        }
    )
