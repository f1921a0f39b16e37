"""Registers the format "dlog" with Spark, which looks for top-level modules named `pyspark_…` by itself."""

from distributedlog.spark.datasource import DlogDataSource

DefaultSource = DlogDataSource

__all__ = ["DefaultSource"]
