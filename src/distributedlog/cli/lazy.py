"""A group of commands that are imported when they are used.

Each command is named with the place it comes from (`module:attribute`) and one line of help, so that a
group's `--help` imports none of them.
"""

import importlib
from collections.abc import Mapping
from typing import Any

import click

from distributedlog.model.suggestions import did_you_mean


class LazyGroup(click.Group):
    def __init__(self, *arguments: Any, commands_at: Mapping[str, tuple[str, str]], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._commands_at = commands_at

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._commands_at)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = self._commands_at.get(cmd_name)
        if place is None:
            return None
        module, _, attribute = place[0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self._commands_at and not args[0].startswith("-"):
            known = f"there are {', '.join(self._commands_at)}."
            ctx.fail(
                f"There is no command '{args[0]}' here; {did_you_mean(args[0], self._commands_at, known)}"
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self._commands_at.items()])
