"""`dlog cluster quotas`: how much clients may do: bytes in and out, and time, in a second."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from distributedlog.cli.output import TextTable, columns, output_option, print_json, print_line, warn
from distributedlog.cli.session import cluster_options, run
from distributedlog.client.admin.admin import Admin
from distributedlog.client.admin.quotas import QuotaChange, QuotaEntity

Command = TypeVar("Command", bound=Callable[..., Any])

HELP = """\
How much clients may do.  A quota is for a user, a client id, both together, or an address; a name left empty
(--client-id '') is for all that have none of their own.

\b
producer_byte_rate         bytes a second that it may write, to each broker
consumer_byte_rate         bytes a second that it may read, from each broker
request_percentage         share of a broker's time, in percent
controller_mutation_rate   partitions a second that it may have made or removed
connection_creation_rate   connections a second, of an address (--ip)

\b
dlog cluster quotas list
dlog cluster quotas set --client-id report producer_byte_rate=1000000
dlog cluster quotas unset --client-id report producer_byte_rate
"""
COLUMNS = columns("whose<40 quota<26 limit>14")
LIMIT_MAX: Final = 1e15


class Limit(click.ParamType[tuple[str, float]]):
    name = "limit"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        if isinstance(value, tuple):
            return value
        key, equals, text = str(value).partition("=")
        try:
            limit = float(text)
        except ValueError:
            limit = -1.0
        if not equals or not key.strip() or not 0 < limit <= LIMIT_MAX:
            self.fail(
                f"{value!r} is no quota: write NAME=NUMBER, such as producer_byte_rate=1000000", param, ctx
            )
        return key.strip(), limit


def entity_options(command: Command) -> Command:
    command = click.option("--ip", metavar="ADDRESS", help="Whose quota: connections from this address.")(
        command
    )
    command = click.option(
        "--client-id", metavar="NAME", help="Whose quota: clients that call themselves so."
    )(command)
    return click.option("--user", metavar="NAME", help="Whose quota: this user.")(command)


@click.group(name="quotas", help=HELP)
def group() -> None:
    pass


@group.command(name="list", short_help="Which quotas there are.")
@cluster_options
@output_option
def list_quotas(bootstrap: str, timeout_seconds: float, output: str) -> int:
    """List the quotas there are, and whose they are.

    \b
    dlog cluster quotas list
    dlog cluster quotas list -o json
    """

    async def work(admin: Admin) -> None:
        found = await admin.describe_quotas()
        table = TextTable(COLUMNS)
        for entity, limits in sorted(found.items(), key=lambda each: str(each[0])):
            for key, limit in sorted(limits.items()):
                if output == "json":
                    print_json({"type": "quota", **entity._asdict(), "name": key, "limit": limit})
                else:
                    table.row(entity, key, f"{limit:g}")
        if output == "table" and not found:
            warn("there are no quotas")

    return run(bootstrap, timeout_seconds, work)


@group.command(name="set", short_help="Limit clients.")
@click.argument("limits", nargs=-1, required=True, type=Limit(), metavar="NAME=NUMBER…")
@entity_options
@cluster_options
@output_option
def set_quotas(
    limits: tuple[tuple[str, float], ...],
    user: str | None,
    client_id: str | None,
    ip: str | None,
    bootstrap: str,
    timeout_seconds: float,
    output: str,
) -> int:
    """Limit a user, a client id, both together, or an address.

    \b
    dlog cluster quotas set --client-id report producer_byte_rate=1000000
    dlog cluster quotas set --user '' consumer_byte_rate=5e6
    """
    entity = QuotaEntity(user, client_id, ip)
    return _alter(entity, dict(limits), bootstrap, timeout_seconds, output)


@group.command(short_help="Take limits back.")
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@entity_options
@cluster_options
@output_option
def unset(
    names: tuple[str, ...],
    user: str | None,
    client_id: str | None,
    ip: str | None,
    bootstrap: str,
    timeout_seconds: float,
    output: str,
) -> int:
    """Take limits back.

    \b
    dlog cluster quotas unset --client-id report producer_byte_rate
    """
    entity = QuotaEntity(user, client_id, ip)
    return _alter(entity, dict.fromkeys(names), bootstrap, timeout_seconds, output)


def _alter(
    entity: QuotaEntity,
    limits: dict[str, float] | dict[str, float | None],
    bootstrap: str,
    timeout_seconds: float,
    output: str,
) -> int:
    if not entity.parts():
        raise click.UsageError("whose quota? say --user, --client-id or --ip")

    async def work(admin: Admin) -> None:
        outcome = await admin.alter_quotas([QuotaChange(entity, dict(limits))])
        for error in outcome.values():
            if error is not None:
                raise error
        for key, limit in limits.items():
            if output == "json":
                print_json({"type": "altered", **entity._asdict(), "name": key, "limit": limit})
            else:
                print_line(f"{key} of {entity} {'unset' if limit is None else f'set to {limit:g}'}")

    return run(bootstrap, timeout_seconds, work)
