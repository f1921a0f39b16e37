"""Progress bars on stderr, and only if that is a terminal: output in files and pipes stays clean."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

LIVE_PER_SECOND: Final = 4


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
    """Shows progress as `progress_bar` does, for things that are counted and not weighed."""
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


@contextmanager
def live_line(spell: Callable[[], str]) -> Iterator[None]:
    """Shows what `tell` returns in the terminal's last line, a few times a second, while the block lasts.

    It has a descriptor of its own: while Spark is started this process's stderr is Spark's log.
    """
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    spinner = Spinner("dots")

    def shown() -> Spinner:
        spinner.update(text=Text(spell(), overflow="ellipsis", no_wrap=True))
        return spinner

    with (
        os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8", errors="backslashreplace") as terminal,
        Live(
            get_renderable=shown,
            console=Console(file=terminal),
            transient=True,
            refresh_per_second=LIVE_PER_SECOND,
            redirect_stdout=sys.stdout.isatty(),  # lines of runs go above it
            redirect_stderr=True,
        ),
    ):
        yield
