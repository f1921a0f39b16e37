"""Durations: those that Java reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.model.iso_durations import duration_nanoseconds

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("P1D", 86_400 * SECOND),
        ("pt1h2m3.000000004s", 3723 * SECOND + 4),
        ("PT-1H61M", 60 * SECOND),
        ("-PT-0.5S", SECOND // 2),
        ("PT0S", 0),
        ("PT-1S", None),
        ("P", None),
        ("PT", None),
        ("1D", None),
        ("P1Y", None),
        ("PT9223372036854775808S", None),
    ],
)
def test_a_duration_is_read(text: str, nanoseconds: int | None) -> None:
    assert duration_nanoseconds(text) == nanoseconds


@given(st.text(alphabet="-+PTDHMS.,0123456789", max_size=30))
def test_anything_else_is_none(text: str) -> None:
    found = duration_nanoseconds(text)
    assert found is None or found >= 0
