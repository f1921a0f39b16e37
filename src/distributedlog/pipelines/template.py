"""The files of a new project: a pipeline that works at once, small enough to be read and changed.

    topic orders ──► orders_raw ──► orders_parsed ──► orders ──► orders_per_minute ──► topic orders-per-minute
                     (table)        (view)       │    (table)    (table, windows)
                                                 └──► topic orders-dead, with the reason

Three of Spark's habits shaped it:

- `withWatermark` in Python asks for the schema at once, when the pipeline's other tables do not exist yet;
  the window is therefore written in SQL, where `WATERMARK … DELAY OF` waits for its turn.
- `withColumn` on another table of the pipeline binds to that table as it is, if it is there already; from the
  second run on Spark then no longer sees that one depends on the other, and runs both at once: new rows come
  through one run late.  `select("*", … .alias(name))` says the same and has no such effect.
- A window is given out when the watermark has passed its end, so the last ones wait for newer records.
"""

from collections.abc import Mapping
from typing import Final

SPEC: Final = """\
name: {name}
# Where Spark keeps how far each flow has come. `dlog pipeline reset` forgets it, with the tables.
storage: {storage}
libraries:
  - glob:
      include: transformations/**
configuration:
  # Read by the definitions with spark.conf.get(…). `dlog pipeline run --bootstrap` wins over this line.
  dlog.bootstrap: "{bootstrap}"
  dlog.topic: "{topic}"
  dlog.topic.dead: "{topic}-dead"
  dlog.topic.per-minute: "{topic}-per-minute"
  # Made before a run if they are missing: NAME:PARTITIONS, separated by blanks.
  dlog.topics: "{topic}:2 {topic}-dead:1 {topic}-per-minute:1"
  # Their lag is shown from the beginning.
  dlog.topics.read: "{topic}"
  # Merge small files of tables between runs, once there are so many; read `dlog pipeline compact -h` first.
  # dlog.compact.files: "50"
  # Under this name `dlog group lag` shows how far the pipeline has come.
  dlog.group: "{name}"
"""

DEFINITIONS: Final = '''\
"""From a topic to tables: what came, what it means, and what could not be understood.

Files of this directory are read again before every run. Columns are added with select("*", …) rather than
withColumn, which from the second run on would hide from Spark that one table needs the other.
"""

from pyspark import pipelines as dp
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

spark: SparkSession  # put here by whoever runs the pipeline

SERVERS = {"kafka.bootstrap.servers": spark.conf.get("dlog.bootstrap")}
ORDER = "order STRING, customer STRING, country STRING, cents BIGINT, time TIMESTAMP, _corrupt STRING"


@dp.table(comment="Every record of the topic, as it came.")
def orders_raw() -> DataFrame:
    return (
        spark.readStream.format("dlog")
        .options(**SERVERS)
        .option("subscribe", spark.conf.get("dlog.topic"))
        .option("startingOffsets", "earliest")
        .option("kafka.group.id", spark.conf.get("dlog.group"))
        .load()
        .select("key", "value", "topic", "partition", "offset", "timestamp")
    )


@dp.temporary_view
def orders_parsed() -> DataFrame:
    """The fields of an order, or the reason why it is none."""
    text = F.col("value").cast("string")
    how = {"columnNameOfCorruptRecord": "_corrupt"}
    reason = (
        F.when(F.col("value").isNull(), "no value")
        .when(~F.is_valid_utf8("value"), "not UTF-8")
        .when(F.get_json_object(text, "$").isNull(), "not JSON")
        .when(F.col("_corrupt").isNotNull(), "a field has the wrong type")
        .when(F.col("order").isNull(), "no field order")
        .when(F.col("time").isNull(), "no field time")
        .when(F.col("cents").isNull() | (F.col("cents") < 0), "no price")
    )
    raw = spark.readStream.table("orders_raw")
    parsed = raw.select("*", F.from_json(text, ORDER, how).alias("parsed")).select("*", "parsed.*")
    return parsed.select("*", reason.alias("reason"))


@dp.table(comment="Orders that can be relied on.")
def orders() -> DataFrame:
    parsed = spark.readStream.table("orders_parsed").where("reason IS NULL")
    return parsed.select("order", "customer", "country", "cents", "time", "topic", "partition", "offset")


dp.create_sink("dead_letters", "dlog", {**SERVERS, "topic": spark.conf.get("dlog.topic.dead")})


@dp.append_flow(target="dead_letters")
def to_dead_letters() -> DataFrame:
    """What is no order: key and value as they came, and in headers why, and where it was."""

    def header(name: str) -> Column:
        return F.struct(F.lit(name).alias("key"), F.col(name).cast("string").cast("binary").alias("value"))

    dead = spark.readStream.table("orders_parsed").where("reason IS NOT NULL")
    about = F.array(*(header(name) for name in ("reason", "topic", "partition", "offset")))
    return dead.select("key", "value", about.alias("headers"))


dp.create_sink("per_minute", "dlog", {**SERVERS, "topic": spark.conf.get("dlog.topic.per-minute")})


@dp.append_flow(target="per_minute")
def to_per_minute() -> DataFrame:
    """Each finished minute of a country, as JSON, to a topic of its own."""
    rows = spark.readStream.table("orders_per_minute")
    return rows.select(F.col("country").alias("key"), F.to_json(F.struct("*")).alias("value"))
'''

WINDOW: Final = """\
-- Orders and money per country and minute. An order may come up to 30 seconds late; later ones are not
-- counted here (they are in the table orders all the same).
CREATE STREAMING TABLE orders_per_minute AS
SELECT
  country,
  window.start AS minute,
  count(*) AS orders,
  sum(cents) AS cents
FROM STREAM orders WATERMARK time DELAY OF INTERVAL 30 SECONDS
GROUP BY country, window(time, '1 minute')
"""

SAMPLE: Final = """\
{"order": "A-1", "customer": "c-7", "country": "NO", "cents": 1999, "time": "2026-01-31T12:00:05Z"}
{"order": "A-2", "customer": "c-9", "country": "PT", "cents": 4250, "time": "2026-01-31T12:00:40Z"}
{"order": "A-3", "customer": "c-7", "country": "NO", "cents": 700, "time": "2026-01-31T12:01:10Z"}
this is no order
{"order": "A-4", "customer": "c-2", "country": "PT", "cents": "many", "time": "2026-01-31T12:01:20Z"}
{"order": "A-5", "customer": "c-4", "country": "KE", "cents": 1200, "time": "2026-01-31T12:09:00Z"}
"""

README: Final = """\
# {name}

    dlog dev                                                     # in another terminal
    dlog topic produce {topic} < sample.jsonl
    dlog pipeline run                                            # until all that is there has been read
    dlog pipeline run --every 10s                                # again and again, in one Spark session
    dlog pipeline status
    dlog topic consume {topic}-dead --from beginning -e -o json  # what was no order, and why

    dlog sql --pipeline . "SELECT * FROM orders_per_minute"      # the tables, and the topics beside them

`transformations/` holds the definitions, `spark-pipeline.yml` the settings. Tables, checkpoints and what
Spark says are in `.dlog/`; `dlog pipeline reset` removes them, and the next run begins anew.
"""

IGNORED: Final = ".dlog/\n"


def files_of(name: str, topic: str, bootstrap: str, storage: str) -> Mapping[str, str]:
    """Returns path in the project → text."""
    facts = {"name": name, "topic": topic, "bootstrap": bootstrap, "storage": storage}
    return {
        "spark-pipeline.yml": SPEC.format(**facts),
        "transformations/orders.py": DEFINITIONS,
        "transformations/orders_per_minute.sql": WINDOW,
        "sample.jsonl": SAMPLE,
        "README.md": README.format(**facts),
        ".gitignore": IGNORED,
    }
