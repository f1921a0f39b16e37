"""The exactly-once sink under a real Spark: failed and replayed batches, writes that are repeated."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import inheritable_thread_target
from pyspark.errors import PySparkException, StreamingQueryException

from distributedlog.client.offset_specs import Isolation
from distributedlog.client.partitioner import partition_of
from distributedlog.model.errors import ConfigError
from distributedlog.spark import by_target_partition
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


def run(started: "DataStreamWriter", checkpoint: Path) -> "StreamingQuery":
    query: StreamingQuery = (
        started.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    )
    try:
        assert query.awaitTermination(LIMIT_S)
    finally:
        query.stop()
    return query


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


def test_rows_moved_to_the_tasks_of_their_partitions_cost_a_marker_for_each_partition(
    spark: "SparkSession", stage: Stage, tmp_path: Path
) -> None:
    target, rows = stage.create("once-moved", 3), 60
    frame = spark.range(0, rows, 1, numPartitions=4).selectExpr(
        "if(id % 4 = 0, null, concat('k', id)) as key",
        "cast(id as string) as value",
        "if(id % 10 = 0, 2, null) as partition",
    )
    options = once(stage, target)
    moved = by_target_partition(frame, options)
    assert moved.rdd.getNumPartitions() == 3
    moved.write.format("dlog").options(**options).mode("append").save()
    assert sum(stage.ends(target).values()) == rows + 3, "one marker for each task, which wrote to one"
    found = {record.value: at for at, each in stage.read(target).items() for record in each}
    for number in range(rows):
        if number % 10 == 0:
            assert found[b"%d" % number] == 2
        elif number % 4:
            assert found[b"%d" % number] == partition_of(b"k%d" % number, 3)
    assert set(found) == {b"%d" % number for number in range(rows)}
    with pytest.raises(ConfigError, match="the option topic is missing"):
        by_target_partition(frame, stage.options())
    streamed = once(stage, stage.create("once-moved-streamed", PARTITIONS))
    stream = by_target_partition(source(spark, stage, "once-moved-from").select("value"), streamed)
    run(stream.writeStream.format("dlog").options(**streamed), tmp_path / "checkpoint")
    assert seen(stage, streamed["topic"]) == list(range(40))
    assert sum(stage.ends(streamed["topic"]).values()) == 40 + PARTITIONS


def test_a_query_writes_to_several_topics_at_once_and_its_progress_counts_the_rows(
    spark: "SparkSession", stage: Stage, tmp_path: Path
) -> None:
    targets = [stage.create(f"once-several-{at}", PARTITIONS) for at in range(2)]
    routed = source(spark, stage, "once-several-from", maxOffsetsPerTrigger="30").selectExpr(
        f"if(partition = 0, '{targets[0]}', '{targets[1]}') as topic", "value"
    )
    options = stage.options(delivery="exactly-once")
    query = run(routed.writeStream.format("dlog").options(**options), tmp_path / "checkpoint")
    assert [seen(stage, target) for target in targets] == [list(range(0, 40, 2)), list(range(1, 40, 2))]
    told = [each.sink.numOutputRows for each in query.recentProgress if each.numInputRows]
    assert told == [30, 10]


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


def test_writes_of_a_pool_inside_foreach_batch_say_their_batch_or_are_refused(
    spark: "SparkSession", stage: Stage, tmp_path: Path
) -> None:
    stream = source(spark, stage, "once-pool-from", maxOffsetsPerTrigger="20").select("value")
    targets = [stage.create(f"once-pool-{at}", PARTITIONS) for at in range(2)]

    def write(frame: "DataFrame", options: dict[str, str]) -> None:
        frame.sparkSession.createDataFrame([], "none int")  # or the thread has no session: nothing is found
        frame.write.format("dlog").options(**options).mode("append").save()

    def at_once(*calls: "Callable[[], None]") -> None:
        with ThreadPoolExecutor(len(calls)) as pool:
            for started in [pool.submit(call) for call in calls]:
                started.result()

    def unsaid(frame: "DataFrame", _: int) -> None:
        at_once(lambda: write(frame, once(stage, targets[0], writeId=targets[0])))

    def said(frame: "DataFrame", batch: int) -> None:
        named = once(stage, targets[0], writeId=targets[0], batchId=str(batch))
        inherited = once(stage, targets[1], writeId=targets[1])
        at_once(
            lambda: write(frame, named),
            inheritable_thread_target(spark)(lambda: write(frame, inherited)),
        )

    with pytest.raises(StreamingQueryException, match="give the option batchId"):
        run(stream.writeStream.foreachBatch(unsaid), tmp_path / "refused")
    for _ in range(2):
        run(stream.writeStream.foreachBatch(said), tmp_path / "checkpoint")
        assert [seen(stage, target) for target in targets] == [list(range(40))] * 2
        forget_last_commit(tmp_path / "checkpoint")
