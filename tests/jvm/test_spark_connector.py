"""Spark's own Kafka connector on our broker, beside our source: the same rows, one checkpoint for both."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from distributedlog.spark.session.session import close, session
from tests.jvm.connector import fetch_connector
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

THEIRS, OURS = "kafka", "dlog"
CONFIG = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.authenticate.socketTimeout": "120s",
}


@pytest.fixture(scope="module")
def spark() -> Iterator["SparkSession"]:
    yield session("connector", master="local[2]", config={**CONFIG, "spark.jars": fetch_connector()})
    close()


@pytest.fixture
def topics(broker: dict[str, Any]) -> Topics:
    return Topics(str(broker["client"]))


def read(spark: "SparkSession", topics: Topics, which: str, **options: str) -> "DataFrame":
    return spark.read.format(which).options(**topics.options(**options)).load()


def all_kinds(topics: Topics) -> str:
    """Every codec, nulls, headers, several partitions, and times of both kinds."""
    name = topics.create("kinds", 2)
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        topics.produce_with(
            name,
            {"compression.codec": codec},
            key=None if number % 2 else b"key%d" % number,
            value=None if number == 3 else codec.encode() * 50,
            partition=number % 2,
            timestamp=1_700_000_000_000 + number,
            headers=[("h", b"1"), ("h", None)] if number % 3 == 0 else None,
        )
    topics.produce(name, [b"%d" % number for number in range(2000)], 1)
    return name


def test_both_give_the_same_rows(spark: "SparkSession", topics: Topics) -> None:
    name, logged = all_kinds(topics), topics.create("logged", message_timestamp_type="LogAppendTime")
    topics.produce(logged, [b"a", b"b"])
    for options in (
        {"subscribe": f"{name},{logged}", "includeHeaders": "true"},
        {"subscribe": name, "minPartitions": "7"},
        {
            "subscribe": name,
            "maxRecordsPerPartition": "300",  # theirs splits only what is given in numbers
            "startingOffsets": json.dumps({name: {"0": 0, "1": 2}}),
            "endingOffsets": json.dumps({name: {"0": 3, "1": 2000}}),
        },
        {
            "subscribe": name,
            "startingOffsets": json.dumps({name: {"0": 1, "1": -2}}),
            "endingOffsets": json.dumps({name: {"0": -1, "1": 1500}}),
        },
        {"subscribePattern": f"^{name}$", "startingTimestamp": "1700000000002"},
        {"assign": json.dumps({name: [1]})},
    ):
        theirs, ours = (read(spark, topics, which, **options) for which in (THEIRS, OURS))
        assert ours.schema == theirs.schema
        assert ours.rdd.getNumPartitions() == theirs.rdd.getNumPartitions(), options
        order = ["topic", "partition", "offset"]
        assert ours.orderBy(order).collect() == theirs.orderBy(order).collect(), options


def test_what_their_sink_writes_our_source_reads(spark: "SparkSession", topics: Topics) -> None:
    name = topics.create("written", 3)
    frame = spark.range(5000).selectExpr("CAST(id AS STRING) AS key", "CAST(id * 2 AS STRING) AS value")
    frame.write.format(THEIRS).options(**topics.options(topic=name)).save()
    found = (
        read(spark, topics, OURS, subscribe=name)
        .selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS v")
        .collect()
    )
    assert sorted(row.v for row in found) == [2 * number for number in range(5000)]


def test_a_checkpoint_is_taken_over_in_either_direction(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    name = topics.create("taken-over", 2)
    written = 0
    for which in (THEIRS, OURS, THEIRS, OURS):
        values = [b"%d" % number for number in range(written, written + 700)]
        topics.produce(name, values[:400], 0)
        topics.produce(name, values[400:], 1)
        written += len(values)
        options = topics.options(subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger="500")
        query = (
            spark.readStream.format(which)
            .options(**options)
            .load()
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "rows"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        rows = spark.read.parquet(str(tmp_path / "rows"))
        assert rows.count() == rows.select("value").distinct().count() == written, which
