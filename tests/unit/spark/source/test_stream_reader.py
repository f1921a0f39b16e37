"""What is read of Spark's own classes; what a stream answers is asked in tests/spark."""

from pyspark.sql.streaming.datasource import ReadMaxRows

from distributedlog.spark.source.stream_reader import StreamReader, rows_max_of

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "t", "maxOffsetsPerTrigger": "7"}


def test_the_limit_is_read_by_the_name_that_it_has() -> None:
    limit = StreamReader(OPTIONS).getDefaultReadLimit()
    assert limit == ReadMaxRows(7)
    assert rows_max_of(limit) == 7
