"""`dlog sql`: topics as tables.  The command's own function runs here, in the session the tests share."""

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from pyspark.logger import PySparkLogger

from distributedlog.cli.sql import sql
from distributedlog.spark.session import LOGGERS_OF_EXCEPTIONS
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ask(topics: Topics, *arguments: object, expected: int = 0) -> str:
    """What it prints on stdout."""
    given = [str(argument) for argument in arguments]
    done = CliRunner().invoke(sql, [*given, "-b", topics.bootstrap], catch_exceptions=False)
    assert done.exit_code == expected, done.output
    return done.stdout if expected == 0 else done.stderr


def rows(topics: Topics, query: str) -> list[Any]:
    return [json.loads(line) for line in ask(topics, query, "-o", "json").splitlines()]


def test_topics_are_tables_and_values_are_text_where_they_are_that(
    spark: "SparkSession", topics: Topics
) -> None:
    name = topics.create("sql.words-eu", partitions=2)
    topics.send(name, key=b"a", value="grüß".encode(), partition=0, headers=[("h", b"1")])
    topics.send(name, key=None, value=b"\xff\x01", partition=1)
    topics.send(name, key=b"c", value=None, partition=1)
    topics.flush()
    query = f"SELECT * FROM `{name}` ORDER BY partition, offset"
    found = rows(topics, query)
    assert [(row["key"], row["value"], row["value_bytes"]) for row in found] == [
        ("a", "grüß", "grüß"),
        (None, "0xff01", "/wE="),
        ("c", None, None),
    ]
    assert found[0]["headers"] == [{"key": "h", "value": "1"}]
    assert [(row["topic"], row["partition"], row["offset"]) for row in found] == [
        (name, 0, 0),
        (name, 1, 0),
        (name, 1, 1),
    ]
    table = ask(topics, query)
    assert table.splitlines()[0].split() == [
        "key", "value", "topic", "partition", "offset", "timestamp", "headers", "key_bytes", "value_bytes",
    ]  # fmt: skip
    assert len(table.splitlines()) == 4


def test_two_topics_are_joined_and_json_is_taken_apart(spark: "SparkSession", topics: Topics) -> None:
    orders, countries = topics.create("sql-orders"), topics.create("sql-countries")
    topics.produce(
        orders, (json.dumps({"country": "NO" if n % 2 else "PT", "cents": n}).encode() for n in range(10))
    )
    topics.send(countries, key=b"NO", value=b"Norway")
    topics.flush()
    found = rows(
        topics,
        f"SELECT c.value AS name, sum(parse_json(o.value):cents::bigint) AS cents FROM `{orders}` o "
        f"JOIN `{countries}` c ON c.key = parse_json(o.value):country::string GROUP BY 1",
    )
    assert found == [{"name": "Norway", "cents": 25}]


def test_a_query_ends_where_the_topics_ended_when_it_began(spark: "SparkSession", topics: Topics) -> None:
    from distributedlog.cli.sql import answer, ends_of_named

    name = topics.create("sql-growing")
    topics.produce(name, [b"1", b"2"])
    query = f"SELECT count(*) AS n FROM `{name}`"
    ends = ends_of_named(query, topics.bootstrap, 30.0)
    frame = answer(spark, query, topics.bootstrap, ends, {})
    topics.produce(name, [b"3"])
    assert frame.collect()[0]["n"] == 2


def test_answers_go_to_parquet(spark: "SparkSession", topics: Topics, tmp_path: Path) -> None:
    name = topics.create("sql-parquet")
    topics.produce(name, [b"%d" % n for n in range(100)])
    place = tmp_path / "out dir"
    ask(topics, f"SELECT value::int AS n FROM `{name}`", "-o", "parquet", "--to", place)
    assert sorted(row["n"] for row in spark.read.parquet(str(place)).collect()) == list(range(100))
    refused = ask(topics, "SELECT 1", "-o", "parquet", "--to", place, expected=1)
    assert "is there already" in refused


def test_a_table_is_cut_and_says_so(spark: "SparkSession", topics: Topics) -> None:
    done = CliRunner().invoke(
        sql, ["SELECT * FROM range(120)", "-b", topics.bootstrap], catch_exceptions=False
    )
    assert len(done.stdout.splitlines()) == 101
    assert "more than 100 rows" in done.stderr
    assert len(ask(topics, "SELECT * FROM range(120)", "--limit", 0).splitlines()) == 121
    assert ask(topics, "SELECT 1 AS one WHERE false") == "one\n"


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (("SELECT * FROM nowhere",), 1, "it names no topic that is there"),
        (("SELEC 1",), 2, "PARSE_SYNTAX_ERROR"),
        (("SELECT assert_true(false)",), 1, "Error: [USER_RAISED_EXCEPTION] 'false' is not true!"),
        (("SELECT 1 AS a, 2 AS a", "-o", "json"), 2, "two columns are called a"),
        (("SELECT 1", "-o", "parquet"), 2, "--to DIR"),
        (("SELECT 1", "--to", "x"), 2, "--to DIR"),
        (("SELECT 1", "--option", "x"), 2, "KEY=VALUE"),
    ],
)
def test_what_is_wrong_is_said(
    spark: "SparkSession", topics: Topics, arguments: tuple[str, ...], code: int, complaint: str
) -> None:
    assert complaint in ask(topics, *arguments, expected=code)


@pytest.mark.parametrize("name", LOGGERS_OF_EXCEPTIONS)
def test_what_is_wrong_is_not_said_a_second_time_by_pyspark(spark: "SparkSession", name: str) -> None:
    """It would be the stack of Java in one line, before ours."""
    assert not PySparkLogger.getLogger(name).isEnabledFor(logging.CRITICAL)


def test_without_a_cluster_nothing_is_started(topics: Topics) -> None:
    done = CliRunner().invoke(
        sql, ["SELECT 1", "-b", "127.0.0.1:1", "--timeout", "2"], catch_exceptions=False
    )
    assert done.exit_code == 3
    assert "dlog dev" in done.output
