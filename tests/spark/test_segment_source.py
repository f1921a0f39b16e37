"""Segment files under a real Spark: the rows that the broker gives, without the broker; and the hand-over."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from examples.backfill_then_live import backfill_then_live

from tests.spark.sink_stage import Stage, stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NEVER_MS = 3_600_000
TOPIC = "history"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Stage]:
    """A broker that writes its high watermarks down only when it stops."""
    with stage(tmp_path / "own", **{"replica.high.watermark.checkpoint.interval.ms": NEVER_MS}) as made:
        yield made


def produce(spark: "SparkSession", here: Stage, first: int, end: int, codec: str) -> None:
    rows = spark.range(first, end).selectExpr(
        "case when id % 5 = 0 then null else concat('k', id) end as key",
        "cast(id as string) as value",
        "if(id % 3 = 0, null, array(named_struct('key', 'h', 'value', cast('x' as binary)))) as headers",
    )
    options = here.options(topic=TOPIC, **{"kafka.compression.type": codec, "kafka.batch.size": "4000"})
    rows.write.format("dlog").options(**options).mode("append").save()


def restart(here: Stage) -> None:
    assert here.server.stop() == 0
    here.server.restart()


def sorted_rows(frame: "DataFrame") -> list[str]:
    return sorted(map(str, frame.orderBy("partition", "offset").collect()))


def test_segments_give_the_rows_that_the_broker_gives_and_need_no_broker(
    spark: "SparkSession", own: Stage
) -> None:
    own.create(TOPIC, 2, internal_segment_bytes="20000", index_interval_bytes="1000")
    for number, codec in enumerate(("none", "zstd", "lz4")):
        produce(spark, own, number * 1000, number * 1000 + 1000, codec)
    options = {"subscribe": TOPIC, "includeHeaders": "true"}
    through_broker = spark.read.format("dlog").options(**own.options(**options)).load()
    expected = sorted_rows(through_broker)
    assert len(expected) == 3000
    directory = own.data_directory
    assert own.server.stop() == 0
    segments = spark.read.format("dlog").option("segments", directory).option("minPartitions", "12")
    frame = segments.options(**options).load()
    assert frame.schema == through_broker.schema
    assert frame.rdd.getNumPartitions() >= 6
    assert sorted_rows(frame) == expected


def test_the_example_hands_over_from_backfill_to_live_and_every_row_is_there_once(
    spark: "SparkSession", own: Stage, tmp_path: Path
) -> None:
    own.create(TOPIC, 3)
    produce(spark, own, 0, 500, "none")
    whole = own.ends(TOPIC)
    restart(own)
    produce(spark, own, 500, 800, "lz4")
    target = str(tmp_path / "target")
    hand_over = backfill_then_live(spark, own.bootstrap, own.data_directory, TOPIC, target)
    assert json.loads(hand_over)[TOPIC] == {str(partition): end for partition, end in whole.items()}
    history, live = spark.read.parquet(f"{target}/history"), spark.read.parquet(f"{target}/live")
    assert (history.count(), live.count()) == (500, 300)
    restart(own)  # now the files are known to be whole further on
    produce(spark, own, 800, 900, "none")
    assert backfill_then_live(spark, own.bootstrap, own.data_directory, TOPIC, target) == hand_over
    history, live = spark.read.parquet(f"{target}/history"), spark.read.parquet(f"{target}/live")
    assert (history.count(), live.count()) == (500, 400)
    rows = history.unionByName(live).selectExpr("partition", "offset", "cast(value as string) as value")
    found = rows.collect()
    assert sorted(int(row.value) for row in found) == list(range(900))
    assert len({(row.partition, row.offset) for row in found}) == 900
