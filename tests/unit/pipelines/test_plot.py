import math
from pathlib import Path
from typing import Any

import pytest

from distributedlog.model.errors import PipelineError
from distributedlog.pipelines.plot import draw, picture_of


def lag(second: float, records: int | None) -> dict[str, Any]:
    return {"type": "lag", "time_ms": int(second * 1000), "records": records}


def batch(second: float, flow: str, total: int, topic: str | None = "orders") -> dict[str, Any]:
    positions = {topic: {"0": total}} if topic else {}
    return {
        "type": "batch",
        "time_ms": int(second * 1000),
        "flow": flow,
        "rows_total": total,
        "positions": positions,
    }


EVENTS = [
    {"type": "run", "time_ms": 10_000, "run": 1, "state": "started"},
    lag(11, 100),
    batch(12, "raw", 80),
    batch(12.5, "clean", 70, topic=None),
    lag(13, 20),
    lag(14, None),
    lag(15, None),
    lag(16, 50),
    batch(17, "raw", 150),
    {"type": "run", "time_ms": 18_000, "run": 1, "state": "failed", "error": "x"},
]


def test_the_line_of_the_lag_is_interrupted_where_no_broker_answered() -> None:
    picture = picture_of(EVENTS)
    assert [seconds for seconds, _ in picture.lag] == [1, 3, 4, 5, 6]
    assert [value for _, value in picture.lag if not math.isnan(value)] == [100, 20, 50]
    assert picture.gaps == [(3.0, 5.0)]


def test_only_rows_from_topics_are_drawn() -> None:
    assert picture_of(EVENTS).rows == [(2.0, 80), (7.0, 150)]


def test_failures_and_marks_stand_where_they_happened() -> None:
    picture = picture_of(EVENTS, [(14_500, "kill -9")])
    assert picture.failed == [8.0]
    assert picture.marks == [(4.5, "kill -9")]


def test_a_picture_is_drawn_without_a_display(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    path = tmp_path / "lag.png"
    draw(EVENTS, str(path), title="shop", marks=[(14_000, "kill -9")])
    assert path.read_bytes().startswith(b"\x89PNG")


def test_nothing_to_draw_is_said(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="nothing to draw"):
        draw([], str(tmp_path / "lag.png"), title="shop")


def test_a_format_that_nobody_knows_is_said(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"lag\.nonsense"):
        draw(EVENTS, str(tmp_path / "lag.nonsense"), title="shop")
