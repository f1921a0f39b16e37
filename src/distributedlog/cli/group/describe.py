"""`dlog group describe`."""

import click

from distributedlog.cli.group.session import check_group_ids, on_groups
from distributedlog.cli.output import TextTable, columns, output_option, print_json, print_line
from distributedlog.cli.session import cluster_options
from distributedlog.client.admin.groups import GroupAdmin, GroupMember, GroupView

COLUMNS = columns("member<44 instance<12 client<16 host<16 partitions<24")


@click.command()
@click.argument("group_ids", nargs=-1, required=True, metavar="GROUP…")
@cluster_options
@output_option
def describe(group_ids: tuple[str, ...], bootstrap: str, timeout_seconds: float, output: str) -> int:
    """The state of groups, their members, and which partitions each of them reads.

    \b
    dlog group describe billing
    dlog group describe billing audit -o json
    """
    wanted = check_group_ids(group_ids)

    async def work(groups: GroupAdmin) -> None:
        for number, group_id in enumerate(wanted):
            found = await groups.describe_group(group_id)
            if output == "json":
                _print_json(found)
            else:
                if number:
                    print_line("")
                _print_table(found)

    return on_groups(bootstrap, timeout_seconds, work)


def _print_json(group: GroupView) -> None:
    print_json(
        {
            "type": "group",
            "group": group.group_id,
            "state": group.state,
            "group_type": group.type,
            "protocol_type": group.protocol_type or None,
            "assignor": group.assignor or None,
            "epoch": None if group.epoch < 0 else group.epoch,
            "members": len(group.members),
        }
    )
    for member in group.members:
        print_json(
            {
                "type": "member",
                "group": group.group_id,
                "member": member.member_id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.host,
                "subscribed": list(member.subscribed),
                "partitions": [
                    {"topic": each.topic, "partition": each.partition} for each in member.partitions
                ],
            }
        )


def _print_table(group: GroupView) -> None:
    assignor = f", {group.assignor}" if group.assignor else ""
    epoch = f", epoch {group.epoch}" if group.epoch >= 0 else ""
    print_line(f"{group.group_id}: {group.state}, {group.type}{assignor}{epoch}, {_members(group)}")
    table = TextTable(COLUMNS, indent=2)
    for member in group.members:
        table.row(
            member.member_id, member.instance_id, member.client_id, member.host, show_partitions(member)
        )


def _members(group: GroupView) -> str:
    count = len(group.members)
    return "1 member" if count == 1 else f"{count or 'no'} members"


def show_partitions(member: GroupMember) -> str | None:
    """Spells partitions by topic: `orders:0,1,2 payments:3`."""
    topics: dict[str, list[str]] = {}
    for topic, index in member.partitions:
        topics.setdefault(topic, []).append(str(index))
    return " ".join(f"{topic}:{','.join(indexes)}" for topic, indexes in topics.items()) or None
