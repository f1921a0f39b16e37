"""Which attempt of which batch of which query a task is, as Spark tells it.  Pure.

| the write is                              | query                            | batch                   |
|-------------------------------------------|----------------------------------|-------------------------|
| a stream's                                | the streaming query's id         | the micro-batch's       |
| a batch write with `writeId` and `batchId`| the `writeId`                    | the `batchId`           |
| a batch write inside `foreachBatch`       | that id, and the `writeId`       | the micro-batch's       |
| a batch write with a `writeId`            | the `writeId`                    | 0: there is no other    |
| a batch write without                     | the token, which nobody else has | 0                       |

The id of a streaming query is kept in its checkpoint, and a new checkpoint is a new query.  Its run's id is
another after each start, and the checkpoint's path is spelt differently from run to run: neither will do.

Inside `foreachBatch` a `writeId` must be given: one call may write several times, and nothing else tells one
write from the next.

**Threads.**  Query and batch are properties of the thread that runs the query.  A write from another one, of
a pool of the function, is told neither, and would be taken for one that has only a `writeId`: of all batches
the first alone would be written.  Such a write has to give its `batchId`, or its thread to inherit the
properties.  It is recognised, and refused, by the settings that Spark gives the session of a stream.  (What
the function makes with another session is not; the driver warns of what is skipped.)
"""

from typing import Final, NamedTuple, Protocol

from distributedlog.model.errors import ConfigError, InvalidTransactionStateError
from distributedlog.protocol.messages.sink_transaction import ONE_RUN_PREFIX
from distributedlog.spark.sink.options import AT_LEAST_ONCE, BATCH_ID, DELIVERY, WRITE_ID

QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"
STREAM_SETTINGS: Final = ("spark.sql.requireAllClusterKeysForDistribution", "spark.sql.cbo.enabled")
"""Spark sets both to false in the session that it makes for a stream; tasks are told what was set."""
WRITE_PREFIX: Final = "write/"
"""What the ids of batch writes begin with; those of streaming queries are UUIDs."""


class Task(Protocol):
    """What is asked of Spark's `TaskContext`."""

    def getLocalProperty(self, key: str) -> str | None: ...  # noqa: N802 (Spark's names)

    def partitionId(self) -> int: ...  # noqa: N802

    def attemptNumber(self) -> int: ...  # noqa: N802

    def taskAttemptId(self) -> int: ...  # noqa: N802


class Attempt(NamedTuple):
    query_id: str
    token: int
    batch_id: int
    attempt_id: str


def find_attempt(
    task: Task, token: int, write_id: str | None, batch_id: int | None = None, *, is_stream: bool
) -> Attempt:
    query_id, batch = task.getLocalProperty(QUERY_PROPERTY), task.getLocalProperty(BATCH_PROPERTY)
    attempt_id = f"{task.partitionId()}-{task.attemptNumber()}-{task.taskAttemptId()}"
    if is_stream:
        if query_id is None or batch is None:
            raise InvalidTransactionStateError("Spark does not tell the task its query and batch")
        return Attempt(query_id, token, int(batch), attempt_id)
    if write_id is None:
        if batch is not None or _is_of_stream(task):
            raise ConfigError(
                f"a write inside foreachBatch needs the option {WRITE_ID}: a name for it that stays the same "
                "from batch to batch, and that no other write of the query has; or choose "
                f"{DELIVERY}={AT_LEAST_ONCE}"
            )
        return Attempt(ONE_RUN_PREFIX + str(token), token, 0, attempt_id)
    if batch_id is not None:
        if batch is not None and int(batch) != batch_id:
            raise ConfigError(
                f"the option {BATCH_ID} is {batch_id}, and this is batch {batch} of its query: give the "
                "number that foreachBatch hands to the function"
            )
        return Attempt(WRITE_PREFIX + write_id, token, batch_id, attempt_id)
    if query_id is not None and batch is not None:
        return Attempt(f"{query_id}/{write_id}", token, int(batch), attempt_id)
    if _is_of_stream(task):
        raise ConfigError(
            f"Spark does not tell which batch of its query the write with {WRITE_ID} {write_id!r} is of, as "
            "it is not made by the thread that foreachBatch has called: give the option "
            f"{BATCH_ID}, the number that foreachBatch hands to the function; or start the thread with "
            "pyspark.inheritable_thread_target"
        )
    return Attempt(WRITE_PREFIX + write_id, token, 0, attempt_id)


def _is_of_stream(task: Task) -> bool:
    return all(task.getLocalProperty(name) == "false" for name in STREAM_SETTINGS)
