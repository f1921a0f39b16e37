# ruff: noqa: F821 (`spark` is put there by whoever runs the pipeline)
"""From a topic to a table, and to another topic with the address of the worker that had the row."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as everybody calls it)

spark: SparkSession

SERVERS = {"kafka.bootstrap.servers": str(spark.conf.get("dlog.bootstrap"))}


def source() -> DataFrame:
    return (
        spark.readStream.format("dlog")
        .options(**SERVERS)
        .option("subscribe", "cluster-from")
        .option("startingOffsets", "earliest")
        .option("maxRecordsPerPartition", "250")
        .load()
    )


@dp.table
def numbers() -> DataFrame:
    return source().select(F.col("value").cast("string").cast("int").alias("number"))


dp.create_sink("copies", "dlog", {**SERVERS, "topic": "cluster-to"})


@dp.append_flow(target="copies")
def to_copies() -> DataFrame:
    where = F.udf(lambda: os.environ["SPARK_LOCAL_IP"]).asNondeterministic()
    return source().select(where().alias("key"), "value")
