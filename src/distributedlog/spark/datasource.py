"""What Spark calls: the format "dlog", read and written, bounded or not.

| Spark asks for       | it is                                                                    |
|----------------------|--------------------------------------------------------------------------|
| schema               | the columns of Spark's Kafka source, or those that `columns` names       |
| a reader             | `source/batch_reader`, with the option `segments` `segments/source`      |
| a stream's reader    | `source/stream_reader`                                                   |
| a writer of either   | `sink/writer`                                                            |

An object of this class is made on the driver and is pickled into every process that plans, reads or writes:
it holds nothing but the options.  What it hands out is imported when it is asked for, so that a task that
reads does not load what writes.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from distributedlog.model.errors import ConfigError
from distributedlog.spark.plain_errors import told_plainly

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

FORMAT = "dlog"
SEGMENTS = "segments"
TABLE_OPTION = "option."
"""What the options of CREATE TABLE begin with when Spark asks for its columns."""
TABLE_FACTS = {"provider", "owner"}
"""What Spark says besides of a table."""


class DlogDataSource(DataSource):
    """`spark.dataSource.register(DlogDataSource)` is only needed where `pyspark_dlog` is not installed."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    @told_plainly
    def schema(self) -> "StructType":
        self._refuse_table()
        if SEGMENTS not in self.options:  # what is wrong is said at load(), not when the query starts
            from distributedlog.spark.source.options import check_read_options

            check_read_options(self.options)
        return self._own_schema()

    def _refuse_table(self) -> None:
        """Spark tells of a table's options when it is created, and of none when it is read."""
        if any(name.startswith(TABLE_OPTION) for name in self.options) or self.options.keys() >= TABLE_FACTS:
            raise ConfigError(
                "a table (CREATE TABLE … USING dlog) cannot be read: Spark does not keep its options; write "
                "CREATE TEMPORARY VIEW … USING dlog OPTIONS (…)"
            )

    def _own_schema(self) -> "StructType":
        from distributedlog.spark.source.columns import columns_of, spark_schema

        return spark_schema(columns_of(self.options))

    def _check_schema(self, schema: "StructType") -> None:
        """One that was given with `.schema(…)` cannot be another."""
        own = self._own_schema()
        if schema != own:
            raise ConfigError(
                f"the schema is fixed: {own.simpleString()}; choose columns with the option columns"
            )

    @told_plainly
    def reader(self, schema: "StructType") -> "DataSourceReader":
        self._check_schema(schema)
        if SEGMENTS in self.options:
            from distributedlog.spark.segments.source import SegmentReader

            return SegmentReader(self.options)
        from distributedlog.spark.source.batch_reader import BatchReader

        return BatchReader(self.options)

    @told_plainly
    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":  # noqa: N802 (Spark's name)
        self._check_schema(schema)
        if SEGMENTS in self.options:
            raise ConfigError(
                "segments is for bounded reads: read them with spark.read, and go on with a stream from where"
                " they end (segment_offsets)"
            )
        from distributedlog.spark.source.stream_reader import StreamReader

        return StreamReader(self.options)

    @told_plainly
    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":
        from distributedlog.spark.sink.writer import batch_writer

        return batch_writer(self.options, schema, overwrite)

    @told_plainly
    def streamWriter(  # noqa: N802 (Spark's name)
        self, schema: "StructType", overwrite: bool
    ) -> "DataSourceStreamWriter":
        from distributedlog.spark.sink.writer import stream_writer

        return stream_writer(self.options, schema, overwrite)
