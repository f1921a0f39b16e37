"""A query's answer: the cluster and Spark asked, and what goes wrong in words.

Before a query is given to Spark, the topics it names are looked up, and views are made of them that end where
the topics end now; a pipeline's tables are views too.  One name may be both: then it is the table's, which
`--pipeline` asks for, and that is said; the topic is `topic.NAME`, which it always is as well.
"""

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from distributedlog.cli.output import warn
from distributedlog.cli.sql.answers import NoQueryError
from distributedlog.cli.sql.statements import find_change

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from distributedlog.client.admin.blocking import BlockingAdmin
    from distributedlog.pipelines.tables import TableReader

Ends = Mapping[str, Mapping[int, int]]
"""Topic → partition → where it ends."""


class QueryError(click.ClickException):
    """Spark could not answer it."""

    exit_code = 1


class Asker:
    """Knows where to ask; the session is handed over when it is there."""

    def __init__(
        self, bootstrap: str, timeout_seconds: float, options: Mapping[str, str], project: str | None = None
    ) -> None:
        self._bootstrap = bootstrap
        self._timeout_seconds = timeout_seconds
        self._options = dict(options)
        self._tables = None if project is None else _tables_of(project)
        self._announced: set[str] = set()

    def _admin(self) -> "BlockingAdmin":
        from distributedlog.client.admin.blocking import BlockingAdmin
        from distributedlog.client.options import ClientOptions

        timeout_ms = max(1, int(self._timeout_seconds * 1000))
        options = ClientOptions(
            connect_timeout_ms=min(timeout_ms, ClientOptions().connect_timeout_ms),
            request_timeout_ms=timeout_ms,
            call_timeout_ms=timeout_ms,
        )
        return BlockingAdmin(self._bootstrap, options)

    def topics(self) -> list[str]:
        with self._admin() as admin:
            return sorted(topic.name for topic in admin.list_topics())

    def ends_of_named(self, query: str) -> Ends:
        """Returns the ends of the topics that the query may mean."""
        from distributedlog.spark.topic_views import named_topics

        with self._admin() as admin:
            topics = {topic.name: topic for topic in admin.list_topics(with_internal=True)}
            named = named_topics(query, topics)
            ends: dict[str, dict[int, int]] = {name: {} for name in named}
            for place, found in admin.offset_ranges([topics[name] for name in named]).items():
                ends[place.topic][place.partition] = found.end
        return ends

    def answer(self, spark: "SparkSession", query: str, ends: Ends) -> "DataFrame":
        """Returns what Spark makes of it; rows come when they are asked for."""
        from distributedlog.spark.topic_views import make_view, words_of

        change = find_change(query)
        if change is not None:
            raise click.UsageError(
                f"{change}: dlog sql asks, and changes no tables; those of a pipeline are made by "
                "`dlog pipeline run` and removed by `dlog pipeline reset`"
            )
        words = {word.lower() for word in words_of(query)}
        plain = {word.lower() for word in words_of(query, behind_dots=False)}
        tables = self._tables.refresh(spark, words) if self._tables is not None else set()
        for topic, partitions in ends.items():
            is_table = topic.lower() in tables
            make_view(
                spark, self._bootstrap, topic, partitions, self._options, is_plain_name_free=not is_table
            )
            if is_table and topic.lower() in plain:
                self._say_which(spark, topic)
        return spark.sql(query)

    def _say_which(self, spark: "SparkSession", topic: str) -> None:
        """Says which topic is meant, once for each name."""
        from distributedlog.spark.topic_views import TOPICS_DATABASE_KEY

        if topic not in self._announced:
            self._announced.add(topic)
            database = spark.conf.get(TOPICS_DATABASE_KEY)
            warn(f"{topic} is the pipeline's table; the topic of that name is {database}.{topic}")

    def warm_up(self, spark: "SparkSession") -> None:
        """Starts the processes that a query needs, and loads what it uses, with a read of no topic at all."""
        from distributedlog.spark.topic_views import with_text

        frame = (
            spark.read.format("dlog")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("subscribePattern", "^$")
            .option("includeHeaders", "true")
            .load()
        )
        with_text(frame).groupBy("partition").count().count()
        list(with_text(frame).where("offset >= 0").limit(1).toLocalIterator())


def _tables_of(project: str) -> "TableReader":
    from distributedlog.pipelines.project import find_project
    from distributedlog.pipelines.tables import TableReader

    return TableReader(find_project(project).state_directory)


@contextlib.contextmanager
def spark_session(master: str | None) -> Iterator["SparkSession"]:
    """Starts a session, which is ended afterwards unless it was there before."""
    from distributedlog.spark.session.session import QUICK_START, close, session
    from distributedlog.spark.topic_views import TOPICS_DATABASE, TOPICS_DATABASE_KEY

    was_there = _is_there()
    config = {**QUICK_START, TOPICS_DATABASE_KEY: TOPICS_DATABASE}
    spark = session("dlog sql", master=master, config=config)
    try:
        yield spark
    finally:
        if not was_there:
            close()


def _is_there() -> bool:
    if "pyspark" not in sys.modules:
        return False
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


@contextlib.contextmanager
def explained(ends: Ends) -> Iterator[None]:
    """Turns Spark's errors into one line, with the exit code that fits."""
    try:
        yield
    except Exception as error:
        if not is_sparks(error):
            raise
        from pyspark.errors import ParseException

        kind = NoQueryError if isinstance(error, ParseException) else QueryError
        raise kind(_explain(error, ends)) from error


def is_sparks(error: Exception) -> bool:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException | Py4JError)


def _explain(error: Exception, ends: Ends) -> str:
    from distributedlog.pipelines.failures import describe

    text = describe(error)
    if "TABLE_OR_VIEW_NOT_FOUND" in text:
        topics = f"topics that it names: {', '.join(ends)}" if ends else "it names no topic that is there"
        text += f" ({topics}; `dlog topic list` lists all, and names with dots or dashes go in backquotes)"
    return text
