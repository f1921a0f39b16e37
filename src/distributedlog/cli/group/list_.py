"""`dlog group list`."""

import click

from distributedlog.cli.group.session import on_groups
from distributedlog.cli.output import TextTable, columns, output_option, print_json, warn
from distributedlog.cli.session import cluster_options
from distributedlog.client.admin.groups import GroupAdmin

COLUMNS = columns("group<32 state<20 type<8 protocol<10 coordinator>11")
STATES = (
    "Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Stable", "Dead",
)  # fmt: skip
TYPES = ("classic", "consumer")


@click.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES, case_sensitive=False),
    metavar="STATE",
    help=f"Only groups in this state; may be repeated: {', '.join(STATES)}.",
)
@click.option(
    "--type",
    "types",
    multiple=True,
    type=click.Choice(TYPES, case_sensitive=False),
    help="Only groups of the classic protocol, or of the new one (KIP-848).",
)
@cluster_options
@output_option
def list_groups(
    states: tuple[str, ...], types: tuple[str, ...], bootstrap: str, timeout_seconds: float, output: str
) -> int:
    """List the groups there are, their state, and the broker that coordinates each.

    \b
    dlog group list
    dlog group list --state Empty -o json
    """

    async def work(groups: GroupAdmin) -> None:
        table = TextTable(COLUMNS)
        found = await groups.list_groups(states=states, types=types)
        if not found and output == "table":
            warn("no such groups" if states or types else "there are no groups")
        for each in found:
            if output == "json":
                print_json(
                    {
                        "type": "group",
                        "group": each.group_id,
                        "state": each.state or None,
                        "group_type": each.type or None,
                        "protocol_type": each.protocol_type or None,
                        "coordinator": each.coordinator_id,
                    }
                )
            else:
                table.row(
                    each.group_id,
                    each.state or None,
                    each.type or None,
                    each.protocol_type or None,
                    each.coordinator_id,
                )

    return on_groups(bootstrap, timeout_seconds, work)
