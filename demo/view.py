"""What one sees while the demo runs: a live table on a terminal, plain lines anywhere else."""

import time
from collections import deque
from dataclasses import dataclass, field
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

BARS = "▁▂▃▄▅▆▇█"
BARS_SHOWN = 60
NEWS_SHOWN = 6
LINE_SECONDS = 5.0


@dataclass
class Facts:
    """What is shown."""

    sent: int = 0
    acknowledged: int = 0
    malformed: int = 0
    late: int = 0
    runs: int = 0
    rows: int = 0
    lag: int | None = None
    broker: str = "starts"
    spark: str = "starts"
    lags: deque[int | None] = field(default_factory=lambda: deque(maxlen=BARS_SHOWN))


class View:
    """`news` are lines that stay; `show` is called again and again with what is so now."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._said = 0.0
        self._news: deque[str] = deque(maxlen=NEWS_SHOWN)
        self._live = (
            Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        )

    def __enter__(self) -> "View":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def news(self, line: str) -> None:
        stamped = f"{time.monotonic() - self._began:5.1f} s  {line}"
        if self._live is None:
            self._console.print(stamped, soft_wrap=True)
        else:
            self._live.console.print(stamped)

    def show(self, facts: Facts) -> None:
        if self._live is not None:
            self._live.update(_render(facts))
        elif time.monotonic() - self._said >= LINE_SECONDS:
            self._said = time.monotonic()
            behind = "-" if facts.lag is None else f"{facts.lag:,}"
            self.news(
                f"acknowledged {facts.acknowledged:,}   read {facts.rows:,} in {facts.runs} runs   "
                f"behind {behind}   broker {facts.broker}"
            )


def _render(facts: Facts) -> Group:
    table = Table.grid(padding=(0, 3))
    table.add_row("producer", f"{facts.acknowledged:,} of {facts.sent:,} events acknowledged",
                  f"{facts.malformed:,} make no sense, {facts.late:,} late")  # fmt: skip
    table.add_row("broker", facts.broker, "")
    table.add_row("pipeline", facts.spark, f"{facts.rows:,} rows read in {facts.runs} runs")
    table.add_row("behind", "-" if facts.lag is None else f"{facts.lag:,} records", Text(bars(facts.lags)))
    return Group(Text(), table)


def bars(values: "deque[int | None]") -> str:
    """A line of bars; a blank where nothing is known."""
    top = max((value for value in values if value is not None), default=0) or 1
    return "".join(
        " " if value is None else BARS[min(len(BARS) - 1, value * len(BARS) // (top + 1))] for value in values
    )
