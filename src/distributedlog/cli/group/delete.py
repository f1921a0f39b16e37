"""`dlog group delete`."""

import click

from distributedlog.cli.confirmation import confirm, require_terminal
from distributedlog.cli.exit_codes import NotFoundError
from distributedlog.cli.group.session import (
    GroupInUseError,
    check_group_ids,
    on_groups,
)
from distributedlog.cli.output import output_option, print_json, print_line
from distributedlog.cli.session import cluster_options
from distributedlog.client.admin.groups import GroupAdmin, is_missing, is_refused_for_members
from distributedlog.model.errors import DlogError


@click.command()
@click.argument("group_ids", nargs=-1, required=True, metavar="GROUP…")
@click.option("--if-exists", is_flag=True, help="A group that is not there is no error.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask whether it is meant.")
@cluster_options
@output_option
def delete(
    group_ids: tuple[str, ...],
    if_exists: bool,
    yes: bool,
    bootstrap: str,
    timeout_seconds: float,
    output: str,
) -> int:
    """Remove groups and their committed offsets.  Asks first on a terminal; elsewhere --yes is needed.

    \b
    dlog group delete billing
    dlog group delete billing audit --if-exists --yes
    """
    wanted = check_group_ids(group_ids)
    if not yes:
        _confirm(wanted)

    async def work(groups: GroupAdmin) -> None:
        outcomes = await groups.delete_groups(wanted)
        failures: list[click.ClickException | DlogError] = []
        for group_id, error in outcomes.items():
            if error is None or (if_exists and is_missing(error)):
                _show(group_id, output, "deleted" if error is None else "is not there")
            else:
                failures.append(_explained(group_id, error))
        if failures:
            first = failures[0]
            if len(failures) == 1:
                raise first
            raise NotFoundError("; ".join(_text(each) for each in failures))

    return on_groups(bootstrap, timeout_seconds, work)


def _explained(group_id: str, error: DlogError) -> click.ClickException | DlogError:
    if is_missing(error):
        return NotFoundError(f"there is no group {group_id!r}; 'dlog group list' shows those there are")
    if is_refused_for_members(error):
        return GroupInUseError(f"group {group_id!r} has members: stop them first")
    return error


def _text(failure: click.ClickException | DlogError) -> str:
    return failure.format_message() if isinstance(failure, click.ClickException) else str(failure)


def _confirm(group_ids: list[str]) -> None:
    require_terminal("deleting takes the group's committed offsets too")
    whose = "its" if len(group_ids) == 1 else "their"
    confirm(f"Delete {', '.join(group_ids)} and {whose} committed offsets?")


def _show(group_id: str, output: str, what: str) -> None:
    if output == "json":
        print_json({"type": "deleted", "group": group_id, "outcome": what})
    else:
        print_line(f"{group_id} {what}")
