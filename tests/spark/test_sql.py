"""`dlog sql`: topics as tables.  The command's own function runs here, in the session the tests share."""

import json
import logging
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from pyspark.logger import PySparkLogger

from distributedlog.cli.sql.asking import Asker
from distributedlog.cli.sql.command import sql
from distributedlog.pipelines.tables import save_tables
from distributedlog.spark.session.session import LOGGERS_OF_EXCEPTIONS
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
    name = topics.create("sql-growing")
    topics.produce(name, [b"1", b"2"])
    query = f"SELECT count(*) AS n FROM `{name}`"
    asker = Asker(topics.bootstrap, 30.0, {})
    frame = asker.answer(spark, query, asker.ends_of_named(query))
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


def test_answers_are_csv(spark: "SparkSession", topics: Topics) -> None:
    name = topics.create("sql-csv")
    topics.send(name, key=b"a,b", value=b'say "hi"', timestamp=1_700_000_000_123, headers=[("h", b"1")])
    topics.flush()
    told = ask(topics, f"SELECT key, value, timestamp, headers FROM `{name}`", "-o", "csv")
    assert told.splitlines() == [
        "key,value,timestamp,headers",
        '"a,b","say ""hi""",2023-11-14T22:13:20.123Z,"[{""key"": ""h"", ""value"": ""1""}]"',
    ]


def test_a_name_that_is_a_table_and_a_topic_is_the_table_and_that_is_said(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    name = "sql_both"
    topics.create_named(name)
    topics.produce(name, [b"from the topic"])
    project = make_pipeline(spark, tmp_path / "a shop", name)
    query = f"SELECT t.value AS t, p.value AS p FROM {name} p, topic.{name} t"
    done = CliRunner().invoke(
        sql, [query, "-o", "json", "--pipeline", str(project), "-b", topics.bootstrap], catch_exceptions=False
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"t": "from the topic", "p": "from the table"}
    ]
    assert f"{name} is the pipeline's table; the topic of that name is topic.{name}" in done.stderr
    # Without the pipeline the name is the topic's again; and who reads a pipeline's tables only reads.
    spark.sql(f"DROP VIEW {name}")
    assert rows(topics, f"SELECT value FROM {name}") == [{"value": "from the topic"}]
    refused = ask(topics, f"INSERT INTO default.{name} VALUES ('x')", "--pipeline", project, expected=2)
    assert "INSERT: dlog sql asks, and changes no tables" in refused


def make_pipeline(spark: "SparkSession", project: Path, table: str) -> Path:
    """A project with a table, as a run leaves it."""
    state = project / ".dlog"
    state.mkdir(parents=True)
    (project / "spark-pipeline.yml").write_text("name: shop\nstorage: file:///nowhere\nlibraries: []\n")
    files = state / "warehouse" / table
    spark.sql(f"CREATE TABLE {table} (value STRING) USING parquet LOCATION '{files}'")
    spark.sql(f"INSERT INTO {table} VALUES ('from the table')")
    save_tables(spark, str(state))
    spark.sql(f"DROP TABLE {table}")  # its files stay
    return project


def test_statements_are_read_from_stdin(spark: "SparkSession", topics: Topics) -> None:
    text = "SELECT 1 AS one; -- and\nSELECT ';' AS\n two"
    done = CliRunner().invoke(sql, ["-o", "csv", "-b", topics.bootstrap], input=text, catch_exceptions=False)
    assert (done.exit_code, done.stdout) == (0, "one\n1\ntwo\n;\n")
    text = "SELECT 1 AS one; SELEC 2; SELECT 3 AS three"
    done = CliRunner().invoke(sql, ["-o", "csv", "-b", topics.bootstrap], input=text, catch_exceptions=False)
    assert (done.exit_code, done.stdout) == (2, "one\n1\n")


def test_on_a_terminal_one_session_answers_again_and_again(topics: Topics, tmp_path: Path) -> None:
    """A process of its own: what Spark's workers say goes to its stderr, which is the terminal."""
    name = topics.create("sql_typed")
    topics.produce(name, [b"%d" % number + b"x" * 100 for number in range(50_000)])
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "distributedlog.cli.main", "sql", "-b", topics.bootstrap, "-o", "csv"]
    environment = {**os.environ, "TERM": "dumb", "XDG_STATE_HOME": str(tmp_path)}
    running = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    terminal = Terminal(ours)
    try:
        terminal.until("dlog> ")
        terminal.say(f"SELECT count(*) AS n\nFROM `{name}`;")
        assert "50000" in terminal.until("1 row, ")
        topics.produce(name, [b"one more"])
        terminal.say(f"SELECT count(*) AS n FROM `{name}`;")
        assert "50001" in terminal.until("1 row, ")
        terminal.say("SELEC 1;")
        assert "\\n" not in terminal.until("\r\n^^^")  # Spark's mark, in a line of its own
        terminal.say("SELECT * FROM nowhere;")
        terminal.until("it names no topic that is there")
        terminal.say(f"SELECT substr(value, 1, 2) AS v FROM `{name}` LIMIT 3;")
        assert "2x" in terminal.until(" rows, ")
        terminal.say("exit")
        rest = terminal.until(None)
        assert running.wait(60) == 0
    finally:
        running.kill()
        running.wait()
        os.close(ours)
    assert "Traceback" not in terminal.seen + rest
    assert "nowhere" in (tmp_path / "distributedlog" / "sql_history").read_text()


class Terminal:
    """The one at whose other end a program runs."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.seen = ""
        self._unread = ""

    def say(self, text: str) -> None:
        os.write(self._descriptor, text.encode() + b"\n")

    def until(self, what: str | None) -> str:
        """What is shown up to this, or up to the program's end."""
        while what is None or what not in self._unread:
            assert select.select([self._descriptor], [], [], 120)[0], self.seen
            try:
                piece = os.read(self._descriptor, 65_536).decode()
            except OSError:  # nobody is at the other end any more
                assert what is None, self.seen
                return self._unread
            self.seen += piece
            self._unread += piece
        shown, _, self._unread = self._unread.partition(what)
        return shown


def test_a_table_is_cut_and_says_so(spark: "SparkSession", topics: Topics) -> None:
    done = CliRunner().invoke(
        sql, ["SELECT * FROM range(120)", "-b", topics.bootstrap], catch_exceptions=False
    )
    assert len(done.stdout.splitlines()) == 101
    assert "more than 100 rows" in done.stderr
    assert len(ask(topics, "SELECT * FROM range(120)", "--limit", 0).splitlines()) == 121
    assert ask(topics, "SELECT 1 AS one WHERE false") == "one\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("SELECT * FROM nowhere",), 1, "it names no topic that is there"),
        (("SELEC 1",), 2, "PARSE_SYNTAX_ERROR"),
        (("SELECT assert_true(false)",), 1, "Error: [USER_RAISED_EXCEPTION] 'false' is not true!"),
        (("SELECT 1 AS a, 2 AS a", "-o", "json"), 2, "two columns are called a"),
        (("SELECT 1", "-o", "parquet"), 2, "--to DIR"),
        (("-o", "parquet", "--to", "x"), 2, "for one query"),
        (("SELECT 1", "--to", "x"), 2, "--to DIR"),
        (("SELECT 1", "--option", "x"), 2, "KEY=VALUE"),
    ],
)
def test_what_is_wrong_is_said(
    spark: "SparkSession", topics: Topics, arguments: tuple[str, ...], code: int, message: str
) -> None:
    assert message in ask(topics, *arguments, expected=code)


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
