"""Stdout whose errors can be told from those of other files.

Output is lost in three ways, and none of them may end with exit code 0:

| what happens                              | error                               | exit code |
|-------------------------------------------|-------------------------------------|-----------|
| the disk is full, the file is too large   | OSError that names `stdout`         | 3         |
| whoever read the output left              | BrokenPipeError that names `stdout` | 141       |
| stdout is closed (`>&-`)                  | `ClosedOutputError`                 | 3         |

The last is raised by commands that print records; one whose exit code is its result (`dlog log verify`) may
be run without a stdout.
"""

import io
import os
import sys
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STDOUT_NAME: Final = "stdout"


class ClosedOutputError(click.ClickException):
    """There is nowhere to write records to."""

    exit_code = 3

    def __init__(self) -> None:
        super().__init__(f"{STDOUT_NAME} is closed: nothing was read, since it could not be written")


class _StdoutFile(io.FileIO):
    """The descriptor of stdout; its errors name it."""

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = STDOUT_NAME
            raise


def prepare_stdout() -> None:
    """Replaces `sys.stdout` by one whose errors name it, and which can print every character somehow."""
    stdout = sys.stdout
    if not isinstance(stdout, io.TextIOWrapper):
        return
    if stdout is not sys.__stdout__:
        stdout.reconfigure(errors="backslashreplace")
        return
    stdout.flush()
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_StdoutFile(stdout.fileno(), "wb", closefd=False)),
        encoding=stdout.encoding,
        errors="backslashreplace",  # no terminal's alphabet has every letter
        line_buffering=stdout.line_buffering,
        write_through=stdout.write_through,
    )


def check_stdout_open() -> None:
    """Raises `ClosedOutputError` where stdout was closed: for commands that print what was asked for."""
    if sys.__stdout__ is None:
        raise ClosedOutputError


def is_stdout_error(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.filename == STDOUT_NAME


def discard_stdout() -> None:
    """Lets what is still buffered go nowhere: the interpreter must not complain about it when it exits."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
