"""A driver to be killed: a topic, counted by key, into another topic, exactly once, until somebody ends it.

python -m tests.spark.once_driver MASTER BOOTSTRAP SOURCE TARGET DIRECTORY
"""

import sys
import time
from pathlib import Path
from zlib import crc32

from pyspark import TaskContext
from pyspark.sql import functions as F  # noqa: N812 (as everybody calls it)

from distributedlog.spark import session
from tests.spark import event_log
from tests.spark.standalone import QUICK_JVM

ROWS_PER_BATCH = 60
ROW_SECONDS = 0.01
"""How long a row takes on its way to the sink: so there is a moment in which a task can be killed."""
STRAGGLING_SECONDS = 0.4
"""How long one row in `STRAGGLES_EVERY` takes in a first attempt, where Spark can speculate."""
STRAGGLES_EVERY = 16
CONFIG = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.minBatchesToRetain": "1000000",  # the proof reads where each batch has ended
    "spark.task.maxFailures": "8",
    "spark.excludeOnFailure.enabled": "false",
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.4",
    "spark.speculation.minTaskRuntime": "10ms",
    "spark.executor.heartbeatInterval": "2s",
    "spark.network.timeout": "60s",
}


def events_directory(directory: Path) -> Path:
    return directory / "events"


def main(master: str, bootstrap: str, source: str, target: str, directory: str) -> None:
    events = events_directory(Path(directory))
    events.mkdir(exist_ok=True)
    spark = session("once", master=master, config=CONFIG | event_log.settings(events))
    servers = {"kafka.bootstrap.servers": bootstrap}
    can_speculate = not master.startswith("local")

    def slowly(value: str) -> str:
        task = TaskContext.get()
        is_first = task is not None and task.attemptNumber() == 0
        straggles = can_speculate and is_first and crc32(value.encode()) % STRAGGLES_EVERY == 0
        time.sleep(STRAGGLING_SECONDS if straggles else ROW_SECONDS)
        return value

    rows = (
        spark.readStream.format("dlog")
        .options(**servers)
        .options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=ROWS_PER_BATCH)
        .load()
    )
    counts = rows.groupBy("key").agg(F.count("*").alias("rows"), F.max("offset").alias("last"))
    told = F.concat_ws(" ", F.col("key").cast("string"), "rows", "last")
    query = (
        counts.select("key", F.udf(slowly, "string")(told).alias("value"))
        .writeStream.format("dlog")
        .options(**servers)
        .option("topic", target)
        .option("checkpointLocation", f"{directory}/checkpoint")
        .outputMode("complete")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
