"""Who a task is, from what Spark tells it."""

import pytest

from distributedlog.model.errors import ConfigError, InvalidTransactionStateError
from distributedlog.spark.sink.attempts import (
    BATCH_PROPERTY,
    QUERY_PROPERTY,
    STREAM_SETTINGS,
    Attempt,
    find_attempt,
)
from tests.unit.spark.sink.fake_task import FakeTask

STREAMING = {QUERY_PROPERTY: "q", BATCH_PROPERTY: "7", "sql.streaming.runId": "r"}
OF_A_POOL = dict.fromkeys(STREAM_SETTINGS, "false")


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


def test_a_write_of_another_thread_than_the_querys_has_to_say_its_batch() -> None:
    with pytest.raises(ConfigError, match=r"give the option batchId.*or start the thread with"):
        find_attempt(FakeTask(OF_A_POOL), 5, "w", is_stream=False)
    with pytest.raises(ConfigError, match="inside foreachBatch needs the option writeId"):
        find_attempt(FakeTask(OF_A_POOL), 5, None, is_stream=False)
    inherited = find_attempt(FakeTask(OF_A_POOL | STREAMING), 5, "w", is_stream=False)
    assert (inherited.query_id, inherited.batch_id) == ("q/w", 7)


@pytest.mark.parametrize("told", [{}, OF_A_POOL, STREAMING, OF_A_POOL | STREAMING])
def test_a_batch_id_is_the_same_in_every_thread(told: dict[str, str]) -> None:
    found = find_attempt(FakeTask(told), 5, "w", 7, is_stream=False)
    assert found == Attempt("write/w", 5, 7, "3-1-42")


def test_a_batch_id_that_is_not_the_querys_is_refused() -> None:
    with pytest.raises(ConfigError, match="batchId is 8, and this is batch 7 of its query"):
        find_attempt(FakeTask(STREAMING), 5, "w", 8, is_stream=False)


def test_a_batch_write_is_named_by_its_write_id_and_else_by_nothing_that_comes_again() -> None:
    named = [find_attempt(FakeTask(), token, "w", is_stream=False) for token in (5, 6)]
    assert {(each.query_id, each.batch_id) for each in named} == {("write/w", 0)}
    unnamed = [find_attempt(FakeTask(), token, None, is_stream=False) for token in (5, 6)]
    assert len({each.query_id for each in unnamed}) == 2
    assert not any(each.query_id.startswith("write/") for each in unnamed)


def test_a_stream_whose_task_is_told_nothing_is_refused() -> None:
    with pytest.raises(InvalidTransactionStateError, match="does not tell"):
        find_attempt(FakeTask(), 5, None, is_stream=True)
