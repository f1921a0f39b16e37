"""A topic as a DataFrame: every record a row, and the options of Spark's Kafka source."""

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException

from distributedlog.model.errors import ConfigError
from distributedlog.spark import replanned
from distributedlog.spark.datasource import FORMAT
from distributedlog.spark.source.replanning import FILTER_PUSHDOWN
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KAFKA_SCHEMA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
    "timestampType:int>"
)
HEADERS_SCHEMA = KAFKA_SCHEMA.removesuffix(">") + ",headers:array<struct<key:string,value:binary>>>"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read(spark: "SparkSession", topics: Topics, **options: str) -> "DataFrame":
    return spark.read.format(FORMAT).options(**topics.options(**options)).load()


def values(frame: "DataFrame") -> list[bytes]:
    return [bytes(row.value) for row in frame.orderBy("partition", "offset").collect()]


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_the_columns_are_those_of_sparks_kafka_source(spark: "SparkSession", topics: Topics) -> None:
    name = topics.create("columns")
    assert read(spark, topics, subscribe=name).schema.simpleString() == KAFKA_SCHEMA
    with_headers = read(spark, topics, subscribe=name, includeHeaders="true")
    assert with_headers.schema.simpleString() == HEADERS_SCHEMA
    assert all(field.nullable for field in with_headers.schema)


def test_a_row_is_the_record(spark: "SparkSession", topics: Topics) -> None:
    name = topics.create("rows", 2)
    when = {"timestamp": 1_700_000_000_123}
    topics.produce_with(
        name, {}, key=b"k", value=b"v", partition=1, headers=[("a", b"1"), ("a", None)], **when
    )
    topics.produce_with(name, {}, value=b"", partition=1, **when)
    topics.produce_with(name, {}, key=b"gone", value=None, partition=1, **when)
    rows = read(spark, topics, subscribe=name, includeHeaders="true").orderBy("offset").collect()
    timestamp = (EPOCH + timedelta(milliseconds=when["timestamp"])).astimezone().replace(tzinfo=None)
    plain = [(*tuple(row)[2:], row.key, row.value) for row in rows]
    assert plain == [
        (name, 1, 0, timestamp, 0, [("a", b"1"), ("a", None)], b"k", b"v"),
        (name, 1, 1, timestamp, 0, None, None, b""),
        (name, 1, 2, timestamp, 0, None, b"gone", None),
    ]


def test_compressed_batches_and_the_logs_own_time_are_read(spark: "SparkSession", topics: Topics) -> None:
    name = topics.create("codecs", message_timestamp_type="LogAppendTime")
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    for codec in codecs:
        topics.produce_with(name, {"compression.codec": codec}, value=codec.encode() * 100, timestamp=1000)
    rows = read(spark, topics, subscribe=name).orderBy("offset").collect()
    assert [bytes(row.value) for row in rows] == [codec.encode() * 100 for codec in codecs]
    assert {row.timestampType for row in rows} == {1}
    assert all(row.timestamp.year > 2020 for row in rows)


def test_only_committed_transactions_are_read_by_default(spark: "SparkSession", topics: Topics) -> None:
    name = topics.create("transactions")
    producer = Producer(
        {"bootstrap.servers": topics.bootstrap, "transactional.id": name, "linger.ms": 0, "log_level": 0}
    )
    producer.init_transactions(60)
    for word in ("committed", "aborted", "again", "open"):
        producer.begin_transaction()
        producer.produce(name, word)
        producer.flush(60)
        if word == "aborted":
            producer.abort_transaction(60)
        elif word != "open":
            producer.commit_transaction(60)
    assert values(read(spark, topics, subscribe=name)) == [b"committed", b"again"]
    everything = values(read(spark, topics, subscribe=name, kafka__isolation__level="read_uncommitted"))
    assert everything == [b"committed", b"aborted", b"again", b"open"]
    producer.abort_transaction(60)


def test_columns_are_chosen_and_filtered(spark: "SparkSession", topics: Topics) -> None:
    name = topics.create("chosen", 2)
    topics.produce(name, numbered(10), 0)
    topics.produce(name, numbered(5), 1)
    frame = read(spark, topics, subscribe=name, Columns="offset, VALUE")
    assert frame.columns == ["offset", "value"]
    assert (
        frame.where("offset >= 5").count() == 5
    )  # a filter is Spark's: nothing of it is pushed to the source
    assert read(spark, topics, subscribe=name).where("partition = 1").count() == 5


def test_a_range_is_read_from_offsets_that_are_pasted(spark: "SparkSession", topics: Topics) -> None:
    name = topics.create("ranged", 2)
    topics.produce(name, numbered(10), 0)
    topics.produce(name, numbered(4), 1)
    frame = read(
        spark,
        topics,
        subscribe=name,
        startingOffsets=json.dumps({name: {"0": 3, "1": -2}}),
        endingOffsets=json.dumps({name: {"0": 5, "1": -1}}),
    )
    assert values(frame) == [b"3", b"4", b"0", b"1", b"2", b"3"]


def test_a_range_is_read_by_time(spark: "SparkSession", topics: Topics) -> None:
    name = topics.create("timed")
    for number in range(5):
        topics.produce_with(name, {}, value=b"%d" % number, timestamp=1_000_000 + number)
    at = {"startingTimestamp": "1000001", "endingTimestamp": "1000003"}
    assert values(read(spark, topics, subscribe=name, **at)) == [b"1", b"2"]
    by_partition = {"startingOffsetsByTimestamp": json.dumps({name: {"0": 1_000_004}})}
    assert values(read(spark, topics, subscribe=name, **by_partition)) == [b"4"]
    topics.produce(name, [b"now"])
    assert values(read(spark, topics, subscribe=name, startingOffsets="-10m")) == [b"now"]
    with pytest.raises(PySparkException, match=r"no record of timed-.* is as young as 99999999999999"):
        read(spark, topics, subscribe=name, startingTimestamp="99999999999999").count()


def test_topics_are_named_by_a_list_a_pattern_or_one_by_one(spark: "SparkSession", topics: Topics) -> None:
    word = topics.new_name("found")
    for suffix in ("a", "b"):
        topics.create_named(f"{word}-{suffix}", 2)
        topics.produce(f"{word}-{suffix}", numbered(3), 0)
        topics.produce(f"{word}-{suffix}", numbered(2), 1)
    assert read(spark, topics, subscribe=f"{word}-a, {word}-b").count() == 10
    assert read(spark, topics, subscribePattern=f"^{word}-[ac]$").count() == 5
    assert read(spark, topics, assign=json.dumps({f"{word}-b": [1]})).count() == 2
    assert read(spark, topics, subscribePattern="^nothing-like-this$").count() == 0


def test_a_range_is_split_into_tasks(spark: "SparkSession", topics: Topics) -> None:
    name = topics.create("split", 2)
    topics.produce(name, numbered(90), 0)
    topics.produce(name, numbered(10), 1)
    assert read(spark, topics, subscribe=name).rdd.getNumPartitions() == 2
    many = read(spark, topics, subscribe=name, minPartitions="10")
    assert many.rdd.getNumPartitions() == 10
    few = read(spark, topics, subscribe=name, maxRecordsPerPartition="25")
    assert few.rdd.getNumPartitions() == 5
    assert values(many) == values(few) == numbered(90) + numbered(10)


def test_many_rows_come_in_order_through_small_and_large_fetches(
    spark: "SparkSession", topics: Topics
) -> None:
    name = topics.create("many")
    topics.produce(name, numbered(100_000))
    for bytes_max in ("20000", "4194304"):
        frame = read(spark, topics, subscribe=name, kafka__max__partition__fetch__bytes=bytes_max)
        assert frame.select("value").toArrow().column("value").to_pylist() == numbered(100_000)


def test_records_that_retention_took_are_an_error_that_names_them(
    spark: "SparkSession", topics: Topics
) -> None:
    name = topics.create("lost")
    topics.produce(name, numbered(10))
    topics.delete_records(name, 0, 4)
    asked = {"subscribe": name, "startingOffsets": json.dumps({name: {"0": 2}})}
    with pytest.raises(PySparkException, match=rf"{name}-0 has no offsets 2 to 3 any more"):
        read(spark, topics, **asked).count()
    assert values(read(spark, topics, **asked, failOnDataLoss="false")) == numbered(10)[4:]
    assert values(read(spark, topics, subscribe=name)) == numbered(10)[4:]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "it is not said which topics to read"),
        ({"subscribe": "a", "assign": "{}"}, "subscribe and assign say different things"),
        ({"subscribe": "a", "startingOfsets": "earliest"}, "did you mean startingOffsets"),
        ({"subscribe": "a", "kafka__auto__offset__reset": "latest"}, "auto.offset.reset is not supported"),
        ({"subscribe": "a", "startingOffsets": "latest"}, "cannot start at latest"),
        ({"subscribe": "no-such-topic"}, "there is no topic 'no-such-topic'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_option_is_said_in_words(
    spark: "SparkSession", topics: Topics, options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        read(spark, topics, **options, fetchOffset__retryIntervalMs="1").count()


def test_a_view_in_sql_reads_a_topic(spark: "SparkSession", topics: Topics) -> None:
    name = topics.create("viewed")
    topics.produce(name, numbered(3))
    spark.sql(
        f"CREATE TEMPORARY VIEW viewed USING dlog OPTIONS"
        f" ('kafka.bootstrap.servers' '{topics.bootstrap}', 'subscribe' '{name}')"
    )
    assert spark.sql("SELECT count(*) AS n FROM viewed WHERE CAST(value AS STRING) > '0'").first() == (2,)


def test_a_session_that_pushes_no_filters_reads_all_the_same(spark: "SparkSession", topics: Topics) -> None:
    """Spark refuses a source with `pushFilters` unless it is told to push them."""
    name = topics.create("unpushed")
    topics.produce(name, numbered(3))
    pushes = spark.conf.get(FILTER_PUSHDOWN) or "false"
    spark.conf.set(FILTER_PUSHDOWN, "false")
    try:
        assert read(spark, topics, subscribe=name).where("offset > 0").count() == 2
    finally:
        spark.conf.set(FILTER_PUSHDOWN, pushes)


def test_a_table_is_refused_because_spark_would_drop_its_options(
    spark: "SparkSession", topics: Topics
) -> None:
    where = f"'kafka.bootstrap.servers' '{topics.bootstrap}', 'subscribe' '{topics.create('dropped')}'"
    with pytest.raises(PySparkException, match="write CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE dropped USING dlog OPTIONS ({where})")
    assert not spark.catalog.tableExists("dropped")


def test_a_read_is_planned_once_unless_it_is_replanned(spark: "SparkSession", topics: Topics) -> None:
    """Spark keeps the plan of a Python source.  Should the first assertion below fail one day, it no longer
    does, and `replanned` has become needless."""
    name = topics.create("planned")
    topics.produce(name, numbered(3))
    frame = read(spark, topics, subscribe=name)
    anew = replanned(frame)
    anew.createOrReplaceTempView("planned_anew")
    assert (frame.count(), anew.count()) == (3, 3)
    kept = read(spark, topics, subscribe=name)
    assert kept.count() == 3
    topics.produce(name, numbered(2))
    assert kept.count() == 3
    assert anew.count() == 5
    topics.produce(name, numbered(2))
    assert spark.sql("SELECT count(*) AS n FROM planned_anew").first() == (7,)
    assert anew.alias("a").join(anew.alias("b"), ["partition", "offset"]).count() == 7
    topics.produce(name, numbered(1))
    assert kept.where("partition = 0").count() == 8  # any filter on a column of the source does it


def test_a_read_that_has_only_columns_that_may_be_null_is_not_replanned(
    spark: "SparkSession", topics: Topics
) -> None:
    name = topics.create("nullable")
    with pytest.raises(ConfigError, match="load offset too"):
        replanned(read(spark, topics, subscribe=name, columns="key,value"))


def test_a_stream_that_joins_a_topic_sees_what_came_since(spark: "SparkSession", topics: Topics) -> None:
    clicks, users = topics.create("joined-clicks"), topics.create("joined-users")
    topics.send(users, key=b"1", value=b"Ada")
    topics.send(clicks, key=b"1", value=b"")
    topics.flush()
    names = read(spark, topics, subscribe=users).selectExpr("key", "value AS name")
    stream = spark.readStream.format(FORMAT).options(**topics.options(subscribe=clicks))
    query = (
        stream.option("startingOffsets", "earliest")
        .load()
        .join(names, "key", "left")
        .selectExpr("CAST(key AS STRING)", "CAST(name AS STRING)")
        .writeStream.format("memory")
        .queryName("joined")
        .start()
    )
    try:
        query.processAllAvailable()
        topics.send(users, key=b"2", value=b"Grace")
        topics.flush()
        topics.send(clicks, key=b"2", value=b"")
        topics.flush()
        query.processAllAvailable()
        assert sorted(spark.table("joined").collect()) == [("1", "Ada"), ("2", "Grace")]
    finally:
        query.stop()
