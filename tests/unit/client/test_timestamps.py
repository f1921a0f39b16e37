"""Times as people write them."""

import pytest

from distributedlog.client.timestamps import TimestampSpec, is_relative, parse_duration_ms, parse_timestamp
from distributedlog.model.errors import ConfigError

NOW_MS = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("0", 0),
        (" 1769860800000 ", 1_769_860_800_000),
        ("-500ms", NOW_MS - 500),
        ("-10m", NOW_MS - 600_000),
        ("-2 h", NOW_MS - 7_200_000),
        ("-1000d", 0),
        ("1970-01-02", 86_400_000),
        ("1970-01-01T00:00:01", 1_000),
        ("1970-01-01T01:00:01+01:00", 1_000),
    ],
)
def test_a_time_is_read(text: str, at_ms: int) -> None:
    assert parse_timestamp(text, "x").at(NOW_MS) == at_ms


@pytest.mark.parametrize("text", ["", "soon", "-10", "-10x", "10m", "1.5", "9" * 20, "-", "--1m"])
def test_what_is_no_time_is_said_with_the_name_of_the_option(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^startingTimestamp is .* which is no time"):
        parse_timestamp(text, "startingTimestamp")


def test_only_so_long_ago_is_relative() -> None:
    assert is_relative("-10m")
    assert not is_relative("10m")
    assert parse_timestamp("-10m", "x") == TimestampSpec(600_000, is_ago=True)


@pytest.mark.parametrize(
    ("text", "length_ms"),
    [("15m", 900_000), ("30S", 30_000), ("500", 500), ("1 min", 60_000), ("2d", 172_800_000)],
)
def test_a_time_span_is_read(text: str, length_ms: int) -> None:
    assert parse_duration_ms(text, "x") == length_ms


@pytest.mark.parametrize("text", ["", "m", "-5m", "1y", "five"])
def test_what_is_no_time_span_is_said(text: str) -> None:
    with pytest.raises(ConfigError, match=r"maxTriggerDelay is .* no time span"):
        parse_duration_ms(text, "maxTriggerDelay")
