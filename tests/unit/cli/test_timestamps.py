"""Times on the command line."""

import click
import pytest

from distributedlog.cli.timestamps import TimestampType

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "moment_ms"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20", 1_700_000_000_000),
        ("2023-11-14 23:13:20+01:00", 1_700_000_000_000),
        ("2023-11-14", 1_699_920_000_000),
        ("-10m", NOW_MS - 600_000),
        ("-2d", NOW_MS - 172_800_000),
        ("-1500ms", NOW_MS - 1500),
        ("-999999999d", 0),
    ],
)
def test_a_time_may_be_written_in_three_ways(text: str, moment_ms: int) -> None:
    assert TimestampType(NOW_MS).convert(text, None, None) == moment_ms


@pytest.mark.parametrize("text", ["", "yesterday", "-10", "10m", "2023-13-01", "9" * 16])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a time"):
        TimestampType(NOW_MS).convert(text, None, None)


def test_a_relative_time_is_counted_from_now() -> None:
    earlier = TimestampType().convert("-1h", None, None)
    assert 3_600_000 <= TimestampType().convert("-0s", None, None) - earlier < 3_660_000
