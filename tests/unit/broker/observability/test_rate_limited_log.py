"""A peer that misbehaves a million times fills no disk."""

import logging

import pytest

from distributedlog.broker.observability.rate_limited_log import (
    INTERVAL_MS,
    LINES_MAX,
    REASON_LENGTH_MAX,
    REMEMBERED_MAX,
    RateLimitedLog,
)
from tests.simulation.clock import ManualClock

LOGGER = logging.getLogger("tests.limited_log")


def test_a_peer_is_told_of_once_in_a_while_with_what_was_left_out(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    limited_log = RateLimitedLog(LOGGER, clock)
    assert limited_log.warn("10.0.0.1", "bad request", "first")
    assert not limited_log.warn("10.0.0.1", "bad request", "second")
    assert not limited_log.warn("10.0.0.1", "bad request", "third")
    assert limited_log.warn("10.0.0.2", "bad request", "another peer")
    assert limited_log.warn("10.0.0.1", "slow reader", "another kind")
    clock.advance(INTERVAL_MS)
    assert limited_log.warn("10.0.0.1", "bad request", "fourth")
    told = [record.getMessage() for record in caplog.records]
    assert told[0] == "10.0.0.1: bad request: first"
    assert told[-1] == "10.0.0.1: bad request: fourth (2 more of the kind since the last time)"
    assert len(told) == 4


def test_what_is_remembered_and_what_is_written_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    limited_log = RateLimitedLog(LOGGER, clock)
    for number in range(REMEMBERED_MAX + 10):
        clock.advance(INTERVAL_MS // LINES_MAX + 1)
        assert limited_log.warn(f"host {number}", "bad request", "x" * 10_000)
    assert len(limited_log._seen) == REMEMBERED_MAX
    assert max(len(record.getMessage()) for record in caplog.records) < REASON_LENGTH_MAX + 100


def test_many_addresses_are_not_many_lines(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    limited_log = RateLimitedLog(LOGGER, clock)
    told = [limited_log.warn(f"host {number}", "bad request", "x") for number in range(LINES_MAX + 50)]
    assert told.count(True) == len(caplog.records) == LINES_MAX
    clock.advance(INTERVAL_MS)
    assert limited_log.warn("one more", "bad request", "x")
    assert caplog.records[-1].getMessage().endswith("(50 lines about other addresses were left out)")
    assert limited_log.warn("and one more", "bad request", "x")
    assert "left out" not in caplog.records[-1].getMessage()
