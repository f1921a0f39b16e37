"""`dlog cluster voters`: who votes on the cluster's metadata, and how that changes while it runs."""

import click

from distributedlog.cli.confirmation import confirm, require_terminal
from distributedlog.cli.output import TextTable, columns, output_option, print_json, print_line
from distributedlog.cli.session import cluster_options, run
from distributedlog.client.admin.admin import Admin
from distributedlog.client.admin.cluster import QuorumReplica, QuorumView
from distributedlog.model.errors import InvalidRequestError
from distributedlog.model.ids import ZERO_UUID

HELP = """\
Who votes on the cluster's metadata, and how that changes while the cluster runs: one node at a time.

A node that is to vote is started as `process.roles=broker,controller`, with the present voters in its
controller.quorum.voters; it follows as a standby until it is added.  See docs/administration.md.

\b
dlog cluster voters list
dlog cluster voters add 2
dlog cluster voters remove 1
"""
COLUMNS = columns("node>6 role<8 address<24 behind>7 directory<24")
LEADER, VOTER, STANDBY = "leader", "voter", "standby"


@click.group(name="voters", help=HELP)
def group() -> None:
    pass


@group.command(name="list", short_help="Who votes, and who could.")
@cluster_options
@output_option
def list_command(bootstrap: str, timeout_seconds: float, output: str) -> int:
    """The voters with the one that leads, and the standbys: controllers that could be added.

    \b
    dlog cluster voters list -o json
    """

    async def work(admin: Admin) -> None:
        quorum = await admin.describe_quorum()
        table = TextTable(COLUMNS)
        for replica, role in _members(quorum):
            address = quorum.controllers.get(replica.node_id)
            lag = None if replica.log_end_offset < 0 else quorum.lag(replica)
            directory = None if replica.directory_id == ZERO_UUID else str(replica.directory_id)
            where = None if address is None else f"{address[0]}:{address[1]}"
            if output == "json":
                print_json(
                    {
                        "node": replica.node_id,
                        "role": role,
                        "address": where,
                        "lag": lag,
                        "directory_id": directory,
                        "last_caught_up_ms": replica.last_caught_up_ms,
                    }
                )
            else:
                table.row(replica.node_id, role, where, lag, directory)

    return run(bootstrap, timeout_seconds, work)


def _members(quorum: QuorumView) -> list[tuple[QuorumReplica, str]]:
    voters = [(each, LEADER if each.node_id == quorum.leader_id else VOTER) for each in quorum.voters]
    return voters + [(each, STANDBY) for each in quorum.observers if each.node_id in quorum.controllers]


@group.command(short_help="Make a standby a voter.")
@click.argument("node_id", metavar="NODE", type=click.IntRange(min=0))
@cluster_options
def add(node_id: int, bootstrap: str, timeout_seconds: float) -> int:
    """Make a standby a voter, once it has caught up.  What is refused changes nothing; where the time was
    over, the same again goes on.

    \b
    dlog cluster voters add 2
    """

    async def work(admin: Admin) -> None:
        await admin.add_raft_voter(node_id)
        print_line(f"node {node_id} is a voter")

    return run(bootstrap, timeout_seconds, work)


@group.command(short_help="Take a node out of the voters.")
@click.argument("node_id", metavar="NODE", type=click.IntRange(min=0))
@click.option("-y", "--yes", is_flag=True, help="Do not ask whether it is meant.")
@cluster_options
def remove(node_id: int, yes: bool, bootstrap: str, timeout_seconds: float) -> int:
    """Take a node out of the voters; it may be stopped, or have lost its disk.  A node that leads hands over
    first.  It stays a broker, if it is one, and a standby as long as it runs.

    \b
    dlog cluster voters remove 2
    """
    if not yes:
        require_terminal("with fewer voters fewer of them may fail")

    async def work(admin: Admin) -> None:
        voters = [each.node_id for each in (await admin.describe_quorum()).voters]
        if voters == [node_id]:
            raise InvalidRequestError(f"node {node_id} is the last voter: add another first")
        if not yes:
            left = [each for each in voters if each != node_id]
            confirm(
                f"Remove node {node_id} of the voters {', '.join(map(str, voters))}? Of those that are left "
                f"{(len(left) - 1) // 2} may fail."
            )
        await admin.remove_raft_voter(node_id)
        print_line(f"node {node_id} does not vote")

    return run(bootstrap, timeout_seconds, work)
