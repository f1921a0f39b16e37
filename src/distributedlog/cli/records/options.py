"""Options that several commands about records have, said once."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from distributedlog.cli.records.record_files import FORMATS
from distributedlog.records.compression import Codec

Command = TypeVar("Command", bound=Callable[..., Any])
CODECS = [codec.name.lower() for codec in Codec]


def partitions_option(command: Command) -> Command:
    return click.option(
        "-p",
        "--partition",
        "partitions",
        type=click.IntRange(0),
        multiple=True,
        metavar="N",
        help="Only this partition; may be repeated.",
    )(command)


def compression_option(command: Command) -> Command:
    return click.option(
        "-z",
        "--compression",
        type=click.Choice(CODECS),
        default="none",
        show_default=True,
        help="How batches are compressed.",
    )(command)


def file_format_option(command: Command) -> Command:
    return click.option(
        "-F",
        "--format",
        "given_format",
        type=click.Choice(FORMATS),
        help="What the file holds; without it, by its name: .jsonl, .jsonl.gz, .parquet.",
    )(command)
