"""The sink under a real Spark: batch and streaming, what it refuses, and what a failure leaves behind."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException

from tests.spark.sink_stage import Stage
from tests.system.server_process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TIMEOUT_SECONDS = 120
WORKER_LOGGING = "spark.sql.pyspark.worker.logging.enabled"


@pytest.fixture
def stage(broker: ServerProcess) -> Stage:
    return Stage(broker)


def write(frame: "DataFrame", stage: Stage, mode: str = "append", **options: str) -> None:
    frame.write.format("dlog").options(**stage.options(**options)).mode(mode).save()


def start(
    frame: "DataFrame", stage: Stage, checkpoint: Path, mode: str = "append", **options: str
) -> "StreamingQuery":
    return (
        frame.writeStream.format("dlog")
        .options(**stage.options(**options), checkpointLocation=str(checkpoint))
        .outputMode(mode)
        .trigger(availableNow=True)
        .start()
    )


def run(frame: "DataFrame", stage: Stage, checkpoint: Path, mode: str = "append", **options: str) -> None:
    query = start(frame, stage, checkpoint, mode, **options)
    try:
        assert query.awaitTermination(TIMEOUT_SECONDS)
    finally:
        query.stop()


def values(stage: Stage, topic: str) -> list[str]:
    return sorted(
        (record.value or b"").decode() for records in stage.read(topic).values() for record in records
    )


def logged(spark: "SparkSession") -> list[str]:
    rows = spark.tvf.python_worker_logs().where("logger = 'distributedlog.spark.sink.writer'").collect()
    return [str(row.msg) for row in rows]


@pytest.fixture
def worker_logging(spark: "SparkSession") -> Iterator[None]:
    spark.conf.set(WORKER_LOGGING, "true")
    yield
    spark.conf.unset(WORKER_LOGGING)


# --- batch -------------------------------------------------------------------------------------


def test_what_is_written_is_read_back_with_every_column(spark: "SparkSession", stage: Stage) -> None:
    topic = stage.create("sink-round", 3)
    frame = spark.range(1000).selectExpr(
        "concat('k', id) as key",
        "case when id % 10 = 0 then null else cast(concat('v', id) as binary) end as value",
        "array(named_struct('key', 'h', 'value', cast(concat('v', id) as binary))) as headers",
        "timestamp_millis(1700000000000 + id) as timestamp",
        "id as ignored",
    )
    write(frame, stage, topic=topic)
    options = stage.options(subscribe=topic, includeHeaders="true")
    found = spark.read.format("dlog").options(**options).load()
    kept = ["cast(key as string) as key", "value", "headers", "timestamp"]
    expected = {str(row) for row in frame.selectExpr(*kept).collect()}
    assert {str(row) for row in found.selectExpr(*kept).collect()} == expected
    assert len(expected) == 1000


def test_the_rows_of_the_source_go_into_another_topic_as_they_are(
    spark: "SparkSession", stage: Stage
) -> None:
    """The columns of the one are those of the other, partition and time included."""
    topic, copy = stage.create("sink-original", 2), stage.create("sink-copy", 2)
    write(spark.range(200).selectExpr("cast(id as string) as key", "key as value"), stage, topic=topic)
    source = spark.read.format("dlog").options(**stage.options(subscribe=topic)).load()
    write(source, stage, topic=copy)
    assert stage.read(copy) == stage.read(topic)


def test_strings_in_large_arrow_types_are_written_too(spark: "SparkSession", stage: Stage) -> None:
    """Spark's Arrow is what its settings make it; the sink takes each form."""
    topic = stage.create("sink-large", 1)
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        write(spark.sql("select 'k' as key, 'v' as value"), stage, topic=topic)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
    ((record,),) = stage.read(topic).values()
    assert (record.key, record.value) == (b"k", b"v")


@pytest.mark.parametrize("mode", ["overwrite", "ignore"])
def test_a_topic_is_not_overwritten_and_not_ignored(spark: "SparkSession", stage: Stage, mode: str) -> None:
    topic = stage.create(f"sink-{mode}", 1)
    with pytest.raises(AnalysisException, match=r'overwritten|"Ignore" mode'):
        write(spark.sql("select 'v' as value"), stage, mode, topic=topic)
    assert values(stage, topic) == []


@pytest.mark.parametrize(
    ("query", "options", "answer"),
    [
        ("select 1 as value", {"topic": "t"}, "the column value is int; it must be string or binary"),
        ("select 'a' as value", {"topic": "t", "delivery": "at-most-once"}, "it can be at-least-once"),
    ],
)
def test_what_cannot_be_written_is_said_before_any_task_and_once(
    spark: "SparkSession", stage: Stage, query: str, options: dict[str, str], answer: str
) -> None:
    with pytest.raises(AnalysisException, match=f"ConfigError: .*{answer}") as caught:
        write(spark.sql(query), stage, **options)
    assert str(caught.value).count("ConfigError: ") == 1


@pytest.mark.parametrize(
    ("query", "options", "answer"),
    [
        ("select 'a' as value, cast(null as string) as topic", {}, "its topic is null"),
        ("select repeat('a', 9000) as value", {"topic": "sink-rows", "kafka.max.request.size": "8000"},
         "it has 9000 bytes"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_written_fails_the_job_and_is_named_once(
    spark: "SparkSession", stage: Stage, query: str, options: dict[str, str], answer: str
) -> None:
    if options and not stage.has("sink-rows"):
        stage.create("sink-rows", 2)
    with pytest.raises(PySparkException, match=f"Error: row 0 of the task.*: .*{answer}") as caught:
        write(spark.sql(query), stage, **options)
    assert str(caught.value).count("row 0 of the task") == 1


@pytest.mark.usefixtures("worker_logging")
def test_only_the_driver_says_what_was_written_and_only_of_jobs_that_succeed(
    spark: "SparkSession", stage: Stage
) -> None:
    """A task that is cancelled, or whose job fails, has written and ended like any other.  What it told must
    not count: rows of the failed job are there, and no line says that they were written."""
    topic = stage.create("sink-failing", 1)
    rows = spark.range(0, 40, 1, numPartitions=4)
    bad = rows.selectExpr(
        "case when id = 39 then raise_error('row 39 breaks') else cast(id as string) end as value"
    )
    with pytest.raises(PySparkException, match="row 39 breaks"):
        write(bad, stage, topic=topic, delivery="at-least-once")
    assert not [line for line in logged(spark) if topic in line and line.startswith("written")]
    write(rows.selectExpr("cast(id as string) as value"), stage, topic=topic, delivery="at-least-once")
    assert [line for line in logged(spark) if line == f"written: 40 rows: {topic} {{0: 40}}"]
    assert set(values(stage, topic)) == {str(number) for number in range(40)}


# --- streaming ---------------------------------------------------------------------------------


def test_a_stream_goes_from_topic_to_topic_and_goes_on_where_it_was(
    spark: "SparkSession", stage: Stage, tmp_path: Path
) -> None:
    topic, target = stage.create("sink-from", 2), stage.create("sink-to", 2)
    numbers = spark.range(300).selectExpr("cast(id as string) as key", "cast(id as string) as value")
    options = stage.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="100")
    for part in (numbers.where("id < 200"), numbers.where("id >= 200")):
        write(part, stage, topic=topic)
        stream = spark.readStream.format("dlog").options(**options).load()
        run(stream.select("key", "value"), stage, tmp_path / "checkpoint", topic=target)
    assert values(stage, target) == sorted(str(number) for number in range(300))


def test_a_stream_whose_batch_failed_writes_it_again_and_loses_nothing(
    spark: "SparkSession", stage: Stage, tmp_path: Path
) -> None:
    """What the failed try wrote stays, and all of it is written again: at least once."""
    topic, target = stage.create("sink-again-from", 1), stage.create("sink-again-to", 1)
    write(spark.range(50).selectExpr("cast(id as string) as value"), stage, topic=topic)
    options = stage.options(subscribe=topic, startingOffsets="earliest", maxRecordsPerPartition="25")
    stream = spark.readStream.format("dlog").options(**options).load()
    breaking = stream.selectExpr(
        "case when offset = 49 then cast(raise_error('broken') as binary) else value end as value"
    )
    with pytest.raises(StreamingQueryException, match="broken"):
        run(breaking, stage, tmp_path / "checkpoint", topic=target, delivery="at-least-once")
    run(stream.select("value"), stage, tmp_path / "checkpoint", topic=target, delivery="at-least-once")
    found = values(stage, target)
    assert set(found) == {str(number) for number in range(50)}
    assert all(found.count(value) <= 2 for value in found)


@pytest.mark.parametrize("mode", ["complete", "update"])
def test_an_aggregate_is_written_in_complete_mode_and_through_foreach_batch_in_update_mode(
    spark: "SparkSession", stage: Stage, tmp_path: Path, mode: str
) -> None:
    """Spark itself offers no update mode to sinks in Python."""
    topic, target = stage.create(f"sink-{mode}-from", 1), stage.create(f"sink-{mode}-to", 1)
    write(spark.range(30).selectExpr("cast(id % 3 as string) as value"), stage, topic=topic)
    options = stage.options(subscribe=topic, startingOffsets="earliest")
    counts = spark.readStream.format("dlog").options(**options).load().groupBy("value").count()
    rows = counts.selectExpr("to_json(struct(cast(value as string) as v, count)) as value")
    if mode == "complete":
        run(rows, stage, tmp_path / "checkpoint", mode, topic=target)
    else:
        with pytest.raises(StreamingQueryException, match="does not support Update mode"):
            run(rows, stage, tmp_path / "refused", mode, topic=target)
        query = (
            rows.writeStream.foreachBatch(lambda part, _: write(part, stage, topic=target, writeId="counts"))
            .outputMode(mode)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(TIMEOUT_SECONDS)
    found: list[dict[str, Any]] = [json.loads(value) for value in values(stage, target)]
    assert found == [{"v": str(number), "count": 10} for number in range(3)]
