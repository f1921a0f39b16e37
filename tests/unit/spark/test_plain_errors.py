"""What Spark shows of an error: it formats the exception, and that text is its message."""

import logging
import traceback

import pytest

from distributedlog.model.errors import BrokerUnreachableError, ConfigError, DlogError
from distributedlog.spark.datasource import DlogDataSource
from distributedlog.spark.plain_errors import told_plainly


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
