"""`dlog group exporter`: lag and offsets of groups for Prometheus, from a process that asks the cluster.

    GET /metrics        the numbers of the last round (`lag_export`)
    GET /health/ready   200 if the last round succeeded; 503 and why it did not

A round begins every `--interval`, and not before the one before it has ended; a scrape costs the cluster
nothing.  SIGTERM and Ctrl-C end it with exit code 0.
"""

import asyncio
import contextlib
import signal
import sys
from typing import TYPE_CHECKING

import click

from distributedlog.cli.group.session import check_group_ids, on_groups
from distributedlog.cli.output import print_line, warn
from distributedlog.cli.session import cluster_options
from distributedlog.client.admin.groups import GroupAdmin
from distributedlog.client.options import MIB

if TYPE_CHECKING:
    from distributedlog.cli.group.lag_export import LagExport
    from distributedlog.settings.addresses import Endpoint

LISTEN_DEFAULT = "127.0.0.1:9308"


@click.command()
@click.argument("group_ids", nargs=-1, metavar="[GROUP]…")
@click.option(
    "--listen", default=LISTEN_DEFAULT, show_default=True, metavar="HOST:PORT", help="Where to listen."
)
@click.option("--insecure", is_flag=True, help="Allow an address that other machines can reach.")
@click.option(
    "--interval", "interval_seconds", type=click.FloatRange(1.0, 3_600.0), default=15.0, show_default=True,
    metavar="SECONDS", help="How often the cluster is asked.",
)  # fmt: skip
@click.option(
    "--count-mib", type=click.IntRange(0, 64 * 1024), default=64, show_default=True, metavar="MIB",
    help="How much is read in a round to count records; 0 counts offsets instead.",
)  # fmt: skip
@cluster_options
def exporter(
    group_ids: tuple[str, ...],
    listen: str,
    insecure: bool,
    interval_seconds: float,
    count_mib: int,
    bootstrap: str,
    timeout_seconds: float,
) -> int:
    """Answer Prometheus with the lag of groups, in records and seconds, and with their offsets and the ends
    of what they read.  Of all groups, or of those that are named.

    \b
    dlog group exporter
    dlog group exporter billing shop --listen 127.0.0.1:9400 --interval 30
    """
    from distributedlog.cli.group.lag_export import LagExport
    from distributedlog.settings.addresses import is_loopback, parse_endpoint

    wanted = check_group_ids(group_ids)
    endpoint = parse_endpoint("--listen", listen)
    if not insecure and not is_loopback(endpoint.host):
        raise click.UsageError(
            f"--listen {listen} can be reached by other machines, and whoever reaches it may read: use"
            " 127.0.0.1, or --insecure if that is what you want"
        )

    async def work(groups: GroupAdmin) -> int:
        from distributedlog.client.admin.admin import Admin

        export = LagExport(Admin(groups.cluster), wanted, counted_bytes_max=count_mib * MIB)
        return await serve(export, endpoint, interval_seconds)

    return on_groups(bootstrap, timeout_seconds, work)


async def serve(export: "LagExport", endpoint: "Endpoint", interval_seconds: float) -> int:
    """Serves until a signal comes."""
    from distributedlog.broker.observability.operations import OperationsServer

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    server = OperationsServer(export, lambda: export.failure)
    bound = await server.start(endpoint)
    print_line(f"http://{bound}/metrics")
    sys.stdout.flush()
    asking = loop.create_task(_ask(export, interval_seconds))
    try:
        ended = loop.create_task(stopping.wait())
        await asyncio.wait({asking, ended}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if asking.done():
            asking.result()  # it never ends by itself
    finally:
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking
        await server.stop()
    return 0


async def _ask(export: "LagExport", interval_seconds: float) -> None:
    loop = asyncio.get_running_loop()
    before: str | None = None
    while True:
        begun = loop.time()
        await export.refresh()
        if export.failure is not None and export.failure != before:
            warn(f"the cluster could not be asked: {export.failure}")
        before = export.failure
        await asyncio.sleep(max(0.0, interval_seconds - (loop.time() - begun)))
