"""Who a task is, from what Spark tells it."""

import pytest

from distributedlog.model.errors import ConfigError, InvalidTransactionStateError
from distributedlog.spark.sink.attempts import BATCH_PROPERTY, QUERY_PROPERTY, Attempt, find_attempt
from tests.unit.spark.sink.fake_task import FakeTask

STREAMING = {QUERY_PROPERTY: "q", BATCH_PROPERTY: "7", "sql.streaming.runId": "r"}


def test_a_streams_task_is_of_its_query_and_micro_batch() -> None:
    found = find_attempt(FakeTask(STREAMING), 5, None, is_stream=True)
    assert found == Attempt("q", 5, 7, "3-1-42")


def test_two_attempts_of_a_task_are_two() -> None:
    tasks = [FakeTask(STREAMING, number=number, attempt=40 + number) for number in range(2)]
    assert len({find_attempt(task, 5, None, is_stream=True) for task in tasks}) == 2


def test_writes_inside_foreach_batch_are_told_apart_by_their_write_id() -> None:
    found = [find_attempt(FakeTask(STREAMING), 5, name, is_stream=False) for name in ("a", "b")]
    assert [(each.query_id, each.batch_id) for each in found] == [("q/a", 7), ("q/b", 7)]
    with pytest.raises(ConfigError, match="inside foreachBatch needs the option writeId"):
        find_attempt(FakeTask(STREAMING), 5, None, is_stream=False)


def test_a_batch_write_is_named_by_its_write_id_and_else_by_nothing_that_comes_again() -> None:
    named = [find_attempt(FakeTask(), token, "w", is_stream=False) for token in (5, 6)]
    assert {(each.query_id, each.batch_id) for each in named} == {("write/w", 0)}
    unnamed = [find_attempt(FakeTask(), token, None, is_stream=False) for token in (5, 6)]
    assert len({each.query_id for each in unnamed}) == 2
    assert not any(each.query_id.startswith("write/") for each in unnamed)


def test_a_stream_whose_task_is_told_nothing_is_refused() -> None:
    with pytest.raises(InvalidTransactionStateError, match="does not tell"):
        find_attempt(FakeTask(), 5, None, is_stream=True)
