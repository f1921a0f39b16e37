"""Timeouts and pauses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.client.options import TIMEOUT_MS_MAX, ClientOptions
from distributedlog.model.errors import ConfigError


@pytest.mark.parametrize(
    "name", ["connect_timeout_ms", "call_timeout_ms", "retry_pause_ms", "frame_bytes_max"]
)
@pytest.mark.parametrize("value", [0, -1, TIMEOUT_MS_MAX + 1])
def test_an_impossible_option_is_named(name: str, value: int) -> None:
    with pytest.raises(ConfigError, match=name):
        ClientOptions(**{name: value})  # type: ignore[arg-type]


def test_pauses_double_up_to_the_largest() -> None:
    options = ClientOptions(retry_pause_ms=100, retry_pause_ms_max=1000)
    middles = [sum(options.pause_ms_range(attempt)) // 2 for attempt in range(1, 7)]
    assert middles == [100, 200, 400, 800, 1000, 1000]


@given(st.integers(1, 10_000), st.integers(1, 10_000), st.integers(0, 10**9))
def test_a_pause_is_never_none_and_never_past_the_largest(pause: int, largest: int, attempt: int) -> None:
    low, high = ClientOptions(retry_pause_ms=pause, retry_pause_ms_max=largest).pause_ms_range(attempt)
    assert 1 <= low <= high <= largest * 1.2
    assert low < high or high < 5
