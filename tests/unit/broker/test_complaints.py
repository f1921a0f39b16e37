"""A peer that misbehaves a million times fills no disk."""

import logging

import pytest

from distributedlog.broker.complaints import (
    INTERVAL_MS,
    LINES_MAX,
    REASON_LENGTH_MAX,
    REMEMBERED_MAX,
    Complaints,
)
from tests.simulation.clock import ManualClock

LOGGER = logging.getLogger("tests.complaints")


def test_a_peer_is_told_of_once_in_a_while_with_what_was_left_out(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    complaints = Complaints(LOGGER, clock)
    assert complaints.about("10.0.0.1", "bad request", "first")
    assert not complaints.about("10.0.0.1", "bad request", "second")
    assert not complaints.about("10.0.0.1", "bad request", "third")
    assert complaints.about("10.0.0.2", "bad request", "another peer")
    assert complaints.about("10.0.0.1", "slow reader", "another kind")
    clock.advance(INTERVAL_MS)
    assert complaints.about("10.0.0.1", "bad request", "fourth")
    told = [record.getMessage() for record in caplog.records]
    assert told[0] == "10.0.0.1: bad request: first"
    assert told[-1] == "10.0.0.1: bad request: fourth (2 more of the kind since the last time)"
    assert len(told) == 4


def test_what_is_remembered_and_what_is_written_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    complaints = Complaints(LOGGER, clock)
    for number in range(REMEMBERED_MAX + 10):
        clock.advance(INTERVAL_MS // LINES_MAX + 1)
        assert complaints.about(f"host {number}", "bad request", "x" * 10_000)
    assert len(complaints._seen) == REMEMBERED_MAX
    assert max(len(record.getMessage()) for record in caplog.records) < REASON_LENGTH_MAX + 100


def test_many_addresses_are_not_many_lines(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    complaints = Complaints(LOGGER, clock)
    told = [complaints.about(f"host {number}", "bad request", "x") for number in range(LINES_MAX + 50)]
    assert told.count(True) == len(caplog.records) == LINES_MAX
    clock.advance(INTERVAL_MS)
    assert complaints.about("one more", "bad request", "x")
    assert caplog.records[-1].getMessage().endswith("(50 complaints about other addresses were left out)")
    assert complaints.about("and one more", "bad request", "x")
    assert "left out" not in caplog.records[-1].getMessage()
