"""Which project a command means: `--project DIR`, or the one it is called in; and which cluster."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from distributedlog.cli.exit_codes import EXISTING_DIRECTORY
from distributedlog.cli.session import bootstrap_option

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


project_bootstrap_option = bootstrap_option(".  [default: as the project says]", default=None)
"""The option --bootstrap of a command on a project, which names brokers itself."""
