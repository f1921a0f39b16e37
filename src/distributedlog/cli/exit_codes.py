"""How commands refuse what they were given: errors with the exit codes of `main`'s table.

| what is wrong                                        | said by                                 | exit code |
|------------------------------------------------------|-----------------------------------------|-----------|
| an option or argument, seen before anything is done  | `click.UsageError` and those below it   | 2         |
| a value or name that the cluster refuses             | one of `WRONG_VALUES`                   | 2         |
| a line or a file of records that holds none          | `InputError` (`records/lines`)          | 2         |
| what was named is not there: topic, group, file, …   | `NotFoundError`, `FileNotFoundError`    | 1         |
| what was to be made is there already                 | `AlreadyExistsError`, …                 | 1         |
| no cluster, no Java, a disk that fails               | `NoClusterError`, `StorageError`, …     | 3         |
"""

import os
from collections.abc import Sequence
from typing import IO, Final

import click

from distributedlog.model.errors import (
    ConfigError,
    DlogError,
    InconsistentClusterIdError,
    InvalidAssignmentError,
    InvalidGroupIdError,
    InvalidNameError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    PolicyViolationError,
    UnsupportedCompressionError,
)

WRONG_VALUES: Final = (
    ConfigError,
    InconsistentClusterIdError,
    InvalidAssignmentError,
    InvalidGroupIdError,
    InvalidNameError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    PolicyViolationError,
    UnsupportedCompressionError,
)
"""Who gives the same command again gets the same answer."""


def join_errors(failures: Sequence[DlogError]) -> DlogError:
    """The first, which says what all of them say: a command has one exit code."""
    first = failures[0]
    first.args = ("; ".join(map(str, failures)),)
    return first


class NotFoundError(click.ClickException):
    """What was asked about is not there."""

    exit_code = 1


class AlreadyExistsError(click.ClickException):
    """What was to be made is there, and is not overwritten."""

    exit_code = 1


class ExistingPath(click.ParamType[str]):
    """What must be there already."""

    def __init__(self, name: str, *, may_be_directory: bool) -> None:
        self.name = name
        """What it is to its user: `file`, or `directory`."""
        self._may_be_directory = may_be_directory

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        path = str(value)
        if not os.path.exists(path):
            raise NotFoundError(f"there is no {self.name} {path}")
        if os.path.isdir(path) and not self._may_be_directory:
            self.fail(f"{path} is a directory", param, ctx)
        return path


EXISTING_FILE: Final = ExistingPath("file", may_be_directory=False)
EXISTING_DIRECTORY: Final = ExistingPath("directory", may_be_directory=True)
"""A directory that exists, or a file in it that stands for it."""


class _TextFile(click.File):
    """A file that must be there already, opened, or `-` for stdin."""

    def convert(
        self,
        value: str | os.PathLike[str] | IO[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> IO[str]:
        if value != "-":
            EXISTING_FILE.convert(value, param, ctx)
        return super().convert(value, param, ctx)


EXISTING_FILE_OR_STDIN: Final = _TextFile(encoding="utf-8")
