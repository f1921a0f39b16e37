"""The Spark source, at 100 B and 1 KB, and how soon a record is seen.

| figure                            | against                                                              |
|-----------------------------------|----------------------------------------------------------------------|
| source, bounded and streaming     | an in-memory source that hands out the same rows: the Arrow ceiling  |
|                                   | Spark's Kafka connector on the same broker, where its jars are       |
| produced to visible               | from `produce` to the micro-batch that has committed it, 1,000 a s   |
| start to first micro-batch        | in this session: the query alone, not the JVM                        |

All take turns within one session; the sink takes rows and does nothing.  The broker has the same cores.
"""

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from distributedlog.spark.session.session import close, session
from distributedlog.spark.source.columns import PLAIN, arrow_schema, spark_schema
from tests.bench.broker_kafka import LeftOutError
from tests.bench.figures import Figure, at_least, medians, stopwatch
from tests.bench.harness import Bench
from tests.jvm.connector import fetch_connector
from tests.spark.sink_stage import Stage, stage
from tests.spark.topics import Topics

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ROUNDS = 3
PARTITIONS = 4
ROWS_OF = {100: 1_000_000, 1000: 300_000}
ROWS_PER_BATCH = 32_768
CEILING_AIM = 0.7
CONNECTOR_AIM = 1.0
RATE, RATE_SECONDS = 1_000, 15


class MemorySource(DataSource):
    """The same rows out of memory: what Spark takes from a source written in Python, at the most."""

    @classmethod
    def name(cls) -> str:
        return "memory_rows"

    def schema(self) -> "StructType":
        return spark_schema(PLAIN)

    def reader(self, schema: "StructType") -> DataSourceReader:
        return MemoryReader(int(self.options["rows"]), int(self.options["bytes"]))

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:
        return MemoryStream(int(self.options["rows"]), int(self.options["bytes"]))


def _made(rows: int, value_bytes: int) -> Iterator["pyarrow.RecordBatch"]:
    import pyarrow as pa

    left = rows
    count = min(ROWS_PER_BATCH, rows)
    columns = {
        "key": pa.repeat(pa.scalar(b"1234567", pa.binary()), count),
        "value": pa.repeat(pa.scalar(bytes(value_bytes), pa.binary()), count),
        "topic": pa.repeat(pa.scalar("bench", pa.string()), count),
        "partition": pa.repeat(pa.scalar(0, pa.int32()), count),
        "offset": pa.array(range(count), pa.int64()),
        "timestamp": pa.repeat(pa.scalar(0, pa.timestamp("us", tz="UTC")), count),
        "timestampType": pa.repeat(pa.scalar(0, pa.int32()), count),
    }
    batch = pa.RecordBatch.from_arrays(list(columns.values()), schema=arrow_schema(PLAIN))
    while left > 0:
        yield batch.slice(0, min(left, count))
        left -= count


class MemoryReader(DataSourceReader):
    def __init__(self, rows: int, value_bytes: int) -> None:
        self._rows, self._value_bytes = rows, value_bytes

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self._rows // PARTITIONS) for _ in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator["pyarrow.RecordBatch"]:
        return _made(partition.value, self._value_bytes)


class MemoryStream(DataSourceStreamReader):
    """All rows in the first micro-batch."""

    def __init__(self, rows: int, value_bytes: int) -> None:
        self._reader = MemoryReader(rows, value_bytes)

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]
        return {"at": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return self._reader.partitions() if end != start else []

    def read(self, partition: InputPartition) -> Iterator["pyarrow.RecordBatch"]:
        return self._reader.read(partition)


def run(bench: Bench) -> None:
    config = {"spark.driver.memory": "2g"}
    try:
        config["spark.jars"] = fetch_connector()
    except LeftOutError as reason:
        bench.note(Figure(f"Spark's Kafka connector is left out: {reason}", float("nan"), ""))
    spark = session("bench", master="local[2]", config=config)
    spark.dataSource.register(MemorySource)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="dlog-bench-") as directory,
            stage(Path(directory) / "broker") as broker,
        ):
            for value_bytes, rows in ROWS_OF.items():
                sized = _Sized(spark, broker, value_bytes, rows, "spark.jars" in config)
                bench.case(f"source, {sized.size}", partial(sized.figures, directory))
            bench.case("produced to visible", lambda: _latency(spark, Topics(broker.bootstrap), directory))
    finally:
        close()


class _Sized:
    """Values of one size, read in every way."""

    def __init__(
        self, spark: "SparkSession", broker: Stage, value_bytes: int, rows: int, theirs: bool
    ) -> None:
        self._spark = spark
        self._rows = rows
        self._formats = ["dlog", "memory_rows", *(["kafka"] if theirs else [])]
        topic = broker.create(f"read-{value_bytes}", PARTITIONS)
        self.size = f"{value_bytes} B" if value_bytes < 1000 else f"{value_bytes // 1000} KB"
        self._options = {
            **broker.options(subscribe=topic, startingOffsets="earliest"),
        }
        self._memory_options = {"rows": str(rows), "bytes": str(value_bytes)}
        spark.range(rows).selectExpr(
            "substr(cast(id + 10000000 as string), 2) as key", f"repeat('x', {value_bytes}) as value"
        ).write.format("dlog").options(**broker.options(topic=topic)).mode("append").save()

    def figures(self, directory: str) -> list[Figure]:
        found: list[Figure] = []
        ways: dict[str, Callable[[str], float]] = {
            "bounded": self._bounded,
            "streaming": lambda which: self._streaming(which, directory),
        }
        for way, measure in ways.items():
            for which in self._formats:
                measure(which)
            contestants = [partial(measure, which) for which in self._formats]
            seconds = dict(zip(self._formats, medians(ROUNDS, *contestants), strict=True))
            name = f"source, {way}, {self.size}"
            found.append(Figure(name, self._rows / seconds["dlog"], "rows/s"))
            ceiling = seconds["memory_rows"] / seconds["dlog"]
            found.append(at_least(f"{name}, of the Arrow ceiling", ceiling, "×", CEILING_AIM))
            if "kafka" in seconds:
                theirs = seconds["kafka"] / seconds["dlog"]
                found.append(at_least(f"{name}, of Spark's Kafka connector", theirs, "×", CONNECTOR_AIM))
        return found

    def _options_of(self, which: str) -> dict[str, str]:
        return self._memory_options if which == "memory_rows" else self._options

    def _bounded(self, which: str) -> float:
        frame = self._spark.read.format(which).options(**self._options_of(which)).load()
        with stopwatch() as seconds:
            frame.write.format("noop").mode("overwrite").save()
        return seconds()

    def _streaming(self, which: str, directory: str) -> float:
        """The time of the micro-batch that has the rows, as Spark reports it."""
        frame = self._spark.readStream.format(which).options(**self._options_of(which)).load()
        with tempfile.TemporaryDirectory(dir=directory) as checkpoint:
            query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
            try:
                while not any(each.numInputRows for each in query.recentProgress):
                    assert query.isActive, query.exception()
                    time.sleep(0.05)
                busy = [each for each in query.recentProgress if each.numInputRows]
                assert sum(each.numInputRows for each in busy) == self._rows
                return sum(each.durationMs["addBatch"] for each in busy) / 1000
            finally:
                query.stop()


def _latency(spark: "SparkSession", topics: Topics, directory: str) -> list[Figure]:
    """Rows carry the time at which they were sent; when their micro-batch is done, they are visible."""
    name = topics.create("latency", PARTITIONS)
    waited: list[float] = []

    def look(frame: "DataFrame", _number: int) -> None:
        sent = [float(bytes(row.value)) for row in frame.select("value").collect()]
        waited.extend(time.time() - each for each in sent)

    started = time.perf_counter()
    query = (
        spark.readStream.format("dlog")
        .options(**topics.options(subscribe=name, startingOffsets="earliest"))
        .load()
        .writeStream.option("checkpointLocation", tempfile.mkdtemp(dir=directory))
        .foreachBatch(look)
        .start()
    )
    try:
        topics.produce(name, [str(time.time()).encode()])
        while not waited:
            assert query.isActive, query.exception()
            time.sleep(0.01)
        first_batch = time.perf_counter() - started
        waited.clear()
        _send_at_rate(topics, name)
        while len(waited) < RATE * RATE_SECONDS:
            assert query.isActive, query.exception()
            time.sleep(0.05)
    finally:
        query.stop()
    steady = sorted(waited)
    return [
        Figure("produced to visible at 1,000 rows/s, p50", 1000 * statistics.median(steady), "ms"),
        Figure("produced to visible at 1,000 rows/s, p95", 1000 * steady[int(len(steady) * 0.95)], "ms"),
        Figure("start of a query to its first micro-batch done", first_batch, "s"),
    ]


def _send_at_rate(topics: Topics, name: str) -> None:
    waiting = threading.Event()
    begun = time.perf_counter()
    for number in range(RATE * RATE_SECONDS):
        late = begun + number / RATE - time.perf_counter()
        if late > 0:
            waiting.wait(late)
        topics.send(name, value=str(time.time()).encode(), partition=number % PARTITIONS)
        topics.poll()
    topics.flush()
