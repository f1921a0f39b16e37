"""The exactly-once sink under a real Spark: failed and replayed batches, writes that are repeated."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from distributedlog.client.offset_specs import Isolation
from tests.spark.sink_stage import Stage
from tests.system.server_process import ServerProcess
from tests.system.transactions.sink_driver import driving

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

PARTITIONS = 2
LIMIT_S = 120


@pytest.fixture
def stage(broker: ServerProcess) -> Stage:
    return Stage(broker)


def seen(stage: Stage, topic: str, isolation: Isolation = Isolation.READ_COMMITTED) -> list[int]:
    async def read() -> list[str]:
        async with driving(stage.bootstrap, "reader", topic) as reading:
            return await reading.read(PARTITIONS, isolation)

    return sorted(map(int, asyncio.run(asyncio.wait_for(read(), LIMIT_S))))


def source(spark: "SparkSession", stage: Stage, name: str, **more: str) -> "DataFrame":
    """Returns a stream of the numbers to 39, odd ones in partition 1, each with its offset, up to 19."""
    topic = stage.create(name, PARTITIONS)
    stage.fill(topic, [str(number).encode() for number in range(40)])
    options = stage.options(subscribe=topic, startingOffsets="earliest", **more)
    return spark.readStream.format("dlog").options(**options).load()


def once(stage: Stage, target: str, **more: str) -> dict[str, str]:
    return stage.options(topic=target, delivery="exactly-once", **more)


def run(started: "DataStreamWriter", checkpoint: Path) -> None:
    query: StreamingQuery = (
        started.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    )
    try:
        assert query.awaitTermination(LIMIT_S)
    finally:
        query.stop()


def forget_last_commit(checkpoint: Path) -> int:
    """What a checkpoint is like whose driver died when the sink had committed and Spark had not."""
    last = max(int(each.name) for each in (checkpoint / "commits").iterdir() if each.name.isdecimal())
    for name in (str(last), f".{last}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    return last


def test_a_batch_that_failed_is_never_seen_and_one_that_is_played_again_is_skipped(
    spark: "SparkSession", stage: Stage, tmp_path: Path
) -> None:
    stream = source(spark, stage, "once-from", maxOffsetsPerTrigger="20")
    target, checkpoint = stage.create("once-to", PARTITIONS), tmp_path / "checkpoint"
    breaks = "partition = 1 and offset = 19"
    breaking = stream.selectExpr(
        f"case when {breaks} then cast(raise_error('broken') as binary) else value end as value"
    )
    options = once(stage, target)
    with pytest.raises(StreamingQueryException, match="broken"):
        run(breaking.writeStream.format("dlog").options(**options), checkpoint)
    assert seen(stage, target) == list(range(20))
    run(stream.select("value").writeStream.format("dlog").options(**options), checkpoint)
    assert seen(stage, target) == list(range(40))
    written = seen(stage, target, Isolation.READ_UNCOMMITTED)
    forget_last_commit(checkpoint)
    run(stream.select("value").writeStream.format("dlog").options(**options), checkpoint)
    assert seen(stage, target, Isolation.READ_UNCOMMITTED) == written, "a skipped batch writes nothing"
    assert seen(stage, target) == list(range(40))


def test_a_batch_write_with_an_id_is_repeated_in_vain(spark: "SparkSession", stage: Stage) -> None:
    target = stage.create("once-batch", PARTITIONS)
    numbers = spark.range(0, 40, 1, numPartitions=4).selectExpr("cast(id as string) as value")
    bad = numbers.selectExpr(
        "case when value = '39' then cast(raise_error('broken') as string) else value end as value"
    )

    def write(frame: "DataFrame") -> None:
        options = once(stage, target, writeId="daily-2026-11-18")
        frame.write.format("dlog").options(**options).mode("append").save()

    with pytest.raises(PySparkException, match="broken"):
        write(bad)
    assert seen(stage, target) == []
    for _ in range(2):
        write(numbers)
        assert seen(stage, target) == list(range(40))


def test_writes_inside_foreach_batch_are_told_apart_and_need_an_id(
    spark: "SparkSession", stage: Stage, tmp_path: Path
) -> None:
    stream = source(spark, stage, "once-each-from").select("value")
    targets = [stage.create(f"once-each-{at}", PARTITIONS) for at in range(2)]

    def into(*written: dict[str, str]) -> "Callable[[DataFrame, int], None]":
        def write(frame: "DataFrame", _: int) -> None:
            for options in written:
                frame.write.format("dlog").options(**options).mode("append").save()

        return write

    with pytest.raises(StreamingQueryException, match="inside foreachBatch needs the option writeId"):
        run(stream.writeStream.foreachBatch(into(once(stage, targets[0]))), tmp_path / "refused")
    both = into(*(once(stage, target, writeId=target) for target in targets))
    for _ in range(2):
        run(stream.writeStream.foreachBatch(both), tmp_path / "checkpoint")
        assert [seen(stage, target) for target in targets] == [list(range(40))] * 2
        forget_last_commit(tmp_path / "checkpoint")
