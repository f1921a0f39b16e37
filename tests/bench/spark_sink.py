"""The Spark sink and the segment source, at 100 B and 1 KB.

| figure                       | against                                                                     |
|------------------------------|-----------------------------------------------------------------------------|
| sink, rows/s                 | an Arrow sink that only counts: what Spark hands over at the most           |
| exactly once                 | at least once                                                               |
| at least once                | Spark's Kafka sink on the same broker, where its jars are                   |
| segment source, rows/s       | the same rows through the broker, in turns                                  |
| broker's CPU meanwhile       | the time that the segments took                                             |

Rows are made by Spark itself, so that the sink's figure has their making in it; the ceiling's has it too.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceWriter, WriterCommitMessage

from distributedlog.spark.segments.source import segment_offsets
from distributedlog.spark.session.session import close, session
from tests.bench.broker_kafka import LeftOutError
from tests.bench.figures import Figure, at_least, at_most, medians, stopwatch
from tests.bench.harness import Bench
from tests.jvm.connector import fetch_connector
from tests.spark.sink_stage import Stage, stage

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ROUNDS = 3
PARTITIONS = 4
ROWS_OF = {100: 1_000_000, 1000: 200_000}
SEGMENTS_AIM = 1.2
ONCE_AIM = 0.8
CONNECTOR_AIM = 1.0
CPU_AIM = 0.02
TIMEOUT_SECONDS = 60
SETTINGS = {"replica.high.watermark.checkpoint.interval.ms": 200}


class CountingSource(DataSource):
    """Takes rows as our sink does, and does nothing with them."""

    @classmethod
    def name(cls) -> str:
        return "counting"

    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceWriter:
        return CountingWriter()


class CountingWriter(DataSourceArrowWriter):
    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


def run(bench: Bench) -> None:
    config = {"spark.driver.memory": "2g"}
    try:
        config["spark.jars"] = fetch_connector()
    except LeftOutError as reason:
        bench.note(Figure(f"Spark's Kafka sink is left out: {reason}", float("nan"), ""))
    spark = session("bench", master="local[2]", config=config)
    spark.dataSource.register(CountingSource)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="dlog-bench-") as directory,
            stage(Path(directory) / "broker", **SETTINGS) as broker,
        ):
            for value_bytes, rows in ROWS_OF.items():
                sized = _Sized(spark, broker, value_bytes, rows, "spark.jars" in config)
                bench.case(f"sink, {sized.size}", sized.sink)
                bench.case(f"segment source, {sized.size}", sized.segments)
    finally:
        close()


class _Sized:
    """Values of one size, written and then read: the topic holds what the sink has written."""

    def __init__(
        self, spark: "SparkSession", broker: Stage, value_bytes: int, rows: int, theirs: bool
    ) -> None:
        self._spark, self._broker, self._rows, self._theirs = spark, broker, rows, theirs
        self._topic = broker.create(f"bench-{value_bytes}", PARTITIONS)
        self._frame = spark.range(rows).selectExpr(
            "cast(id as string) as key", f"repeat('x', {value_bytes}) as value"
        )  # fmt: skip
        self.size = f"{value_bytes} B" if value_bytes < 1000 else f"{value_bytes // 1000} KB"

    def sink(self) -> list[Figure]:
        return _sink(
            self._frame, self._broker.options(topic=self._topic), self.size, self._rows, self._theirs
        )

    def segments(self) -> list[Figure]:
        options = self._broker.options(topic=self._topic)
        self._frame.write.format("dlog").options(**options).mode("append").save()
        return _segments(self._spark, self._broker, self._topic, self.size)


def _sink(frame: "DataFrame", options: dict[str, str], size: str, rows: int, theirs: bool) -> list[Figure]:
    ways = {
        "once": ("dlog", {**options, "delivery": "exactly-once"}),
        "least": ("dlog", {**options, "delivery": "at-least-once"}),
        "ceiling": ("counting", {}),
        **({"kafka": ("kafka", {**options, "kafka.acks": "all"})} if theirs else {}),
    }

    def write(way: str) -> float:
        form, told = ways[way]
        with stopwatch() as seconds:
            frame.write.format(form).options(**told).mode("append").save()
        return seconds()

    for way in ways:
        write(way)
    measured = medians(ROUNDS, *(partial(write, way) for way in ways))
    took = dict(zip(ways, measured, strict=True))
    found = [
        Figure(f"sink, exactly once, {size}", rows / took["once"], "rows/s"),
        Figure(f"sink, at least once, {size}", rows / took["least"], "rows/s"),
        Figure(f"sink, {size}, of an Arrow sink that only counts", took["ceiling"] / took["once"], "×"),
        at_least(f"sink, {size}, exactly once of at least once", took["least"] / took["once"], "×", ONCE_AIM),
    ]
    if theirs:
        ratio = took["kafka"] / took["least"]
        found.append(
            at_least(f"sink, {size}, at least once of Spark's Kafka sink", ratio, "×", CONNECTOR_AIM)
        )
    return found


def _segments(spark: "SparkSession", broker: Stage, topic: str, size: str) -> list[Figure]:
    _wait_for_checkpoint(broker, topic)
    rows = sum(broker.ends(topic).values())
    reader = spark.read.format("dlog").option("subscribe", topic)
    through_broker = reader.options(**broker.options()).load()
    direct = reader.option("segments", broker.data_directory).load()

    def consume(frame: "DataFrame") -> float:
        with stopwatch() as seconds:
            frame.write.format("noop").mode("overwrite").save()
        return seconds()

    consume(through_broker), consume(direct)
    broker_seconds, direct_seconds = medians(ROUNDS, lambda: consume(through_broker), lambda: consume(direct))
    busy_before = _cpu_seconds(broker)
    wall = consume(direct)
    busy = _cpu_seconds(broker) - busy_before
    return [
        Figure(f"source through the broker, {size}", rows / broker_seconds, "rows/s"),
        Figure(f"segment source, {size}", rows / direct_seconds, "rows/s"),
        at_least(
            f"segment source, {size}, of the broker source",
            broker_seconds / direct_seconds,
            "×",
            SEGMENTS_AIM,
        ),
        at_most(f"broker's CPU while segments are read, {size}", busy / wall, "of a core", CPU_AIM),
    ]


def _wait_for_checkpoint(broker: Stage, topic: str) -> None:
    """Until the directory says of itself that all is committed."""
    import json

    ends = {str(partition): end for partition, end in broker.ends(topic).items()}
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while json.loads(segment_offsets(broker.data_directory, subscribe=topic))[topic] != ends:
        assert time.monotonic() < deadline, "the high watermarks were not written down"
        time.sleep(0.1)


def _cpu_seconds(broker: Stage) -> float:
    fields = Path(f"/proc/{broker.server.facts['pid']}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
