"""Rows moved, before they are written, to tasks of which each writes to one partition of the topic.

A sink written in Python cannot ask Spark for this: it is done to the DataFrame.  Each attempt of a task
costs a marker, and batches of its own, in every partition that it writes to.  Where every task has rows for
every partition that is tasks x partitions of both; behind `by_target_partition` it is one for each
partition.  The price is a shuffle.

| a row has   | its task is that of          | and the sink is told                                      |
|-------------|------------------------------|-----------------------------------------------------------|
| a partition | that partition               | the same                                                  |
| a key       | the partition it decides     | nothing: if the topic has grown meanwhile, the key        |
|             |                              | decides among all partitions, as for other producers      |
| neither     | one by the hash of its value | that partition                                            |

Nothing is left to chance: a task that is repeated has the same rows.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from distributedlog.model.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from distributedlog.spark.sink.options import SinkOptions

TASK: Final = "__dlog_task"


def by_target_partition(frame: "DataFrame", options: Mapping[str, str]) -> "DataFrame":
    """The same rows in as many tasks as the topic has partitions; `options` are those of the write."""
    from distributedlog.spark.sink.columns import KEY, check_schema
    from distributedlog.spark.sink.options import parse_sink_options

    parsed = parse_sink_options(options)
    if parsed.topic is None:
        raise ConfigError("the option topic is missing: rows of one topic are moved to its partitions")
    check_schema(frame.schema, parsed.topic)
    count = _partition_count(parsed, parsed.topic)
    key = frame[KEY].cast("binary") if KEY in frame.columns else None
    return _moved(frame, key, count)


def _partition_count(options: "SinkOptions", topic: str) -> int:
    from distributedlog.spark.connections import connect

    connected = connect(options.bootstrap, options.client)
    allows = options.producer.allow_creation
    return connected.run(connected.cluster.partition_count(topic, allow_creation=allows))


def _moved(frame: "DataFrame", key: "Column | None", count: int) -> "DataFrame":
    import pyarrow as pa
    from pyspark.sql import functions
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.types import IntegerType

    from distributedlog.spark.sink.columns import KEY, PARTITION, VALUE

    def decided(keys: pa.Array) -> pa.Array:  # Spark goes by these types
        from distributedlog.records.arrow_write import partitions_of

        return partitions_of(keys, count)

    by_value = functions.pmod(functions.hash(frame[VALUE]), functions.lit(count))
    told = by_value if key is None else functions.when(key.isNull(), by_value)
    if PARTITION in frame.columns:
        told = functions.coalesce(frame[PARTITION], told)
    moved = frame.withColumn(PARTITION, told)
    task = moved[PARTITION]
    if key is not None:
        decide = arrow_udf(decided, IntegerType())  # type: ignore[call-overload]  # their stubs know less
        task = functions.coalesce(task, decide(moved[KEY].cast("binary")))
    return moved.withColumn(TASK, task).repartitionById(count, TASK).drop(TASK)
