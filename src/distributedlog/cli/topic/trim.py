"""`dlog topic trim`: the oldest records of a topic go, for good (DeleteRecords)."""

from collections.abc import Mapping

import click

from distributedlog.cli.confirmation import confirm, require_terminal
from distributedlog.cli.output import TextTable, columns, output_option, print_json
from distributedlog.cli.records.offset_specs import OffsetSpecType
from distributedlog.cli.records.options import partitions_option
from distributedlog.cli.records.ranges import topic_partitions
from distributedlog.cli.session import cluster_options, run
from distributedlog.client.admin.admin import Admin
from distributedlog.client.offset_specs import BEGINNING, END, OffsetSpec
from distributedlog.client.offsets import resolve
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition, check_topic_name

COLUMNS = columns("partition>9 start-before>12 start-now>12 end>10 gone>10")


@click.command()
@click.argument("topic")
@click.option(
    "--before",
    type=OffsetSpecType(),
    required=True,
    metavar="PLACE",
    help="Everything before it goes: an offset, end, -10 (all but the last ten of each partition), -7d, "
    "2026-01-31T12:00, @MILLISECONDS.",
)
@partitions_option
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask whether it is meant.")
@cluster_options
@output_option
def trim(
    topic: str,
    before: OffsetSpec,
    partitions: tuple[int, ...],
    dry_run: bool,
    yes: bool,
    bootstrap: str,
    timeout_seconds: float,
    output: str,
) -> int:
    """Delete the oldest records, up to a place.  Asks first on a terminal; elsewhere --yes is needed.

    \b
    dlog topic trim orders --before -7d
    dlog topic trim orders -p 0 --before 1000 --yes
    dlog topic trim orders --before end --dry-run
    """
    check_topic_name(topic)
    if not (yes or dry_run):
        require_terminal("what is trimmed is gone for good")

    async def work(admin: Admin) -> None:
        wanted = await topic_partitions(admin, topic, partitions)
        starts = await resolve(admin.cluster, dict.fromkeys(wanted, BEGINNING))
        ends = await resolve(admin.cluster, dict.fromkeys(wanted, END))
        targets = await resolve(admin.cluster, dict.fromkeys(wanted, before))
        plan = {each: targets[each] for each in wanted if targets[each] > starts[each]}
        beyond = [each for each in wanted if targets[each] > ends[each]]
        if beyond:
            first = beyond[0]
            raise click.UsageError(
                f"{first} ends at {ends[first]}, before {targets[first]}: say --before end for all of it"
            )
        if not (yes or dry_run) and plan:
            count = sum(targets[each] - starts[each] for each in plan)
            confirm(f"Delete up to {count} of the oldest records of {topic}, for good?")
        now = dict(starts)
        failures: list[DlogError] = []
        if dry_run:
            now.update(plan)
        elif plan:
            for each, outcome in (await admin.delete_records(plan)).items():
                if isinstance(outcome, DlogError):
                    failures.append(outcome)
                else:
                    now[each] = outcome
        _show(starts, now, ends, output, dry_run=dry_run)
        if failures:
            raise failures[0]

    return run(bootstrap, timeout_seconds, work)


def _show(
    starts: Mapping[TopicPartition, int],
    now: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    output: str,
    *,
    dry_run: bool,
) -> None:
    table = TextTable(COLUMNS)
    for each in sorted(starts):
        if output == "json":
            print_json(
                {
                    "type": "trimmed",
                    "topic": each.topic,
                    "partition": each.partition,
                    "start_offset_before": starts[each],
                    "start_offset": now[each],
                    "end_offset": ends[each],
                    "done": not dry_run,
                }
            )
        else:
            table.row(each.partition, starts[each], now[each], ends[each], now[each] - starts[each])
