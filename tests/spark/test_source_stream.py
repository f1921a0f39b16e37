"""A topic as a streaming DataFrame, through Spark itself."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from tests.spark.topics import Topics, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


class Query:
    """A topic into Parquet files, which are read back through Spark."""

    def __init__(self, spark: "SparkSession", topics: Topics, directory: Path, **options: str) -> None:
        self._spark = spark
        self._directory = directory
        self._frame = spark.readStream.format("dlog").options(**topics.options(**options)).load()

    def start(self, **trigger: Any) -> "StreamingQuery":
        writer = (
            self._frame.writeStream.format("parquet")
            .option("path", str(self._directory / "rows"))
            .option("checkpointLocation", str(self._directory / "checkpoint"))
        )
        return (writer.trigger(**trigger) if trigger else writer).start()

    def run(self, **trigger: Any) -> "StreamingQuery":
        query = self.start(**trigger)
        assert query.awaitTermination(120)
        return query

    def values(self) -> list[bytes]:
        rows = self._spark.read.parquet(str(self._directory / "rows"))
        return [bytes(row.value) for row in rows.orderBy("partition", "offset").collect()]

    @property
    def journaled(self) -> list[dict[str, Any]]:
        """The end of each micro-batch."""
        folder = self._directory / "checkpoint" / "offsets"
        numbers = sorted(int(each.name) for each in folder.glob("[0-9]*"))
        return [json.loads((folder / str(each)).read_text().splitlines()[-1]) for each in numbers]


def test_available_now_reads_what_is_there_in_bounded_batches_and_a_restart_goes_on(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    name = topics.create("drained", 2)
    topics.produce(name, numbered(20), 0)
    topics.produce(name, numbered(10), 1)
    options = {"subscribe": name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "15"}
    query = Query(spark, topics, tmp_path, **options)
    query.run(availableNow=True)
    assert query.values() == numbered(20) + numbered(10)
    assert [each[name] for each in query.journaled] == [{"0": 10, "1": 5}, {"0": 20, "1": 10}]
    topics.produce(name, numbered(3, 10), 1)
    query.run(availableNow=True)
    assert query.values() == numbered(20) + numbered(13)
    assert query.journaled[-1][name] == {"0": 20, "1": 13}


def test_a_running_query_follows_its_topic_tells_its_progress_and_stops_quickly(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    name = topics.create("followed")
    topics.produce(name, numbered(5))
    query = Query(spark, topics, tmp_path, subscribe=name)  # from the end, as always with a stream
    running = query.start()
    try:
        until(lambda: len(query.journaled) == 1, "the empty micro-batch that journals the beginning")
        assert query.journaled[0][name] == {"0": 5}
        topics.produce(name, numbered(7, 5))
        until(lambda: running.lastProgress is not None and _end(running).get(name) == {"0": 12}, "news")
        until(lambda: 12 in topics.group_positions(f"spark-{name}").values(), "progress")
        polls = len(running.recentProgress)
        begun = time.monotonic()
        running.stop()
        assert time.monotonic() - begun < 5, "what waits for news is interrupted"
        assert polls < 20
    finally:
        running.stop()
    assert query.values() == numbered(7, 5)
    assert running.exception() is None


def _end(running: "StreamingQuery") -> dict[str, Any]:
    progress = running.lastProgress
    assert progress is not None
    found: dict[str, Any] = json.loads(progress.sources[0].endOffset)
    return found


def test_a_position_is_pasted_from_a_query_into_a_read(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    name = topics.create("pasted")
    topics.produce(name, numbered(4))
    query = Query(spark, topics, tmp_path, subscribe=name, startingOffsets="earliest")
    done = query.run(availableNow=True)
    topics.produce(name, numbered(2, 4))
    assert done.lastProgress is not None
    rest = spark.read.format("dlog").options(
        **topics.options(subscribe=name, startingOffsets=json.dumps(_end(done)))
    )
    assert [bytes(row.value) for row in rest.load().collect()] == numbered(2, 4)


def test_records_lost_to_retention_end_a_query_with_their_names(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    name = topics.create("cut")
    topics.produce(name, numbered(4))
    options = {"subscribe": name, "startingOffsets": "earliest"}
    Query(spark, topics, tmp_path, **options).run(availableNow=True)
    topics.produce(name, numbered(6, 4))
    topics.delete_records(name, 0, 7)
    with pytest.raises(StreamingQueryException, match=f"{name}-0 has no offsets 4 to 6 any more"):
        Query(spark, topics, tmp_path, **options).run(availableNow=True)
    lenient = Query(spark, topics, tmp_path, **options, failOnDataLoss="false")
    lenient.run(availableNow=True)
    assert lenient.values() == numbered(4) + numbered(3, 7)


def test_what_a_stream_cannot_have_is_said_before_it_runs(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    with pytest.raises(PySparkException, match="endingOffsets is for bounded reads"):
        Query(spark, topics, tmp_path, subscribe="t", endingOffsets="latest").run(availableNow=True)
    with pytest.raises(PySparkException, match="segments is for bounded reads"):
        Query(spark, topics, tmp_path, subscribe="t", segments="/nowhere").run(availableNow=True)
    with pytest.raises(PySparkException, match="did you mean maxOffsetsPerTrigger"):
        Query(spark, topics, tmp_path, subscribe="t", maxOffsetPerTrigger="5")
    with pytest.raises(PySparkException, match="the schema is fixed"):
        spark.read.format("dlog").schema("a INT").options(**topics.options(subscribe="t")).load().count()
