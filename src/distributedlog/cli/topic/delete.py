"""`dlog topic delete`."""

import click

from distributedlog.cli.confirmation import confirm, require_terminal
from distributedlog.cli.exit_codes import join_errors
from distributedlog.cli.output import output_option, print_json, print_line
from distributedlog.cli.session import cluster_options, run
from distributedlog.client.admin.admin import Admin
from distributedlog.model.errors import UnknownTopicError
from distributedlog.model.ids import check_topic_name


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC…")
@click.option("--if-exists", is_flag=True, help="A topic that is not there is no error.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask whether it is meant.")
@cluster_options
@output_option
def delete(
    names: tuple[str, ...], if_exists: bool, yes: bool, bootstrap: str, timeout_seconds: float, output: str
) -> int:
    """Remove topics and everything in them.  Asks first on a terminal; elsewhere --yes is needed.

    \b
    dlog topic delete orders
    dlog topic delete orders payments --if-exists --yes
    """
    wanted = [check_topic_name(name) for name in dict.fromkeys(names)]
    if not yes:
        _confirm(wanted)

    async def work(admin: Admin) -> None:
        outcomes = await admin.delete_topics(wanted)
        failures = []
        for name in wanted:
            error = outcomes.get(name)
            is_missing = isinstance(error, UnknownTopicError)
            if error is None or (is_missing and if_exists):
                _show(name, output, "is not there" if is_missing else "deleted")
            else:
                failures.append(UnknownTopicError(f"there is no topic {name!r}") if is_missing else error)
        if failures:
            raise join_errors(failures)

    return run(bootstrap, timeout_seconds, work)


def _confirm(names: list[str]) -> None:
    require_terminal("deleting takes everything in the topic")
    confirm(f"Delete {', '.join(names)} and everything in {'it' if len(names) == 1 else 'them'}?")


def _show(name: str, output: str, what: str) -> None:
    if output == "json":
        print_json({"type": "deleted", "topic": name, "outcome": what})
    else:
        print_line(f"{name} {what}")
