"""What Spark shows of an error: it formats the exception, and that text is its message."""

import logging
import traceback
from collections.abc import Iterator

import pytest

from distributedlog.model.errors import BrokerUnreachableError, ConfigError, DlogError
from distributedlog.spark.datasource import DlogDataSource
from distributedlog.spark.plain_errors import rows_told_plainly, told_plainly
from distributedlog.spark.source.fetching import Task


def shown(error: BaseException) -> list[str]:
    return "".join(traceback.format_exception(error)).splitlines()


@told_plainly
def refuse(kind: type[Exception]) -> None:
    try:
        raise OSError("below")
    except OSError as error:
        raise kind("what is wrong") from error


def test_an_error_of_ours_is_told_without_its_way(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "distributedlog.spark"), pytest.raises(DlogError) as raised:
        refuse(BrokerUnreachableError)
    lines = shown(raised.value.with_traceback(raised.tb.tb_next))  # as Spark's worker sees it
    assert lines[-1] == "distributedlog.model.errors.BrokerUnreachableError: what is wrong"
    assert not any("refuse" in line or "below" in line for line in lines)
    assert "below" in caplog.text  # for whoever looks for it


def test_a_mistake_of_ours_keeps_its_way() -> None:
    with pytest.raises(TypeError) as raised:
        refuse(TypeError)
    assert any("in refuse" in line for line in shown(raised.value))
    assert any("below" in line for line in shown(raised.value))


@rows_told_plainly
def rows_then_refuse(kind: type[Exception], closed: list[str]) -> Iterator[int]:
    try:
        yield 1
        refuse(kind)
    finally:
        closed.append("closed")


def test_what_fails_while_rows_are_taken_is_told_without_its_way() -> None:
    rows = rows_then_refuse(BrokerUnreachableError, [])
    assert next(rows) == 1
    with pytest.raises(DlogError) as raised:
        next(rows)
    lines = shown(raised.value.with_traceback(raised.tb.tb_next))
    assert lines[-1] == "distributedlog.model.errors.BrokerUnreachableError: what is wrong"
    assert not any("refuse(" in line or "below" in line for line in lines)
    with pytest.raises(TypeError) as mistake:
        list(rows_then_refuse(TypeError, []))
    assert any("below" in line for line in shown(mistake.value))


def test_rows_that_are_no_longer_wanted_are_ended() -> None:
    closed: list[str] = []
    rows = rows_then_refuse(TypeError, closed)
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    assert closed == ["closed"]


def test_a_task_that_cannot_read_says_so_in_few_lines() -> None:
    """`read` is a generator: what it raises comes while Spark takes the rows."""
    where = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "50"}
    options = {**where, "subscribe": "a", "kafkaConsumer.pollTimeoutMs": "1"}
    source = DlogDataSource(options)
    for reader in (source.reader(source.schema()), source.streamReader(source.schema())):
        with pytest.raises(DlogError) as raised:
            list(reader.read(Task("a", 0, 0, 9)))
        lines = shown(raised.value.with_traceback(raised.tb.tb_next))
        assert len(lines) <= 6, lines  # "Traceback", the place and the reader, their lines, the message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "a", "kafka.bootstrap.server": "b:1"}, "did you mean kafka.bootstrap.servers?"),
        ({"subscribe": "a"}, "kafka.bootstrap.servers is missing"),
    ],
)
def test_a_wrong_option_is_told_in_few_lines(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        DlogDataSource(options).schema()
    lines = shown(raised.value.with_traceback(raised.tb.tb_next))
    assert message in lines[-1]
    assert len(lines) <= 4  # "Traceback", the place, its line, the message
