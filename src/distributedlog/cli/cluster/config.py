"""`dlog cluster config`: settings of all brokers, of one, of its loggers, or of a consumer group, changed
while they run."""

import contextlib
from collections.abc import Collection
from typing import Final

import click

from distributedlog.cli.exit_codes import NotFoundError
from distributedlog.cli.output import TextTable, columns, output_option, print_json, print_line, warn
from distributedlog.cli.session import cluster_options, run
from distributedlog.cli.topic.create import Setting
from distributedlog.client.admin.admin import Admin
from distributedlog.client.admin.configs import (
    CLUSTER_DEFAULT,
    ConfigEntry,
    ConfigKind,
    ConfigOf,
    ConfigSource,
    edits,
    of_broker,
    of_group,
    of_loggers,
)
from distributedlog.model.errors import BrokerUnreachableError
from distributedlog.model.suggestions import did_you_mean

HELP = """\
Settings of all brokers (the cluster's), of one, or of a consumer group, while they run.

A broker's own setting stands before the cluster's, and that before what the broker was started with.  A
group's own stands before its broker's.  The levels of a broker's loggers hold until it is restarted.

\b
dlog cluster config get
dlog cluster config set log.retention.ms=86400000
dlog cluster config unset log.retention.ms --broker 2
dlog cluster config set consumer.heartbeat.interval.ms=7000 --group workers
dlog cluster config set distributedlog.broker.net=DEBUG --broker 2 --loggers
"""
COLUMNS = columns("setting<44 value<24 from<10")
SOURCES: Final = {
    ConfigSource.BROKER: "broker",
    ConfigSource.CLUSTER: "cluster",
    ConfigSource.STARTUP: "start",
    ConfigSource.DEFAULT: "default",
    ConfigSource.GROUP: "group",
    ConfigSource.BROKER_LOGGER: "logger",
}

OPTIONS: Final[dict[int, str]] = {
    ConfigKind.GROUP: "--group NAME",
    ConfigKind.BROKER_LOGGER: "--broker N --loggers",
}
"""What names a resource on the command line, if not --broker N."""

broker_option = click.option(
    "--broker",
    "broker_id",
    type=click.IntRange(0),
    metavar="N",
    help="The settings of this broker; without it, those of all.",
)
group_option = click.option(
    "--group", "group_id", metavar="NAME", help="The settings of this consumer group, not of brokers."
)
loggers_option = click.option(
    "--loggers", is_flag=True, help="The levels of the loggers of --broker, not its settings."
)


@click.group(name="config", help=HELP)
def group() -> None:
    pass


def _whose(broker_id: int | None, group_id: str | None, loggers: bool) -> ConfigOf:
    if loggers:
        if broker_id is None or group_id is not None:
            raise click.UsageError("--loggers are those of one broker: name it with --broker N")
        return of_loggers(broker_id)
    if group_id is None:
        return CLUSTER_DEFAULT if broker_id is None else of_broker(broker_id)
    if broker_id is not None or not group_id:
        raise click.UsageError("--group names a group, and does not go together with --broker")
    return of_group(group_id)


@group.command(short_help="Show settings, and where they come from.")
@click.argument("names", nargs=-1, metavar="[NAME]…")
@broker_option
@group_option
@loggers_option
@click.option(
    "--all", "with_defaults", is_flag=True, help="Also those that nobody has set, with their defaults."
)
@cluster_options
@output_option
def get(
    names: tuple[str, ...],
    broker_id: int | None,
    group_id: str | None,
    loggers: bool,
    with_defaults: bool,
    bootstrap: str,
    timeout_seconds: float,
    output: str,
) -> int:
    """Show settings that were set: for all brokers, or what holds on one, or for a group; or loggers.

    \b
    dlog cluster config get
    dlog cluster config get log.retention.ms --broker 1
    dlog cluster config get --broker 1 --all -o json
    """
    whose = _whose(broker_id, group_id, loggers)

    async def work(admin: Admin) -> None:
        await _check_broker(admin, broker_id)
        entries = await admin.describe_configs(whose, names or None, with_documentation=output == "json")
        if entries is None:
            raise click.ClickException("this cluster does not describe its settings")
        await _check_known(admin, set(names) - {each.name for each in entries}, whose)
        shown = [each for each in entries if names or with_defaults or _is_set(each)]
        _show(whose, shown, output)

    return run(bootstrap, timeout_seconds, work)


async def _check_broker(admin: Admin, broker_id: int | None) -> None:
    """Raises if the broker is not there: only a broker itself knows its settings, and it is not waited
    for."""
    if broker_id is None:
        return
    known = sorted(each.node_id for each in await admin.cluster.brokers())
    if broker_id not in known:
        raise NotFoundError(f"there is no broker {broker_id}: the brokers are {', '.join(map(str, known))}")


async def _check_known(admin: Admin, names: Collection[str], whose: ConfigOf, otherwise: str = "") -> None:
    """Raises if there is no such setting at all: one broker is asked, because what is set for all brokers is
    described alone."""
    if not names:
        return
    option = OPTIONS.get(whose.kind, "--broker N")
    if whose == CLUSTER_DEFAULT:
        whose = await _one_that_answers(admin)
    entries = await admin.describe_configs(whose)
    known = {each.name for each in entries or ()}
    unknown = sorted(set(names) - known)
    if unknown and known:
        meant = did_you_mean(unknown[0], known, f"`dlog cluster config get {option} --all` lists them all")
        raise click.UsageError(f"there is no setting {unknown[0]}; {meant}{otherwise}")


async def _one_that_answers(admin: Admin) -> ConfigOf:
    """A broker may be down that the cluster does not miss yet."""
    brokers = await admin.cluster.brokers()
    for broker in brokers:
        with contextlib.suppress(BrokerUnreachableError):
            await admin.cluster.connection_to(broker.address)
            return of_broker(broker.node_id)
    return of_broker(brokers[0].node_id)


def _is_set(entry: ConfigEntry) -> bool:
    return entry.source != ConfigSource.DEFAULT


def _named(whose: ConfigOf) -> dict[str, object]:
    if whose.kind == ConfigKind.GROUP:
        return {"group": whose.name}
    if whose.kind == ConfigKind.BROKER_LOGGER:
        return {"loggers_of": int(whose.name)}
    return {"broker": int(whose.name) if whose.name else None}


def _show(whose: ConfigOf, entries: list[ConfigEntry], output: str) -> None:
    table = TextTable(COLUMNS)
    for each in entries:
        source = SOURCES.get(ConfigSource(each.source), "unknown") if each.source in SOURCES else "unknown"
        if output == "json":
            print_json(
                {
                    "type": "setting",
                    **_named(whose),
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
        whom = whose if whose.name else "all brokers; --broker N shows what holds on one"
        warn(f"nothing is set for {whom}")


@group.command(name="set", short_help="Change settings.")
@click.argument("settings", nargs=-1, required=True, type=Setting(), metavar="NAME=VALUE…")
@broker_option
@group_option
@loggers_option
@click.option("--force", is_flag=True, help="Also names that the brokers do not know (of plugins, say).")
@click.option("--dry-run", is_flag=True, help="Only say whether it could be.")
@cluster_options
@output_option
def set_settings(
    settings: tuple[tuple[str, str], ...],
    broker_id: int | None,
    group_id: str | None,
    loggers: bool,
    force: bool,
    dry_run: bool,
    bootstrap: str,
    timeout_seconds: float,
    output: str,
) -> int:
    """Change settings of all brokers, of one, or of a group, now.  Those that need a restart are refused.

    \b
    dlog cluster config set log.retention.ms=86400000
    dlog cluster config set log.retention.ms=3600000 --broker 1
    dlog cluster config set consumer.heartbeat.interval.ms=7000 --group workers
    """
    whose = _whose(broker_id, group_id, loggers)
    return _alter(
        whose, dict(settings), (), bootstrap, timeout_seconds, output, dry_run=dry_run, any_name=force
    )


@group.command(short_help="Take settings back.")
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@broker_option
@group_option
@loggers_option
@click.option("--dry-run", is_flag=True, help="Only say whether it could be.")
@cluster_options
@output_option
def unset(
    names: tuple[str, ...],
    broker_id: int | None,
    group_id: str | None,
    loggers: bool,
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
    whose = _whose(broker_id, group_id, loggers)
    return _alter(whose, {}, names, bootstrap, timeout_seconds, output, dry_run=dry_run)


def _alter(
    whose: ConfigOf,
    to_set: dict[str, str],
    to_unset: tuple[str, ...],
    bootstrap: str,
    timeout_seconds: float,
    output: str,
    *,
    dry_run: bool,
    any_name: bool = False,
) -> int:
    is_broker = whose.kind in (ConfigKind.BROKER, ConfigKind.BROKER_LOGGER) and whose != CLUSTER_DEFAULT

    async def work(admin: Admin) -> None:
        await _check_broker(admin, int(whose.name) if is_broker else None)
        if not any_name:
            otherwise = " (--force sets it all the same)" if whose.kind == ConfigKind.BROKER else ""
            await _check_known(admin, to_set, whose, otherwise)
            await _check_known(admin, await _without_set(admin, whose, to_unset), whose)
        outcome = await admin.alter_configs({whose: edits(to_set, to_unset)}, validate_only=dry_run)
        for error in outcome.values():
            if error is not None:
                raise error
        wanted: dict[str, str | None] = {**to_set, **dict.fromkeys(to_unset)}
        for name, value in wanted.items():
            _show_change(whose, name, value, output, dry_run=dry_run)

    return run(bootstrap, timeout_seconds, work)


async def _without_set(admin: Admin, whose: ConfigOf, names: tuple[str, ...]) -> set[str]:
    """Returns the names that are not set: what is set can be unset, whatever it is called."""
    entries = await admin.describe_configs(whose, names) if names else ()
    return set(names) - {each.name for each in entries or ()}


def _show_change(whose: ConfigOf, name: str, value: str | None, output: str, *, dry_run: bool) -> None:
    if output == "json":
        print_json(
            {
                "type": "altered",
                **_named(whose),
                "name": name,
                "value": value,
                "done": not dry_run,
            }
        )
        return
    verb = "could be " if dry_run else ""
    subject = whose if whose.name else "all brokers"
    print_line(f"{name} {verb}{'unset' if value is None else f'set to {value}'} for {subject}")
