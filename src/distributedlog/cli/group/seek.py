"""`dlog group seek`: a group goes on from somewhere else.

| option            | each partition goes on at                                             |
|-------------------|-----------------------------------------------------------------------|
| --to-offset N     | that offset                                                           |
| --to-time TIME    | its first record of that time or later; its end if there is none      |
| --begin, --end    | an end of it                                                          |
| --shift N         | so many offsets later than now, or earlier                            |

An offset before the start or behind the end means that end, with a warning.  Only a group without members can
be moved: members keep their own positions, and would commit over what is written here.  What is shown before
and after is what was found; if members come in between, the coordinator refuses, and nothing has changed.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

import click

from distributedlog.cli.exit_codes import NotFoundError
from distributedlog.cli.group.session import GroupInUseError, check_group_ids, on_groups
from distributedlog.cli.output import TextTable, columns, output_option, print_json, print_line, warn
from distributedlog.cli.session import cluster_options
from distributedlog.cli.timestamps import TimestampType
from distributedlog.client.admin.group_offsets import OffsetAndMetadata
from distributedlog.client.admin.groups import GroupAdmin, is_refused_for_members
from distributedlog.client.offset_specs import BEGINNING, EARLIEST, END, LATEST, AtTime, OffsetSpec
from distributedlog.client.offsets import list_offsets, resolve
from distributedlog.model.errors import DlogError, GroupNotFoundError
from distributedlog.model.ids import TopicPartition, check_topic_name

COLUMNS = columns("topic<24 partition>9 before>12 after>12 change>10")

_PARTITIONS = re.compile(r"[0-9]{1,9}(,[0-9]{1,9})*")


class Wanted(NamedTuple):
    topic: str
    partitions: tuple[int, ...]
    """Empty: all of them."""


class WantedType(click.ParamType[Wanted]):
    """`orders`, or `orders:0,3`."""

    name = "topic"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Wanted:
        if isinstance(value, Wanted):
            return value
        topic, colon, listed = str(value).partition(":")
        if colon and not _PARTITIONS.fullmatch(listed):
            self.fail(
                f"{value!r} is not TOPIC:P,P,…: write a topic, or one with partitions such as orders:0,3",
                param, ctx,
            )  # fmt: skip
        numbers = dict.fromkeys(int(each) for each in listed.split(",")) if colon else {}
        return Wanted(check_topic_name(topic), tuple(numbers))


class Target(NamedTuple):
    """One of the ways to say where to."""

    offset: int | None
    place: OffsetSpec | None
    shift: int | None


class Move(NamedTuple):
    partition: TopicPartition
    before: int | None
    after: int


@click.command()
@click.argument("group_id", metavar="GROUP")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    type=WantedType(),
    metavar="TOPIC[:P,…]",
    help="Which topic, or which partitions of it; may be repeated.",
)
@click.option("--all-topics", is_flag=True, help="Every partition in which the group has a committed offset.")
@click.option("--to-offset", type=click.IntRange(0, 2**63 - 1), metavar="N", help="Go on at that offset.")
@click.option(
    "--to-time",
    type=TimestampType(),
    metavar="TIME",
    help="Go on at that time: 2026-01-31T12:00, -10m, or ms since 1970.",
)
@click.option("--begin", is_flag=True, help="Go on at the start of each partition.")
@click.option("--end", is_flag=True, help="Go on at the end of each partition.")
@click.option("--shift", type=int, metavar="N", help="Go on so many offsets later, or earlier if negative.")
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@cluster_options
@output_option
def seek(
    group_id: str,
    topics: tuple[Wanted, ...],
    all_topics: bool,
    to_offset: int | None,
    to_time: int | None,
    begin: bool,
    end: bool,
    shift: int | None,
    dry_run: bool,
    bootstrap: str,
    timeout_seconds: float,
    output: str,
) -> int:
    """Let a group go on from somewhere else, in some topics or partitions.  It must have no members.

    \b
    dlog group seek billing --topic orders --begin --dry-run
    dlog group seek billing --topic orders:0,3 --to-time -2h
    dlog group seek billing --all-topics --shift -100
    """
    check_group_ids((group_id,))
    target = _target(to_offset, to_time, begin=begin, end=end, shift=shift)
    if bool(topics) == all_topics:
        raise click.UsageError("say where: either --topic TOPIC[:P,…] or --all-topics")

    async def work(groups: GroupAdmin) -> None:
        await _check_empty(groups, group_id)
        stored = await groups.offsets(group_id).fetch()
        places = await _places(groups, topics, stored, group_id)
        moves = await _moves(groups, places, {each: at.offset for each, at in stored.items()}, target)
        if not dry_run:
            await _apply(groups, group_id, moves)
        _show(group_id, moves, output, dry_run=dry_run)

    return on_groups(bootstrap, timeout_seconds, work)


def _target(
    to_offset: int | None, to_time: int | None, *, begin: bool, end: bool, shift: int | None
) -> Target:
    given = [to_offset is not None, to_time is not None, begin, end, shift is not None]
    if sum(given) != 1:
        raise click.UsageError("say where to, once: --to-offset, --to-time, --begin, --end or --shift")
    place: OffsetSpec | None = None
    if to_time is not None:
        place = AtTime(to_time)
    elif begin or end:
        place = BEGINNING if begin else END
    return Target(to_offset, place, shift)


async def _check_empty(groups: GroupAdmin, group_id: str) -> None:
    """A group that is not there yet may be given committed offsets: it begins with them."""
    try:
        view = await groups.describe_group(group_id)
    except GroupNotFoundError:
        return
    if not view.is_empty:
        count = len(view.members)
        raise GroupInUseError(
            f"group {group_id!r} is {view.state} with {count} member{'' if count == 1 else 's'}: "
            "stop them first, since they keep positions of their own"
        )


async def _places(
    groups: GroupAdmin,
    topics: tuple[Wanted, ...],
    stored: Mapping[TopicPartition, OffsetAndMetadata],
    group_id: str,
) -> list[TopicPartition]:
    if not topics:
        if not stored:
            raise GroupNotFoundError(f"group {group_id!r} has no committed offsets that could be moved")
        return sorted(stored)
    places: dict[TopicPartition, None] = {}
    for wanted in topics:
        topic = await groups.cluster.topic(wanted.topic)
        known = {each.index for each in topic.partitions}
        unknown = [each for each in wanted.partitions if each not in known]
        if unknown:
            raise NotFoundError(
                f"topic {wanted.topic!r} has no partition {unknown[0]}: it has {len(known)}, from 0"
            )
        places.update(
            (TopicPartition(wanted.topic, each), None) for each in (wanted.partitions or sorted(known))
        )
    return sorted(places)


async def _moves(
    groups: GroupAdmin, places: list[TopicPartition], before: Mapping[TopicPartition, int], target: Target
) -> list[Move]:
    cluster = groups.cluster
    starts = await list_offsets(cluster, dict.fromkeys(places, EARLIEST))
    ends = await list_offsets(cluster, dict.fromkeys(places, LATEST))
    if target.place is not None:
        wanted = await resolve(cluster, dict.fromkeys(places, target.place))
    elif target.offset is not None:
        wanted = dict.fromkeys(places, target.offset)
    else:
        without = [str(each) for each in places if each not in before]
        if without:
            raise click.UsageError(f"the group has no committed offset in {without[0]} that could be shifted")
        wanted = {each: before[each] + (target.shift or 0) for each in places}
    moves = []
    for each in places:
        after = min(max(wanted[each], starts[each].offset), ends[each].offset)
        if after != wanted[each]:
            warn(
                f"{each} goes from {starts[each].offset} to {ends[each].offset}: "
                f"{after} is taken for {wanted[each]}"
            )
        moves.append(Move(each, before.get(each), after))
    return moves


async def _apply(groups: GroupAdmin, group_id: str, moves: list[Move]) -> None:
    try:
        await groups.offsets(group_id).commit(
            {each.partition: OffsetAndMetadata(each.after) for each in moves}
        )
    except DlogError as error:
        if is_refused_for_members(error):
            raise GroupInUseError(
                f"group {group_id!r} has got members meanwhile: stop them first; nothing was changed"
            ) from error
        raise


def _show(group_id: str, moves: list[Move], output: str, *, dry_run: bool) -> None:
    table = TextTable(COLUMNS)
    for partition, before, after in moves:
        if output == "json":
            print_json(
                {
                    "type": "move",
                    "group": group_id,
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "before": before,
                    "after": after,
                    "is_done": not dry_run,
                }
            )
        else:
            change = None if before is None else f"{after - before:+d}"
            table.row(partition.topic, partition.partition, before, after, change)
    if dry_run and output != "json":
        print_line("nothing was changed: that was a dry run")
