"""A backfill from segment files that hands over to the live stream at the exact offset: every row once.

    python examples/backfill_then_live.py BOOTSTRAP DATA_DIRECTORY TOPIC TARGET

The history of a topic may be large, and reading it through the broker would take the broker's time from
everybody else.  So it is read from the files, by as many tasks as there are cores, while the broker goes on.
Where the files end (as far as they are committed now) is asked once, before anything is read; the backfill
ends there and the stream begins there.  What is produced meanwhile is the stream's.

Both write Parquet into the same table, here a folder for each.  The hand-over is written down once the
backfill is complete: run again, the program leaves the backfill as it is and the stream goes on where it was.
Without that, a second backfill would end later, and have rows that the stream has had already.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from distributedlog.spark.segments.source import segment_offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def backfill_then_live(
    spark: "SparkSession", bootstrap: str, data_directory: str, topic: str, target: str
) -> str:
    """Reads everything that there is, and what comes while it runs; the offsets of the hand-over."""
    written_down = Path(target) / "hand-over.json"
    if written_down.exists():
        hand_over = written_down.read_text()
    else:
        hand_over = segment_offsets(data_directory, subscribe=topic)
        history = (
            spark.read.format("dlog")
            .option("segments", data_directory)
            .option("subscribe", topic)
            .option("endingOffsets", hand_over)
            .load()
        )
        history.write.mode("overwrite").parquet(f"{target}/history")  # what a crash left is replaced
        unfinished = written_down.with_suffix(".new")
        unfinished.write_text(hand_over)
        unfinished.replace(written_down)

    live = (
        spark.readStream.format("dlog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", hand_over)
        .load()
    )
    query = (
        live.writeStream.format("parquet")
        .option("checkpointLocation", f"{target}/checkpoint")
        .trigger(availableNow=True)  # leave this out to go on for ever
        .start(f"{target}/live")
    )
    query.awaitTermination()
    return hand_over


def main() -> None:
    if len(sys.argv) != 5:
        raise SystemExit("usage: backfill_then_live.py BOOTSTRAP DATA_DIRECTORY TOPIC TARGET")
    from distributedlog.spark import session

    spark = session("backfill-then-live")
    backfill_then_live(spark, *sys.argv[1:])
    spark.stop()


if __name__ == "__main__":
    main()
