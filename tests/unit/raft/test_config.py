"""Limits that contradict each other are refused where they are written."""

import pytest

from distributedlog.model.errors import ConfigError
from distributedlog.raft import RaftConfig


@pytest.mark.parametrize("name", ["election_timeout_ms", "append_entries_max", "inflight_appends_max"])
def test_a_limit_of_zero_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        RaftConfig(**{name: 0})


def test_heartbeats_must_be_frequent_enough_that_one_may_be_lost() -> None:
    with pytest.raises(ConfigError, match="at least two must fit"):
        RaftConfig(election_timeout_ms=1000, heartbeat_ms=501)


def test_the_largest_entry_must_be_proposable() -> None:
    with pytest.raises(ConfigError, match="entry_bytes_max"):
        RaftConfig(entry_bytes_max=100, uncommitted_bytes_max=99)
