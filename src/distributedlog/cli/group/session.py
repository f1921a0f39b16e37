"""What the commands on groups share: an admin client, and plain errors."""

from collections.abc import Callable, Coroutine
from typing import Any

import click

from distributedlog.cli.exit_codes import NotFoundError
from distributedlog.cli.session import run
from distributedlog.client.admin.admin import Admin
from distributedlog.client.admin.groups import GroupAdmin
from distributedlog.groups.config import GROUP_ID_BYTES_MAX
from distributedlog.model.errors import GroupNotFoundError


class GroupInUseError(click.ClickException):
    """The group has members, and the command needs a group without."""

    exit_code = 1


def on_groups(
    bootstrap: str, timeout_seconds: float, work: Callable[[GroupAdmin], Coroutine[Any, Any, int | None]]
) -> int:
    """Runs a command's work; its exit code."""

    async def with_groups(admin: Admin) -> int | None:
        try:
            return await work(GroupAdmin(admin.cluster))
        except GroupNotFoundError as error:
            raise NotFoundError(f"{error}; 'dlog group list' shows those there are") from error

    return run(bootstrap, timeout_seconds, with_groups)


def check_group_ids(group_ids: tuple[str, ...]) -> list[str]:
    """Each once, in their order."""
    for group_id in group_ids:
        if not group_id:
            raise click.UsageError("a group's name is not empty")
        if len(group_id.encode("utf-8", "surrogatepass")) > GROUP_ID_BYTES_MAX:
            raise click.UsageError(f"a group's name has at most {GROUP_ID_BYTES_MAX} bytes")
    return list(dict.fromkeys(group_ids))
