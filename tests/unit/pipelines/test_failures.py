"""What is told of failures.  The texts are Spark's, as it says them."""

import os
from pathlib import Path

import pytest

from distributedlog.pipelines.failures import (
    FlowFailure,
    Location,
    describe,
    describe_failures,
    describe_raised,
    in_sql,
    marked,
    parse_unresolved,
    split_flow_error,
    with_cause,
)

DOWNSTREAM = (
    "Failed to resolve flow due to upstream failure: 'spark_catalog.default.orders_per_minute'.\n"
    "Error: Failed to read dataset 'spark_catalog.default.orders'. Dataset is defined in the pipeline but"
    " could not be resolved."
)
COLUMN = (
    "Failed to resolve flow: 'spark_catalog.default.orders'.\n"
    "Error: [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `custmer`"
    " cannot be resolved. Did you mean one of the following? [`customer`, `time`]. SQLSTATE: 42703;\n"
    "'Project [order#429, 'custmer, country#431]\n+- ~Filter isnull(reason#392)\n"
    "   +- ~SubqueryAlias orders_parsed\n"
)
SQL_COLUMN = (
    "Failed to resolve flow: 'spark_catalog.default.per_minute'.\n"
    "Error: [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `contry` cannot be resolved."
    " SQLSTATE: 42703; line 3 pos 2;\n'Aggregate [country#517], ['contry]\n+- ~Filter isnotnull(time#519)\n"
)
SQL = "-- per minute\nCREATE STREAMING TABLE per_minute AS SELECT\n  contry,\n  count(*) FROM STREAM orders\n"
PARSE = (
    "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'SELEC'. SQLSTATE: 42601 (line 7, pos 0)\n\n== SQL ==\n"
    "-- one\n-- two\n-- three\n-- four\n-- five\nCREATE TABLE x AS\nSELEC\n^^^\n  country,\nFROM y\n\n\n"
    "JVM stacktrace:\norg.apache.spark.sql.catalyst.parser.ParseException\n\tat org.apache.spark.X\n"
)
PLACES = {
    "spark_catalog.default.orders": Location("transformations/orders.py", 49),
    "spark_catalog.default.per_minute": Location("transformations/minute.sql", 2),
}


def failures(*messages: str) -> list[FlowFailure]:
    found = [parse_unresolved(message) for message in messages]
    assert None not in found
    return [each for each in found if each is not None]


def test_the_cause_is_told_and_not_who_suffers_from_it() -> None:
    text = describe_failures(failures(DOWNSTREAM, COLUMN), PLACES, {})
    assert text is not None
    assert text.startswith(
        "flow orders (transformations/orders.py:49): [UNRESOLVED_COLUMN.WITH_SUGGESTION] A"
    )
    assert "`custmer` cannot be resolved. Did you mean one of the following? [`customer`, `time`]" in text
    assert "orders_per_minute" not in text
    assert "Project" not in text, "the plan is left out"
    assert text.endswith("SQLSTATE: 42703")


def test_where_only_those_downstream_are_known_they_are_told() -> None:
    assert "Failed to read dataset" in (describe_failures(failures(DOWNSTREAM), PLACES, {}) or "")
    assert describe_failures([], PLACES, {}) is None
    assert parse_unresolved("Flow x is RUNNING.") is None


def test_in_sql_the_line_and_a_mark_are_told() -> None:
    text = describe_failures(failures(SQL_COLUMN), PLACES, {"transformations/minute.sql": SQL})
    assert text is not None
    assert text.splitlines()[0].startswith("flow per_minute (transformations/minute.sql:3): [UNRESOLVED")
    assert text.splitlines()[-2:] == ["  contry,", "  ^"]


def test_of_many_causes_some_are_told() -> None:
    several = [FlowFailure(f"a.b.flow{number}", "why") for number in range(5)]
    text = (describe_failures(several, {}, {}) or "").splitlines()
    assert text == ["flow flow0: why", "flow flow1: why", "flow flow2: why", "and 2 more"]


def test_of_a_statement_that_is_no_sql_sparks_own_mark_and_the_lines_before_it_are_kept() -> None:
    reason = describe(PARSE)
    assert reason.splitlines() == [
        "[PARSE_SYNTAX_ERROR] Syntax error at or near 'SELEC'. SQLSTATE: 42601 (line 7, pos 0)",
        "== SQL ==",
        "-- four",
        "-- five",
        "CREATE TABLE x AS",
        "SELEC",
        "^^^",
    ]
    place, same = in_sql(Location("x.sql"), reason, "\n" * 9)
    assert str(place) == "x.sql:7"
    assert same == reason, "it has a mark already"
    assert in_sql(Location("x.sql"), "line 12 pos 3", "one line") == (Location("x.sql"), "line 12 pos 3")


def test_of_a_long_error_the_beginning_is_told_line_by_line() -> None:
    text = "[TABLE_NOT_FOUND] no such table\n  orders\n\nJVM stacktrace:\norg.apache.X\n at org.apache.Y"
    assert describe(RuntimeError(text)) == "[TABLE_NOT_FOUND] no such table\n  orders"
    assert describe(RuntimeError()) == "RuntimeError"
    assert len(describe(RuntimeError("x" * 10_000))) == 2_000


def test_what_is_wrapped_around_an_error_is_taken_off() -> None:
    stream = (
        "[STREAM_FAILED] Query [id = 4962-4953, runId = c699] terminated with exception: "
        "[USER_RAISED_EXCEPTION] boom SQLSTATE: P0001 SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: x"
    )
    assert describe(stream) == "[USER_RAISED_EXCEPTION] boom SQLSTATE: P0001"
    table = (
        "(org.apache.spark.sql.pipelines.graph.DatasetManager$TableMaterializationException)"
        " org.apache.spark.SparkException: [CANNOT_MERGE_INCOMPATIBLE_DATA_TYPE] Failed to merge"
    )
    assert describe(table) == "[CANNOT_MERGE_INCOMPATIBLE_DATA_TYPE] Failed to merge"


def test_of_an_error_that_came_through_java_the_last_cause_is_told() -> None:
    text = (
        "An error occurred while calling o1.getResult.\n: org.apache.spark.SparkException: Job aborted\n"
        "\tat org.apache.X\nCaused by: org.apache.Y: [USER_RAISED_EXCEPTION] 'false' is not true!\n\tat Z"
    )
    assert describe(text) == "[USER_RAISED_EXCEPTION] 'false' is not true!"


def test_of_an_error_in_a_worker_ours_is_told() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1] terminated: Traceback (most recent call last):\n"
        '  File "worker.py", line 3, in main\n'
        "distributedlog.model.errors.UnknownTopicError: there is no topic 'orders'\n"
        "\tat org.apache.spark.X\n"
    )
    assert describe(RuntimeError(text)) == "there is no topic 'orders'"


def raised(directory: Path, code: str) -> BaseException:
    path = directory / "transformations" / "orders.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(code)
    with pytest.raises((SyntaxError, NameError)) as caught:
        exec(compile(code, str(path), "exec"), {})
    return caught.value


def test_an_error_in_python_is_told_with_its_line(tmp_path: Path) -> None:
    wrong = raised(tmp_path, "def table():\n    return undefined\n\n\ntable()\n")
    text = describe_raised(wrong, str(tmp_path))
    place = os.path.join("transformations", "orders.py")
    assert text == f"{place}:2: NameError: name 'undefined' is not defined\nreturn undefined"
    wrong = raised(tmp_path, "x = 1\ny = = 3\n")
    assert describe_raised(wrong, str(tmp_path)) == f"{place}:2: SyntaxError: invalid syntax\ny = = 3\n    ^"
    assert describe_raised(ValueError("elsewhere"), str(tmp_path)) == "elsewhere"


def test_a_mark_stands_below_what_it_means() -> None:
    assert marked("  contry, x", 2, 8) == "  contry, x\n  ^^^^^^"
    assert marked("\tcontry", 1, 2) == "\tcontry\n\t^"
    assert marked("short", 9, 20) == "short\n     ^"


FAILED_STREAM = (
    " more than 0 times and will not be restarted.\nError: [STREAM_FAILED] Query [id ="
    " 3bca3cc6-657b-4507-b918-f138ae68513e, runId = e0e52dcb-176f-435d-9a5a-64b95915e46d] terminated with"
    " exception: [TASK_WRITE_FAILED] Task failed while writing rows to file:/w/orders. SQLSTATE: 58030"
)
TRACE = """\
org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/w/orders.
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailed(QueryExecutionErrors.scala:1)
Caused by: org.apache.parquet.util.AutoCloseables$ParquetCloseResourceException: Unable to close resource
\tat org.apache.parquet.util.AutoCloseables.uncheckedClose(AutoCloseables.java:85)
Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device
\tat org.apache.hadoop.fs.RawLocalFileSystem$LocalFSFileOutputStream.write(RawLocalFileSystem.java:1)
"""


def test_a_flow_that_failed_while_it_ran_is_told_with_its_cause() -> None:
    error, stream = split_flow_error(FAILED_STREAM)
    assert stream == "3bca3cc6-657b-4507-b918-f138ae68513e"
    reason = describe(error)
    assert reason == "[TASK_WRITE_FAILED] Task failed while writing rows to file:/w/orders. SQLSTATE: 58030"
    assert with_cause(reason, TRACE) == f"{reason} (the cause: No space left on device)"


def test_a_cause_that_is_said_already_or_says_nothing_is_left_out() -> None:
    assert with_cause("no room: No space left on device", TRACE) == "no room: No space left on device"
    for trace in (None, "", "Caused by: PythonException: Traceback (most recent call last):", "at java"):
        assert with_cause("it failed", trace) == "it failed"
    classed = "Caused by: org.apache.spark.SparkRuntimeException: [DIVIDE_BY_ZERO] Division by zero."
    assert with_cause("[DIVIDE_BY_ZERO] Division by zero", classed) == "[DIVIDE_BY_ZERO] Division by zero"


@pytest.mark.parametrize("text", ["", ".", " Error: x", "x"])
def test_what_has_no_stream_has_none(text: str) -> None:
    assert split_flow_error(text)[1] is None
