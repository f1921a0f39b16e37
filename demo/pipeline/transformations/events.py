"""The shop's pipeline: three topics become one clean table; what makes no sense goes to a topic of its own.

orders, payments, clicks ──► events_raw ──► events_parsed ──► events ──► per_10s ──► topic per-10s
                                                         └──► topic dead-letters, with the reason
"""

from pyspark import pipelines as dp
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as everybody calls it)

spark: SparkSession  # put here by whoever runs the pipeline

SERVERS = {"kafka.bootstrap.servers": str(spark.conf.get("dlog.bootstrap"))}
EVENT = "id STRING, customer STRING, cents BIGINT, time TIMESTAMP, _corrupt STRING"


@dp.table(comment="Every record of the three topics, as it came.")
def events_raw() -> DataFrame:
    return (
        spark.readStream.format("dlog")
        .options(**SERVERS)
        .option("subscribe", "orders,payments,clicks")
        .option("startingOffsets", "earliest")
        .option("kafka.group.id", "demo")
        .load()
        .select("key", "value", "topic", "partition", "offset", "timestamp")
    )


@dp.temporary_view
def events_parsed() -> DataFrame:
    """The fields of an event, or the reason why it is none."""
    text = F.col("value").cast("string")
    reason = (
        F.when(~F.is_valid_utf8(text), "not UTF-8")
        .when(F.get_json_object(text, "$").isNull(), "not JSON")
        .when(F.col("_corrupt").isNotNull(), "a field has the wrong type")
        .when(F.col("id").isNull(), "no field id")
    )
    raw = spark.readStream.table("events_raw")
    parsed = F.from_json(text, EVENT, {"columnNameOfCorruptRecord": "_corrupt"})
    told = raw.select("*", parsed.alias("parsed")).select("*", "parsed.*")
    return told.select("*", reason.alias("reason"))


@dp.table(comment="Events that can be relied on.")
def events() -> DataFrame:
    parsed = spark.readStream.table("events_parsed").where("reason IS NULL")
    return parsed.select(F.col("topic").alias("kind"), "id", "customer", "cents", "time")


dp.create_sink("dead_letters", "dlog", {**SERVERS, "topic": "dead-letters"})


@dp.append_flow(target="dead_letters")
def to_dead_letters() -> DataFrame:
    def header(name: str) -> Column:
        return F.struct(F.lit(name).alias("key"), F.col(name).cast("string").cast("binary").alias("value"))

    dead = spark.readStream.table("events_parsed").where("reason IS NOT NULL")
    about = F.array(*(header(name) for name in ("reason", "topic", "partition", "offset")))
    return dead.select("key", "value", about.alias("headers"))


dp.create_sink("windows", "dlog", {**SERVERS, "topic": "per-10s"})


@dp.append_flow(target="windows")
def to_windows() -> DataFrame:
    rows = spark.readStream.table("per_10s")
    return rows.select(F.col("kind").alias("key"), F.to_json(F.struct("*")).alias("value"))
