"""A driver to be killed: a topic into Parquet, a few hundred rows at a time, until somebody ends it.

python -m tests.spark.driver BOOTSTRAP TOPIC DIRECTORY
"""

import sys

from pyspark.sql.functions import col

from distributedlog.spark import session
from distributedlog.spark.session.session import QUICK_START

ROWS_PER_BATCH = 400
CONFIG = {**QUICK_START, "spark.driver.memory": "1g", "spark.python.authenticate.socketTimeout": "120s"}


def main(bootstrap: str, topic: str, directory: str) -> None:
    spark = session("killed", master="local[2]", config=CONFIG)
    query = (
        spark.readStream.format("dlog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(ROWS_PER_BATCH))
        .option("minPartitions", "4")
        .load()
        .select(col("value").cast("string").alias("value"), "partition", "offset")
        .writeStream.format("parquet")
        .option("path", f"{directory}/rows")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
