"""`dlog group lag`.  How lag is counted: `client/admin/group_lag`."""

import time
from collections.abc import Mapping

import click

from distributedlog.cli.group.session import check_group_ids, on_groups
from distributedlog.cli.output import TextTable, columns, output_option, print_json, print_line, show_seconds
from distributedlog.cli.records.ranges import ISOLATIONS
from distributedlog.cli.session import cluster_options
from distributedlog.client.admin.group_lag import COUNTED_BYTES_MAX, Lag, measure_lag
from distributedlog.client.admin.groups import GroupAdmin, GroupView
from distributedlog.client.options import MIB
from distributedlog.model.errors import GroupNotFoundError, UnknownTopicError
from distributedlog.model.ids import TopicPartition, check_topic_name

COLUMNS = columns("topic<24 partition>9 committed>12 end>12 lag>12 behind>10 client<16")
OTHER_NAMES = {"read_committed": "committed", "read_uncommitted": "uncommitted"}
"""The names that Kafka's clients have for them."""


@click.command()
@click.argument("group_ids", nargs=-1, required=True, metavar="GROUP…")
@click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC", help="Only in this topic; may be repeated."
)
@click.option(
    "--isolation",
    type=click.Choice([*ISOLATIONS, *OTHER_NAMES]),
    default="committed",
    show_default=True,
    metavar="[uncommitted|committed]",
    help="committed: what a transaction has taken back, or may yet, is not left to read.",
)
@click.option(
    "--count-mib",
    type=click.IntRange(0, 1024 * 1024),
    default=COUNTED_BYTES_MAX // MIB,
    show_default=True,
    metavar="MIB",
    help="How much is read of a partition to count its records; 0 counts offsets instead.",
)
@cluster_options
@output_option
def lag(
    group_ids: tuple[str, ...],
    topics: tuple[str, ...],
    isolation: str,
    count_mib: int,
    bootstrap: str,
    timeout_seconds: float,
    output: str,
) -> int:
    """Show the committed offsets of groups, and their lag in records.

    Records are counted: markers of transactions, aborted records and what compaction has removed are not
    among them.  Where there is more than --count-mib to look at, the rest is counted by offsets, and a `≤`
    before the lag says so.  `behind` is how old the first record that is left is, by its timestamp.

    \b
    dlog group lag billing
    dlog group lag billing audit --topic orders -o json
    """
    wanted = check_group_ids(group_ids)
    only = {check_topic_name(topic) for topic in topics}

    async def work(groups: GroupAdmin) -> None:
        for group_id in wanted:
            view = await _described(groups, group_id)
            places = await _positions(groups, group_id, view, only)
            found = await measure_lag(
                groups.cluster,
                places,
                isolation=ISOLATIONS[OTHER_NAMES.get(isolation, isolation)],
                counted_bytes_max=count_mib * MIB,
            )
            if output == "json":
                _print_json(group_id, view, found)
            else:
                if len(wanted) > 1:
                    print_line(f"{group_id}:")
                _print_table(view, found)

    return on_groups(bootstrap, timeout_seconds, work)


async def _described(groups: GroupAdmin, group_id: str) -> GroupView | None:
    """Returns the description; None for a group whose coordinator knows committed offsets only, or that is
    not there."""
    try:
        return await groups.describe_group(group_id)
    except GroupNotFoundError:
        return None


async def _positions(
    groups: GroupAdmin, group_id: str, view: GroupView | None, only: set[str]
) -> dict[TopicPartition, int | None]:
    """Returns the committed offset of each partition; None where members own one without."""
    stored = await groups.offsets(group_id).fetch()
    if view is None and not stored:
        raise GroupNotFoundError(f"there is no group {group_id!r}")
    places: dict[TopicPartition, int | None] = {}
    if view is not None:
        places.update((partition, None) for member in view.members for partition in member.partitions)
    places.update((partition, position.offset) for partition, position in stored.items())
    missing = only - {each.topic for each in places}
    if missing:
        raise UnknownTopicError(f"group {group_id!r} reads nothing of {', '.join(sorted(missing))}")
    return {each: places[each] for each in sorted(places) if not only or each.topic in only}


def _owners(view: GroupView | None) -> Mapping[TopicPartition, tuple[str, str]]:
    if view is None:
        return {}
    return {
        partition: (member.member_id, member.client_id)
        for member in view.members
        for partition in member.partitions
    }


def _print_json(group_id: str, view: GroupView | None, found: Mapping[TopicPartition, Lag]) -> None:
    owners, now_ms = _owners(view), _now_ms()
    for partition, each in found.items():
        member, client = owners.get(partition, (None, None))
        print_json(
            {
                "type": "lag",
                "group": group_id,
                "topic": partition.topic,
                "partition": partition.partition,
                "position": each.committed_offset,
                "start": each.start,
                "end": each.end,
                "lag": each.records,
                "lag_is_exact": each.is_exact,
                "lag_seconds": each.seconds_at(now_ms),
                "member": member,
                "client": client,
            }
        )
    known = [each for each in found.values() if each.records is not None]
    print_json(
        {
            "type": "total",
            "group": group_id,
            "state": "Empty" if view is None else view.state,
            "lag": sum(each.records or 0 for each in known),
            "lag_is_exact": all(each.is_exact for each in known),
            "partitions": len(found),
            "partitions_without_position": len(found) - len(known),
        }
    )


def _print_table(view: GroupView | None, found: Mapping[TopicPartition, Lag]) -> None:
    owners, table, now_ms = _owners(view), TextTable(COLUMNS), _now_ms()
    for partition, each in found.items():
        client = owners.get(partition, (None, None))[1]
        behind = show_seconds(each.seconds_at(now_ms))
        table.row(
            partition.topic,
            partition.partition,
            each.committed_offset,
            each.end,
            show_lag(each),
            behind,
            client,
        )
    known = [each for each in found.values() if each.records is not None]
    mark = "" if all(each.is_exact for each in known) else "≤ "
    total = sum(each.records or 0 for each in known)
    print_line(f"{mark}{total} record{'' if total == 1 else 's'} to read in {len(found)} partition(s)")


def _now_ms() -> int:
    return int(time.time() * 1000)


def show_lag(lag: Lag) -> str | None:
    if lag.records is None:
        return None
    return str(lag.records) if lag.is_exact else f"≤ {lag.records}"
