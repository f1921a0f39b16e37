"""A pipeline as people write them for Spark's Kafka connector: orders in, totals out, the usual options.

It knows nothing of this project.  The test runs it with one word changed, and that word only: the format.
"""

from typing import TYPE_CHECKING

from pyspark.sql.functions import col, from_json, struct, sum, to_json  # noqa: A004 (as in Spark's own examples)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def totals(spark: "SparkSession", servers: str, source: str, target: str, checkpoint: str) -> None:
    """Reads what has come since the last run, and writes each customer's total so far to another topic."""
    orders = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 500)
        .option("minPartitions", 2)
        .option("failOnDataLoss", "true")
        .option("includeHeaders", "true")
        .option("kafka.group.id", "totals")
        .option("kafka.session.timeout.ms", "10000")
        .load()
        .where(col("headers").isNotNull())
        .select(from_json(col("value").cast("string"), "customer STRING, cents BIGINT").alias("order"))
    )
    query = (
        orders.groupBy("order.customer")
        .agg(sum("order.cents").alias("cents"))
        .select(col("customer").alias("key"), to_json(struct("customer", "cents")).alias("value"))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .outputMode("complete")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def latest_totals(spark: "SparkSession", servers: str, target: str) -> dict[str, int]:
    """What the target topic says about each customer now."""
    spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", target).option(
        "startingOffsets", "earliest"
    ).option("endingOffsets", "latest").load().createOrReplaceTempView("totals")
    rows = spark.sql(
        "SELECT CAST(key AS STRING) AS customer, max_by(get_json_object(CAST(value AS STRING), '$.cents'),"
        " offset) AS cents FROM totals GROUP BY key"
    ).collect()
    return {row.customer: int(row.cents) for row in rows}
