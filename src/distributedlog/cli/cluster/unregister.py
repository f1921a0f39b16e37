"""`dlog cluster unregister`: a broker that is gone for good is forgotten."""

import click

from distributedlog.cli.cluster.drain import find_replicas
from distributedlog.cli.confirmation import confirm, require_terminal
from distributedlog.cli.output import print_line
from distributedlog.cli.session import cluster_options, run
from distributedlog.client.admin.admin import Admin
from distributedlog.model.errors import InvalidRequestError


@click.command()
@click.argument("broker_id", metavar="BROKER", type=click.IntRange(min=0))
@click.option("-y", "--yes", is_flag=True, help="Do not ask whether it is meant.")
@cluster_options
def unregister(broker_id: int, yes: bool, bootstrap: str, timeout_seconds: float) -> int:
    """Forget a broker that is stopped, holds nothing and does not come back.  One that lives, or that holds
    replicas, is refused: drain it, then stop it.  A broker that is started again is registered anew.

    \b
    dlog cluster drain 3 --yes && ssh broker3 systemctl stop dlog
    dlog cluster unregister 3
    """
    if not yes:
        require_terminal("a broker that is unregistered is forgotten")

    async def work(admin: Admin) -> None:
        await check_is_gone(admin, broker_id)
        if not yes:
            confirm(f"Forget broker {broker_id}?")
        await admin.unregister_broker(broker_id)
        print_line(f"broker {broker_id} is unregistered")

    return run(bootstrap, timeout_seconds, work)


async def check_is_gone(admin: Admin, broker_id: int) -> None:
    """Raises InvalidRequestError if the broker lives or holds replicas."""
    fenced = await admin.list_fenced_brokers()
    living = set((await admin.describe_cluster()).brokers) - set(fenced)
    if broker_id in living:
        raise InvalidRequestError(f"broker {broker_id} lives: stop it first")
    held = [name for name, replicas in (await find_replicas(admin)).items() if broker_id in replicas]
    if held:
        raise InvalidRequestError(
            f"broker {broker_id} holds replicas of {len(held)} partitions ({held[0]} is one): "
            f"move them first, with `dlog cluster drain {broker_id}`"
        )
