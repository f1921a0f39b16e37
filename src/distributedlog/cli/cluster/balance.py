"""`dlog cluster balance`: shares the load evenly among the brokers, with the fewest moves."""

import asyncio
import contextlib
import functools
import sys

import click

from distributedlog.cli.cluster.balancing.loads import TOLERANCE_DEFAULT
from distributedlog.cli.cluster.balancing.planner import plan_balance
from distributedlog.cli.cluster.reassign import throttle_option
from distributedlog.cli.confirmation import confirm, require_terminal
from distributedlog.cli.output import output_option, print_line, warn
from distributedlog.cli.pipeline.durations import Duration
from distributedlog.cli.session import cluster_options, run
from distributedlog.client.admin.admin import Admin
from distributedlog.model.errors import InvalidRequestError

MOVES_MAX: int = 1_000_000
EXIT_OUTSIDE = 1


@click.command()
@click.option("-y", "--yes", is_flag=True, help="Do not ask whether it is meant.")
@click.option("--dry-run", is_flag=True, help="Only show the plan.")
@throttle_option
@click.option(
    "--tolerance", type=click.FloatRange(0.01, 1.0), default=TOLERANCE_DEFAULT, show_default=True,
    metavar="PART", help="How far a broker may be from the mean, as a part of it.",
)  # fmt: skip
@click.option(
    "--measure", "measure_seconds", type=Duration(), default="10s", show_default=True, metavar="TIME",
    help="How long bytes in and out are measured; 0 leaves them out.",
)  # fmt: skip
@click.option(
    "--max-moves", "moves_max", type=click.IntRange(0, MOVES_MAX), metavar="N",
    help="Copy no more than so many replicas, those that help most.",
)  # fmt: skip
@click.option(
    "--exclude", "excluded", type=click.IntRange(min=0), multiple=True, metavar="BROKER",
    help="Leave this broker as it is.  May be given more than once.",
)  # fmt: skip
@click.option(
    "--every", "every_seconds", type=Duration(), metavar="TIME",
    help="Go on balancing, so often, until Ctrl-C; asks nothing, and needs --throttle.",
)  # fmt: skip
@cluster_options
@output_option
def balance(
    yes: bool,
    dry_run: bool,
    throttle_rate: int | None,
    tolerance: float,
    measure_seconds: float,
    moves_max: int | None,
    excluded: tuple[int, ...],
    every_seconds: float | None,
    bootstrap: str,
    timeout_seconds: float,
    output: str,
) -> int:
    """Share the load evenly: disk, bytes in and out, leaders.  It is measured first; then the fewest moves
    are planned after which every broker is within the tolerance of the mean, and leaderships change hands
    where that suffices.  The plan is shown; on a terminal it is asked for, elsewhere --yes is needed.

    Moves that have begun go on if the command is ended.  With --every it stays, and balances whenever that is
    needed and nothing else is wrong; Ctrl-C cancels what has not arrived, a second one leaves it.

    \b
    dlog cluster balance --dry-run
    dlog cluster balance --yes --throttle 10000000
    dlog cluster balance --every 10m --throttle 10000000 -o json
    """
    if every_seconds is not None:
        if throttle_rate is None or dry_run:
            raise click.UsageError("--every needs --throttle, and is no --dry-run")
        pace = (every_seconds, measure_seconds, throttle_rate, tolerance, moves_max, excluded)
        return run(bootstrap, timeout_seconds, lambda admin: _stay(admin, pace, output))
    if not yes and not dry_run:
        require_terminal("balancing moves partitions between brokers")

    async def work(admin: Admin) -> int:
        from distributedlog.cli.cluster.balancing.measuring import measure
        from distributedlog.cli.cluster.balancing.moving import find_unpreferred, make_moves
        from distributedlog.cli.cluster.balancing.showing import is_within, show_plan

        if measure_seconds > 0:
            warn(f"measures the load for {measure_seconds:g} s")
        load = await measure(admin, measure_seconds, excluded)
        if not load.brokers:
            raise InvalidRequestError("no broker is left that could share the load")
        plan = await asyncio.to_thread(plan_balance, load, tolerance, moves_max)
        show_plan(plan, tolerance, output)
        code = 0 if is_within(plan.after, tolerance) else EXIT_OUTSIDE
        unpreferred = await find_unpreferred(admin)
        if unpreferred and output != "json":
            print_line(
                f"{len(unpreferred)} partitions are led by another than their first replica, which will lead"
            )
        if dry_run or not (plan.targets or unpreferred):
            return code
        if not yes:
            confirm(f"Move {plan.move_count} replicas and {len(plan.leaderships)} leaderships?")
        # What is told while partitions move is for people: programs find the plan alone on stdout.
        with contextlib.redirect_stdout(sys.stderr) if output == "json" else contextlib.nullcontext():
            return await make_moves(admin, plan, throttle_rate) or code

    return run(bootstrap, timeout_seconds, work)


async def _stay(
    admin: Admin, pace: tuple[float, float, int, float, int | None, tuple[int, ...]], output: str
) -> int:
    from distributedlog.cli.cluster.balancing.showing import tell_event
    from distributedlog.cli.cluster.balancing.steady import Pace, SteadyBalance

    return await SteadyBalance(admin, Pace(*pace), functools.partial(tell_event, output)).run()
