"""Which project a command means: `--project DIR`, or the one it is called in."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from distributedlog.cli.refusals import EXISTING_DIRECTORY

Command = TypeVar("Command", bound=Callable[..., Any])


def project_option(command: Command) -> Command:
    return click.option(
        "-p",
        "--project",
        "where",
        type=EXISTING_DIRECTORY,
        default=".",
        show_default="this directory, or one above it",
        metavar="DIR",
        help="The pipeline's directory.",
    )(command)
