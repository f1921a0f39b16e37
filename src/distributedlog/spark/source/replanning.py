"""A DataFrame whose bounds are looked up for every query, as those of Spark's Kafka source are.

Spark keeps the plan of a source written in Python with the DataFrame, or the view, that `load()` made: the
first query asks the source for its partitions, and every later one is given the same, however much has come
since (`PythonDataSourceV2.readInfo` in Spark 4.2 and 4.3).  Nothing in Python's interface clears it.

There is one way past it.  With `spark.sql.python.filterPushdown.enabled`, Spark offers a query's filters to
the source each time it optimizes one, and takes the partitions that come back with the answer, whether any
filter was accepted or not.  So

| a query                                                 | its bounds are looked up               |
|---------------------------------------------------------|----------------------------------------|
| with a filter on a column of the source                 | when it is run                         |
| with a join, of streams too, whose key is such a column | when it is run: Spark drops null keys  |
| of `replanned(frame)`                                   | when it is run                         |
| with none of these                                      | once for the DataFrame                 |

`replanned` adds a filter that every row passes: that a column is not null which never is.  `session()` sets
the option; in other sessions `replanned` sets it.  None of the filters is used to read less: two reads of one
DataFrame in a query share one plan, and one would then be given the other's.

A DataFrame that has been collected keeps its plan as a whole, with every source there is: make another one of
it (`frame.select("*")`) to collect it again.
"""

from typing import TYPE_CHECKING, Final

from distributedlog.model.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILTER_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
NEVER_NULL: Final = ("offset", "partition", "topic", "timestamp", "timestampType")


def replanned(frame: "DataFrame") -> "DataFrame":
    """The same rows; what the source holds is looked up by every query, not by the first alone."""
    names = frame.columns
    column = next((name for name in NEVER_NULL if name in names), None)
    if column is None:
        raise ConfigError(
            f"each of the columns {', '.join(names)} may be null; load offset too (option columns), and drop"
            " it afterwards"
        )
    frame.sparkSession.conf.set(FILTER_PUSHDOWN, "true")
    return frame.where(frame[column].isNotNull())
