"""`dlog cluster config`: settings of all brokers, or of one, changed while they run."""

from typing import Final

import click

from distributedlog.cli.output import TextTable, columns, output_option, print_json, print_line
from distributedlog.cli.topic.creation import Setting
from distributedlog.cli.topic.session import cluster_options, run
from distributedlog.client.admin import Admin
from distributedlog.client.config_admin import (
    CLUSTER_DEFAULT,
    ConfigEntry,
    ConfigOf,
    ConfigSource,
    edits,
    of_broker,
)

HELP = """\
Settings of all brokers (the cluster's), or of one, while they run.

A broker's own setting stands before the cluster's, and that before what the broker was started with.

\b
dlog cluster config get
dlog cluster config set log.retention.ms=86400000
dlog cluster config unset log.retention.ms --broker 2
"""
COLUMNS = columns("setting<44 value<24 from<10")
SOURCES: Final = {
    ConfigSource.BROKER: "broker",
    ConfigSource.CLUSTER: "cluster",
    ConfigSource.STARTUP: "start",
    ConfigSource.DEFAULT: "default",
}

broker_option = click.option(
    "--broker", "broker_id", type=click.IntRange(0), metavar="N", help="Of this broker; else of all."
)


@click.group(name="config", help=HELP)
def group() -> None:
    pass


def _whose(broker_id: int | None) -> ConfigOf:
    return CLUSTER_DEFAULT if broker_id is None else of_broker(broker_id)


@group.command(short_help="Show settings, and where they come from.")
@click.argument("names", nargs=-1, metavar="[NAME]…")
@broker_option
@click.option("--all", "with_defaults", is_flag=True, help="Also those that nobody has set.")
@cluster_options
@output_option
def get(
    names: tuple[str, ...],
    broker_id: int | None,
    with_defaults: bool,
    bootstrap: str,
    timeout_seconds: float,
    output: str,
) -> int:
    """Show settings that were set: for all brokers, or with --broker what holds on that one.

    \b
    dlog cluster config get
    dlog cluster config get log.retention.ms --broker 1
    dlog cluster config get --broker 1 --all -o json
    """
    whose = _whose(broker_id)

    async def work(admin: Admin) -> None:
        entries = await admin.describe_configs(whose, names or None, with_documentation=output == "json")
        if entries is None:
            raise click.ClickException("this cluster does not tell its settings")
        missing = sorted(set(names) - {each.name for each in entries})
        if missing and broker_id is not None:
            raise click.UsageError(
                f"broker {broker_id} has no setting {missing[0]}: see docs/configuration.md"
            )
        shown = [each for each in entries if names or with_defaults or _is_set(each)]
        _show(whose, shown, output)

    return run(bootstrap, timeout_seconds, work)


def _is_set(entry: ConfigEntry) -> bool:
    return entry.source != ConfigSource.DEFAULT


def _show(whose: ConfigOf, entries: list[ConfigEntry], output: str) -> None:
    table = TextTable(COLUMNS)
    for each in entries:
        source = SOURCES.get(ConfigSource(each.source), "unknown") if each.source in SOURCES else "unknown"
        if output == "json":
            print_json(
                {
                    "type": "setting",
                    "broker": int(whose.name) if whose.name else None,
                    "name": each.name,
                    "value": each.value,
                    "source": source,
                    "is_sensitive": each.is_sensitive,
                    "is_read_only": each.is_read_only,
                    "documentation": each.documentation,
                }
            )
        else:
            table.row(each.name, "(hidden)" if each.is_sensitive else each.value, source)
    if output == "table" and not entries:
        print_line(f"nothing is set for {'all brokers' if not whose.name else whose}")


@group.command(name="set", short_help="Change settings.")
@click.argument("settings", nargs=-1, required=True, type=Setting(), metavar="NAME=VALUE…")
@broker_option
@click.option("--dry-run", is_flag=True, help="Only say whether it could be.")
@cluster_options
@output_option
def set_settings(
    settings: tuple[tuple[str, str], ...],
    broker_id: int | None,
    dry_run: bool,
    bootstrap: str,
    timeout_seconds: float,
    output: str,
) -> int:
    """Change settings of all brokers, or of one, now.  Those that need a restart are refused.

    \b
    dlog cluster config set log.retention.ms=86400000
    dlog cluster config set log.retention.ms=3600000 --broker 1
    """
    return _alter(broker_id, dict(settings), (), bootstrap, timeout_seconds, output, dry_run=dry_run)


@group.command(short_help="Take settings back.")
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@broker_option
@click.option("--dry-run", is_flag=True, help="Only say whether it could be.")
@cluster_options
@output_option
def unset(
    names: tuple[str, ...],
    broker_id: int | None,
    dry_run: bool,
    bootstrap: str,
    timeout_seconds: float,
    output: str,
) -> int:
    """Take settings back, so that those behind them hold again: the cluster's, or those of the start.

    \b
    dlog cluster config unset log.retention.ms
    dlog cluster config unset log.retention.ms --broker 1
    """
    return _alter(broker_id, {}, names, bootstrap, timeout_seconds, output, dry_run=dry_run)


def _alter(
    broker_id: int | None,
    to_set: dict[str, str],
    to_unset: tuple[str, ...],
    bootstrap: str,
    timeout_seconds: float,
    output: str,
    *,
    dry_run: bool,
) -> int:
    whose = _whose(broker_id)

    async def work(admin: Admin) -> None:
        outcome = await admin.alter_configs({whose: edits(to_set, to_unset)}, validate_only=dry_run)
        for error in outcome.values():
            if error is not None:
                raise error
        wanted: dict[str, str | None] = {**to_set, **dict.fromkeys(to_unset)}
        for name, value in wanted.items():
            _show_change(whose, name, value, output, dry_run=dry_run)

    return run(bootstrap, timeout_seconds, work)


def _show_change(whose: ConfigOf, name: str, value: str | None, output: str, *, dry_run: bool) -> None:
    if output == "json":
        print_json(
            {
                "type": "altered",
                "broker": int(whose.name) if whose.name else None,
                "name": name,
                "value": value,
                "done": not dry_run,
            }
        )
        return
    verb = "could be " if dry_run else ""
    subject = whose if whose.name else "all brokers"
    print_line(f"{name} {verb}{'unset' if value is None else f'set to {value}'} for {subject}")
