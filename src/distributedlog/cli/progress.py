"""Progress bars on stderr, and only if that is a terminal: output in files and pipes stays clean."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(description: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Gives a function to call with the number of bytes that were done since the last call."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.progress import TransferSpeedColumn as SpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        SpeedColumn(),
        TimeRemainingColumn(),
    )
    progress = Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=sys.stdout.isatty(),  # on one terminal rows go above the bar
        redirect_stderr=True,
    )
    with progress:
        task = progress.add_task(description, total=total_bytes)
        yield lambda done_bytes: progress.advance(task, done_bytes)


@contextmanager
def count_bar(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """As `progress_bar`, for things that are counted and not weighed."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    progress = Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
        redirect_stderr=True,
    )
    with progress:
        task = progress.add_task(description, total=total)
        yield lambda count: progress.advance(task, count)
