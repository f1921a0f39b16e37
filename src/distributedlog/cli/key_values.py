"""The option `--set KEY=VALUE`, as often as there are settings to change."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def set_option(command: Command) -> Command:
    return click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="A setting, e.g. log.retention.ms=3600000; docs/configuration.md has them all.",
    )(command)


def parse_overrides(given: Iterable[str]) -> dict[str, str]:
    return parse_pairs(given, "--set", example="num.partitions=3")


def parse_pairs(given: Iterable[str], option: str, *, example: str) -> dict[str, str]:
    """Names and texts; the last one counts."""
    found = {}
    for each in given:
        name, equals, text = each.partition("=")
        if not equals or not name.strip():
            raise click.UsageError(f"{option} {each}: write KEY=VALUE, as in {option} {example}")
        found[name.strip()] = text.strip()
    return found
