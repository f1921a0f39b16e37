"""Topics as DataFrames: `spark.read|readStream|write|writeStream.format("dlog")`.

    session, java      a Spark session, and what it needs
    moments            times as people write them                                                     PURE
    offsets            positions as JSON, those of Spark's Kafka source                               PURE
    columns            rows as Spark wants them: schemas, and fetched batches to Arrow                PURE
    subscription       which topics and partitions a reader is about                                  PURE
    kafka_options      the options that begin with `kafka.`                                           PURE
    options            what a reader can be told, under the names of Spark's Kafka source             PURE
    ranges             which offsets a micro-batch takes, and into which tasks they are split         PURE
    losses             what is not there any more: an error, or a line in the log
    worker_memory      what a worker process has in memory for good
    connections        the clusters of a process: kept from task to task, safe against fork
    topics             which partitions a subscription means now, their ends, and what is lost
    watching           waiting for something new without asking again and again
    sampling           how many bytes an offset takes
    fetching           one task: a range of offsets, from the broker to Arrow
    progress           how far a query has come, told to a consumer group
    batch_reader       a bounded read
    replanning         a bounded read whose bounds are looked up by every query
    stream_reader      a query that goes on
    segment_source     a bounded read of segment files, without a broker
    sink               rows into topics
    datasource         what Spark calls

Each imports only from above it.  pyarrow and pyspark come with the extra `spark` and are imported where they
are needed; nothing here is imported by the rest of the package but the command line.
"""

from distributedlog.spark.session.session import session
from distributedlog.spark.sink.repartitioning import by_target_partition
from distributedlog.spark.source.replanning import replanned

__all__ = ["by_target_partition", "replanned", "session"]
