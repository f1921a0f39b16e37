"""A pipeline's history as a picture: how far it was behind, and how many rows it read, over time.

matplotlib is imported when something is drawn, and draws into files only (Agg): no display is needed.
Where no broker answered, the line of the lag is interrupted and the time is shaded; runs that failed are
marked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Final

from distributedlog.model.errors import PipelineError
from distributedlog.pipelines.history import Event
from distributedlog.pipelines.progress import parse_positions

LAG_COLOUR: Final = "#b3541e"
ROWS_COLOUR: Final = "#1f5f8b"
GAP_COLOUR: Final = "#9a9a9a"
FAILED_COLOUR: Final = "#c0182b"


@dataclass(slots=True)
class Picture:
    """What is drawn: seconds since the first event, and values."""

    lag: list[tuple[float, float]] = field(default_factory=list)
    """NaN where no broker answered."""
    gaps: list[tuple[float, float]] = field(default_factory=list)
    rows: list[tuple[float, int]] = field(default_factory=list)
    """Rows read from topics so far."""
    failed: list[float] = field(default_factory=list)
    marks: list[tuple[float, str]] = field(default_factory=list)


def picture_of(events: Sequence[Event], marks: Sequence[tuple[int, str]] = ()) -> Picture:
    """Marks are moments (milliseconds since 1970) with a word each."""
    picture = Picture()
    if not events:
        return picture
    origin = min(event["time_ms"] for event in events)
    totals: dict[str, int] = {}
    for event in events:
        seconds = (event["time_ms"] - origin) / 1000
        if event["type"] == "lag":
            _add_lag(picture, seconds, event.get("records"))
        elif event["type"] == "batch" and parse_positions(event.get("positions")):
            totals[str(event.get("flow"))] = int(event.get("rows_total") or 0)
            picture.rows.append((seconds, sum(totals.values())))
        elif event["type"] == "run" and event.get("state") == "failed":
            picture.failed.append(seconds)
    picture.marks = [((time_ms - origin) / 1000, word) for time_ms, word in marks]
    return picture


def _add_lag(picture: Picture, seconds: float, records: int | None) -> None:
    if records is not None:
        picture.lag.append((seconds, records))
        return
    began = picture.lag[-1][0] if picture.lag else seconds
    was_gap = bool(picture.lag) and picture.lag[-1][1] != picture.lag[-1][1]
    if was_gap and picture.gaps:
        picture.gaps[-1] = (picture.gaps[-1][0], seconds)
    else:
        picture.gaps.append((began, seconds))
    picture.lag.append((seconds, float("nan")))


def draw(events: Sequence[Event], path: str, *, title: str, marks: Sequence[tuple[int, str]] = ()) -> None:
    """Writes a PNG (or what the file's name ends in)."""
    if find_spec("matplotlib") is None:
        raise PipelineError("to draw, matplotlib is needed: pip install 'distributedlog[spark]'")
    picture = picture_of(events, marks)
    if not picture.lag and not picture.rows:
        raise PipelineError("there is nothing to draw yet: no run has read anything")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6), layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, sharex=True)
    figure.suptitle(title)
    _draw_lag(upper, picture)
    _draw_rows(lower, picture)
    try:
        figure.savefig(path, dpi=110)
    except ValueError as error:
        raise PipelineError(f"{path}: {error}") from error


def _draw_lag(axes: Any, picture: Picture) -> None:
    axes.set_ylabel("records behind the topics")
    if picture.lag:
        axes.plot(*zip(*picture.lag, strict=True), color=LAG_COLOUR, linewidth=1.6)
    for begin, end in picture.gaps:
        axes.axvspan(begin, max(end, begin + 0.2), color=GAP_COLOUR, alpha=0.25, linewidth=0)
    _finish(axes, picture)


def _draw_rows(axes: Any, picture: Picture) -> None:
    axes.set_ylabel("rows read from topics")
    axes.set_xlabel("seconds")
    if picture.rows:
        end = (max(seconds for seconds, _ in [*picture.rows, *picture.lag]), picture.rows[-1][1])
        steps = [(0.0, 0), *picture.rows, end]
        axes.step(*zip(*steps, strict=True), where="post", color=ROWS_COLOUR, linewidth=1.6)
    _finish(axes, picture)


def _finish(axes: Any, picture: Picture) -> None:
    for time_ms in picture.failed:
        axes.axvline(time_ms, color=FAILED_COLOUR, linewidth=1, linestyle=":")
    top = axes.get_ylim()[1] * 1.1
    for number, (time_ms, word) in enumerate(picture.marks):
        axes.axvline(time_ms, color="black", linewidth=0.8, linestyle="--")
        below = -10 - 11 * (number % 3)  # moments may be close to each other
        axes.annotate(word, (time_ms, top), xytext=(3, below), textcoords="offset points", fontsize=8)
    axes.set_ylim(bottom=0, top=top)
    axes.set_xlim(left=0)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(visible=True, alpha=0.3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
