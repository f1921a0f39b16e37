"""The program that the cluster runs: a stream from topic to topic, each row with the worker's address.

python -m tests.spark.cluster_job MASTER BOOTSTRAP FROM TO CHECKPOINT
"""

import os
import sys

from pyspark.sql.functions import col, udf

from distributedlog.spark.session import close, session
from tests.spark.standalone import QUICK_JVM

CONFIG = {
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.sql.shuffle.partitions": "2",
}


def main(master: str, bootstrap: str, source: str, target: str, checkpoint: str) -> None:
    spark = session("cluster-job", master=master, config=CONFIG)
    where = udf(lambda: os.environ["SPARK_LOCAL_IP"]).asNondeterministic()
    rows = (
        spark.readStream.format("dlog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxRecordsPerPartition", "250")
        .load()
    )
    query = (
        rows.select(where().alias("key"), col("value"))
        .writeStream.format("dlog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    close()


if __name__ == "__main__":
    main(*sys.argv[1:])
