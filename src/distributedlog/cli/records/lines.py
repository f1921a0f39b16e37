"""Lines from a file or from stdin, as they come, without blocking the event loop and without threads.

A pipe or a terminal is waited for; a regular file is always ready.  A line is bounded before it is kept.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Final

import click

CHUNK_BYTES: Final = 64 * 1024
LINE_BYTES_MAX: Final = 15 * 1024 * 1024


class InputError(click.ClickException):
    """A line that is no record."""

    exit_code = 2


async def read_lines(descriptor: int, line_bytes_max: int = LINE_BYTES_MAX) -> AsyncIterator[list[bytes]]:
    """Some lines at a time, without their newlines; the last need not have one."""
    unfinished = bytearray()
    count = 0
    while True:
        await _wait_readable(descriptor)
        chunk = os.read(descriptor, CHUNK_BYTES)
        if not chunk:
            break
        head, newline, tail = chunk.rpartition(b"\n")
        if newline:
            lines = (bytes(unfinished) + head).split(b"\n")
            unfinished = bytearray(tail)
            count += len(lines)
            yield lines
        else:
            unfinished += chunk
        if len(unfinished) > line_bytes_max:
            raise InputError(f"line {count + 1} has more than {line_bytes_max} bytes: too large for a record")
    if unfinished:
        yield [bytes(unfinished)]


async def _wait_readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    try:
        loop.add_reader(descriptor, wake)
    except PermissionError:  # the system waits for no regular file
        return
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
