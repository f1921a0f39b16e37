"""The picture of a run as SVG: faults above, a row for each kind; below, operations and errors."""

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from tests.reliability.history import History, Outcome

WIDTH, MARGIN_LEFT, MARGIN = 1400, 170, 20
ROW_HEIGHT, CHART_HEIGHT = 18, 160
COLOURS = {"ok": "#2a7f3f", "read": "#3465a4", "unknown": "#c4a000", "fail": "#cc0000"}
STYLE = "text{font:11px sans-serif;fill:#333}.axis{stroke:#999;stroke-width:1;fill:none}"


class Happened(NamedTuple):
    """A fault as it was; seconds from the start of the run."""

    nemesis: str
    what: str
    begun_s: float
    healed_s: float


def rates(history: History, begun_ns: int) -> dict[str, Counter[int]]:
    """How many operations ended in each second of the run: sends by outcome, and records that were read."""
    found: dict[str, Counter[int]] = {name: Counter() for name in COLOURS}
    for send in history.sends:
        at_ns = send.completed_ns if send.completed_ns is not None else send.invoked_ns
        found[send.outcome.value][(at_ns - begun_ns) // 1_000_000_000] += 1
    for poll in history.polls:
        found["read"][(poll.completed_ns - begun_ns) // 1_000_000_000] += len(poll.records)
    return found


def draw_timeline(faults: Sequence[Happened], history: History, begun_ns: int, title: str) -> str:
    """The whole SVG document."""
    found = rates(history, begun_ns)
    last_s = max(
        [
            10.0,
            *(fault.healed_s for fault in faults),
            *(max(rate, default=0) + 1.0 for rate in found.values()),
        ]
    )
    rows = list(dict.fromkeys(fault.nemesis for fault in faults))
    chart_top = MARGIN * 2 + ROW_HEIGHT * len(rows)
    scale = (WIDTH - MARGIN_LEFT - MARGIN) / last_s
    parts = [f'<text x="{MARGIN}" y="{MARGIN}">{escape(title)}</text>']
    parts += _faults(faults, rows, scale)
    parts += _chart(chart_top, found, ("ok", "read"), "operations / s", last_s)
    errors_top = chart_top + CHART_HEIGHT + MARGIN
    parts += _chart(errors_top, found, (Outcome.UNKNOWN, Outcome.FAIL), "errors / s", last_s)
    parts += _seconds(errors_top + CHART_HEIGHT, last_s, scale)
    height = errors_top + CHART_HEIGHT + 2 * MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}"><style>{STYLE}</style>'
        f'<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _faults(faults: Iterable[Happened], rows: Sequence[str], scale: float) -> Iterable[str]:
    for number, row in enumerate(rows):
        yield f'<text x="{MARGIN}" y="{MARGIN * 2 + number * ROW_HEIGHT + 10}">{escape(row)}</text>'
    for fault in faults:
        x, y = MARGIN_LEFT + fault.begun_s * scale, MARGIN * 2 + rows.index(fault.nemesis) * ROW_HEIGHT
        width = max(2.0, (fault.healed_s - fault.begun_s) * scale)
        yield (
            f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW_HEIGHT - 5}" fill="#a40000" '
            f'fill-opacity="0.6"><title>{escape(fault.what)}</title></rect>'
        )


def _chart(
    top: int, found: dict[str, Counter[int]], names: Sequence[str], label: str, last_s: float
) -> Iterable[str]:
    highest = max([1, *(count for name in names for count in found[name].values())])
    scale_x = (WIDTH - MARGIN_LEFT - MARGIN) / last_s
    bottom = top + CHART_HEIGHT
    yield f'<path class="axis" d="M{MARGIN_LEFT},{top}V{bottom}H{WIDTH - MARGIN}"/>'
    yield f'<text x="{MARGIN}" y="{top + 12}">{label}, to {highest}</text>'
    for number, name in enumerate(names):
        colour = COLOURS[name]
        yield f'<text x="{MARGIN}" y="{top + 28 + 14 * number}" style="fill:{colour}">{name}</text>'
        points = " ".join(
            f"{MARGIN_LEFT + second * scale_x:.1f},"
            f"{bottom - found[name][second] * CHART_HEIGHT / highest:.1f}"
            for second in range(int(last_s) + 1)
        )
        yield f'<polyline points="{points}" fill="none" stroke="{colour}"/>'


def _seconds(y: int, last_s: float, scale: float) -> Iterable[str]:
    step = max(5, int(last_s / 20) // 5 * 5)
    for second in range(0, int(last_s) + 1, step):
        yield f'<text x="{MARGIN_LEFT + second * scale:.1f}" y="{y + 14}">{second} s</text>'
