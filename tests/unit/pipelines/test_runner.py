"""The parts of a run that need no Spark; the runs themselves are in tests/spark/test_pipelines.py."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkValueError

from distributedlog.pipelines.runner import messages_of

ACCUMULATOR = "PlanObserved(name=__python_accumulator__, metrics={})"


def event(message: str) -> dict[str, Any]:
    return {"pipeline_event_result": SimpleNamespace(event=SimpleNamespace(message=message))}


def ending_with(error: Exception | None) -> Iterator[dict[str, Any]]:
    yield {"pipeline_command_result": None}
    yield event("Flow a.b.c is RUNNING.")
    yield event("Run is COMPLETED.")
    if error is not None:
        raise error


def unknown(response: str) -> PySparkValueError:
    return PySparkValueError(errorClass="UNKNOWN_RESPONSE", messageParameters={"response": response})


def test_the_one_error_that_is_none_ends_the_messages() -> None:
    expected = ["Flow a.b.c is RUNNING.", "Run is COMPLETED."]
    assert list(messages_of(ending_with(None))) == expected
    assert list(messages_of(ending_with(unknown(ACCUMULATOR)))) == expected


@pytest.mark.parametrize("error", [unknown("something else"), RuntimeError("lost"), ValueError(ACCUMULATOR)])
def test_every_other_error_is_one(error: Exception) -> None:
    with pytest.raises(type(error)):
        list(messages_of(ending_with(error)))
