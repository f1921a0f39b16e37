"""`dlog cluster drain`: moves all replicas off one broker, for its repair or its removal."""

import click

from distributedlog.cli.cluster.draining import plan_drain
from distributedlog.cli.cluster.reassign import find_present_replicas, move_all, throttle_option
from distributedlog.cli.cluster.reassignment_plan import Plan, spell_plan
from distributedlog.cli.confirmation import confirm, require_terminal
from distributedlog.cli.exit_codes import NotFoundError
from distributedlog.cli.output import print_line, warn
from distributedlog.cli.session import cluster_options, run
from distributedlog.client.admin.admin import Admin
from distributedlog.controller.placement import Location
from distributedlog.model.ids import TopicPartition


@click.command()
@click.argument("broker_id", metavar="BROKER", type=click.IntRange(min=0))
@click.option("-y", "--yes", is_flag=True, help="Do not ask whether it is meant.")
@click.option("--dry-run", is_flag=True, help="Only print the plan, in Kafka's JSON.")
@throttle_option
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until all have arrived.")
@cluster_options
def drain(
    broker_id: int,
    yes: bool,
    dry_run: bool,
    throttle_rate: int | None,
    wait: bool,
    bootstrap: str,
    timeout_seconds: float,
) -> int:
    """Move all replicas off one broker.  The plan is printed in Kafka's JSON, which `dlog cluster reassign`
    takes, too; on a terminal it is asked for, elsewhere --yes is needed.  The moves go on if the command is
    ended.  Topics that are created meanwhile may be given to the broker: run it again until nothing is left.

    \b
    dlog cluster drain 3 --dry-run
    dlog cluster drain 3 --yes --throttle 10000000
    """
    if not yes and not dry_run:
        require_terminal("draining moves all that the broker holds")

    async def work(admin: Admin) -> int:
        plan = await make_plan(admin, broker_id)
        if not plan:
            warn(f"broker {broker_id} holds no replicas")
            return 0
        print_line(spell_plan(plan))
        if dry_run:
            return 0
        if not yes:
            confirm(f"Move {len(plan)} replicas off broker {broker_id}?")
        before = await find_present_replicas(admin, plan)
        return await move_all(admin, before, plan, throttle_rate, wait=wait)

    return run(bootstrap, timeout_seconds, work)


async def make_plan(admin: Admin, broker_id: int) -> Plan:
    """Returns the moves that empty a broker; those under way count as done, so that two plans agree."""
    fenced = await admin.list_fenced_brokers()
    living = await find_locations(admin)
    if broker_id not in living and broker_id not in fenced:
        raise NotFoundError(f"there is no broker {broker_id}")
    held = await find_replicas(admin)
    return plan_drain(held, living, broker_id)


async def find_locations(admin: Admin) -> dict[int, Location]:
    """Returns the brokers that live, and where they stand; an address is a machine where nothing else is
    told."""
    view = await admin.describe_cluster()
    fenced = await admin.list_fenced_brokers()
    hosts = await admin.list_broker_hosts()
    return {
        each.node_id: Location(each.rack, hosts.get(each.node_id, each.address.host))
        for each in view.brokers.values()
        if each.node_id not in fenced
    }


async def find_replicas(admin: Admin) -> Plan:
    """Returns the replicas of every partition, internal topics' too, once all moves have ended."""
    topics = await admin.list_topics(with_internal=True)
    moving = await admin.list_reassignments()
    held: Plan = {}
    for topic in topics:
        for each in topic.partitions:
            name = TopicPartition(topic.name, each.index)
            leaving = moving[name].removing if name in moving else ()
            held[name] = tuple(replica for replica in each.replicas if replica not in leaving)
    return held
