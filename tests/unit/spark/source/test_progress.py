"""Telling a group how far a query is: never at the cost of the query."""

import errno
import socket
import time
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from distributedlog.client.options import ClientOptions
from distributedlog.model.ids import TopicPartition
from distributedlog.spark.connections import ConnectedCluster
from distributedlog.spark.source.offsets import Positions
from distributedlog.spark.source.progress import CLOSE_S, TIMEOUT_MS, WAIT_S, Progress

SLACK_S = 1.0
"""The slack of a busy machine; what would be wrong takes longer."""


@pytest.fixture
def silent() -> Iterator[str]:
    """Takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def at(offset: int) -> Positions:
    return Positions({TopicPartition("orders", 0): offset}, {})


def seconds_of(*tellings: int, progress: Progress) -> float:
    began = time.monotonic()
    for offset in tellings:
        progress.report(at(offset))
    return time.monotonic() - began


def test_a_coordinator_that_is_away_holds_up_nobody(silent: str) -> None:
    assert WAIT_S + SLACK_S < TIMEOUT_MS / 1000
    progress = Progress(silent, ClientOptions(), "reports")
    assert seconds_of(1, progress=progress) < WAIT_S + SLACK_S
    assert seconds_of(*range(2, 50), progress=progress) < SLACK_S, "nobody waits behind one that waits"
    began = time.monotonic()
    progress.close()
    assert time.monotonic() - began < CLOSE_S + SLACK_S


def test_where_nobody_is_told_there_is_no_connection_and_no_wait(silent: str) -> None:
    progress = Progress(silent, ClientOptions(), "")
    assert seconds_of(*range(50), progress=progress) < SLACK_S
    progress.close()


def test_a_failure_that_nobody_thought_of_is_not_the_last_word(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It happens when there are no descriptors left for a moment."""
    tried: list[int] = []

    class Failing(ConnectedCluster):
        def run(self, work: Coroutine[Any, Any, Any]) -> Any:
            work.close()
            tried.append(1)
            raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr("distributedlog.spark.source.progress.ConnectedCluster", Failing)
    progress = Progress(silent, ClientOptions(), "reports")
    for offset in range(1, 4):
        before = len(tried)
        progress.report(at(offset))
        while thread := progress._thread:
            thread.join(SLACK_S)
        assert len(tried) > before, "it is tried again"
    progress.close()
