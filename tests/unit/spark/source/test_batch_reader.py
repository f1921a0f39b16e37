"""What Spark finds in the reader of a bounded read; what it reads is in tests/spark."""

from pyspark.sql.datasource import DataSourceReader

from distributedlog.spark.source.batch_reader import BatchReader


def test_filters_stay_with_spark() -> None:
    """A reader with `pushFilters` of its own is refused in every session that does not push filters."""
    assert BatchReader.pushFilters is DataSourceReader.pushFilters
