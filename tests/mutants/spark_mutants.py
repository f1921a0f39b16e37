"""The pitfalls of Spark's interface for Python: each remedy taken out, and the tests that must say so.

What Spark does there is looked up in the docstrings of the sources: `spark/source/stream_reader`,
`spark/source/replanning`, `spark/sink/writer`, `spark/session/session`, `pipelines/runner`; when a run of a
pipeline may be left out, in `pipelines/loop/news`.
"""

from tests.mutants.harness import Mutant

STREAM = "spark/source/stream_reader.py"
STREAM_TESTS = "-n 0 tests/spark/test_stream_reader.py -k"
UNIT = "tests/unit/spark"
LOOP = "tests/unit/pipelines/loop"

MUTANTS = [
    Mutant(
        "a query that begins at the end reads before its beginning is journaled",
        STREAM,
        "            if is_relative_to_now(self._options.start) and rows_max is not None:\n",
        "            if False:\n",
        f"{STREAM_TESTS} moves_is_journaled",
    ),
    Mutant(
        "a query with nothing new is asked again and again at once",
        STREAM,
        "        self._wait()\n",
        "",
        f"{STREAM_TESTS} idle_query_asks_rarely",
    ),
    Mutant(
        "an end before the start makes a task",
        "spark/source/ranges.py",
        "    pieces = [each for each in spans if each.size > 0]\n",
        "    pieces = list(spans)\n",
        f"{UNIT}/source/test_ranges.py",
    ),
    Mutant(
        "Spark's limit is read by the name that its documentation gives",
        STREAM,
        "    return limit.max_rows\n",
        "    return limit.maxRows  # type: ignore\n",
        f"{UNIT}/source/test_stream_reader.py",
    ),
    Mutant(
        "a bounded read wants Spark's filters, which most sessions do not push",
        "spark/source/batch_reader.py",
        "    @rows_told_plainly\n",
        "    def pushFilters(self, filters):\n        return filters\n\n    @rows_told_plainly\n",
        f"{UNIT}/source/test_batch_reader.py",
    ),
    Mutant(
        "the times of rows have a zone that Spark does not take",
        "spark/source/columns.py",
        '        "timestamp": pa.timestamp("us", tz="UTC"),\n',
        '        "timestamp": pa.timestamp("us"),\n',
        f"{UNIT}/source/test_columns.py -k the_one_spark_makes",
    ),
    Mutant(
        "a table is created although Spark drops its options",
        "spark/datasource.py",
        "        self._refuse_table()\n",
        "",
        f"{UNIT}/test_datasource.py",
    ),
    Mutant(
        "the tables of a pipeline are in a catalog that forgets them",
        "spark/session/session.py",
        '            "spark.sql.catalogImplementation": "hive",\n',
        '            "spark.sql.catalogImplementation": "in-memory",\n',
        f"{UNIT}/session/test_session.py -k outlive",
    ),
    Mutant(
        "the end of a pipeline's run is taken for its failure",
        "pipelines/runner.py",
        "        if EXHAUSTED not in str(error):\n",
        "        if error:\n",
        "tests/unit/pipelines/test_runner.py -k the_one_error_that_is_none",
    ),
    Mutant(
        "a task commits what it has written",
        "spark/sink/exactly_once.py",
        "    return WrittenOnce(counts, winner)\n",
        "    told = WrittenOnce(counts, winner)\n    commit_winners(options, [told])\n    return told\n",
        "-n 0 tests/spark/test_sink_once_task.py -k only_the_attempts",
    ),
    Mutant(
        "a topic that was made again is no news for a pipeline",
        "pipelines/loop/news.py",
        "        if ends != before.ends[read]:\n",
        "        if ends.offsets != before.ends[read].offsets:\n",
        f"{LOOP}/test_news.py -k whatever_differs",
    ),
    Mutant(
        "a table with the clock in it is not computed anew",
        "pipelines/loop/news.py",
        "        if not flow.is_streaming and not flow.is_repeatable:\n",
        "        if flow.is_streaming and not flow.is_repeatable:\n",
        f"{LOOP}/test_news.py",
    ),
    Mutant(
        "what a run that failed was to read counts as read",
        "pipelines/loop/watch.py",
        "        self._read = self._seen if is_whole else None\n",
        "        self._read = self._seen\n",
        f"{LOOP}/test_watch.py",
    ),
    Mutant(
        "a Spark that is gone has nothing to do",
        "pipelines/loop/loop.py",
        "watch is not None and runner.is_spark_there and watch.news() is None",
        "watch is not None and watch.news() is None",
        f"{LOOP}/test_loop.py",
    ),
]
