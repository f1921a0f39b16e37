"""`dlog cluster restart --rolling`: restarts brokers one at a time, and waits for each to be whole again."""

import sys

import click

from distributedlog.cli.confirmation import confirm, require_terminal
from distributedlog.cli.exit_codes import EXISTING_FILE, NotFoundError
from distributedlog.cli.output import print_line, warn
from distributedlog.cli.pipeline.durations import Duration
from distributedlog.cli.session import cluster_options, run
from distributedlog.client.admin.admin import Admin
from distributedlog.model.ids import TopicPartition

EXIT_NOT_BEGUN = 1
EXIT_STOPPED = 1
NAMES_MAX = 5


@click.command()
@click.option("--rolling", is_flag=True, help="One broker after the other; there is no other way.")
@click.option(
    "--ready-file", type=EXISTING_FILE, metavar="F",
    help="Of 'dlog dev --ready-file F': its brokers are stopped, and it starts them again.",
)  # fmt: skip
@click.option(
    "--command", "shell_command", metavar="COMMAND",
    help="Run by the shell for each broker, with {id} and {host} filled in.",
)  # fmt: skip
@click.option(
    "--broker", "wanted", type=click.IntRange(min=0), multiple=True, metavar="BROKER",
    help="Restart this broker only.  May be given more than once.",
)  # fmt: skip
@click.option(
    "--wait", "seconds_max", type=Duration(), default="10m", show_default=True, metavar="TIME",
    help="How long to wait for each thing that a broker has to do.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Begin also if partitions lack replicas in sync.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask whether it is meant.")
@cluster_options
def restart(
    rolling: bool,
    ready_file: str | None,
    shell_command: str | None,
    wanted: tuple[int, ...],
    seconds_max: float,
    force: bool,
    yes: bool,
    bootstrap: str,
    timeout_seconds: float,
) -> int:
    """Restart brokers one at a time.  The next one is restarted when the one before takes part again, all
    replicas are in sync, and it leads what it is to lead; the active controller is the last.  It does not
    begin while partitions lack replicas, and stops at the first broker that does not come back.

    \b
    dlog cluster restart --rolling --command 'ssh {host} systemctl restart dlog'
    dlog cluster restart --rolling --command 'systemctl restart dlog@{id}' --yes
    dlog cluster restart --rolling --ready-file ready.json --yes
    """
    from distributedlog.cli.cluster.restarting.means import ByCommand, BySupervisor, RestartFailedError
    from distributedlog.cli.cluster.restarting.rolling import (
        RollingRestart,
        find_alone,
        find_lacking,
        find_order,
    )

    if not rolling:
        raise click.UsageError("say --rolling: brokers are restarted one after the other, or not at all")
    if (ready_file is None) == (shell_command is None):
        raise click.UsageError("say how a broker is restarted: by --command, or by --ready-file of dlog dev")
    if not yes:
        require_terminal("brokers are restarted")
    means = BySupervisor(ready_file) if ready_file else ByCommand(shell_command or "", seconds_max)

    async def work(admin: Admin) -> int:
        brokers = await find_order(admin, wanted)
        if missing := set(wanted) - {each.node_id for each in brokers}:
            raise NotFoundError(f"there is no broker {min(missing)} that takes part")
        means.check(brokers)
        topics = await admin.list_topics(with_internal=True)
        lacking = find_lacking(topics)
        if lacking and not force:
            warn(f"{_names(lacking)} lack replicas in sync: nothing is restarted; see 'dlog cluster health'")
            return EXIT_NOT_BEGUN
        if alone := find_alone(topics, [each.node_id for each in brokers]):
            warn(f"{_names(alone)} have one replica each: nobody serves them while their broker restarts")
        if not yes:
            order = ", ".join(str(each.node_id) for each in brokers)
            confirm(f"Restart brokers {order}, in this order?")
        try:
            await RollingRestart(admin, means, seconds_max, lacking, tell).run(brokers)
        except RestartFailedError as error:
            warn(f"stopped, and the brokers that follow are left alone: {error}")
            return EXIT_STOPPED
        print_line(f"{len(brokers)} brokers were restarted")
        return 0

    return run(bootstrap, timeout_seconds, work)


def tell(text: str) -> None:
    print_line(text)
    sys.stdout.flush()


def _names(partitions: set[TopicPartition]) -> str:
    names = [str(each) for each in sorted(partitions)[:NAMES_MAX]]
    more = len(partitions) - len(names)
    return ", ".join(names) + (f" and {more} more partitions" if more else "")
