"""Which attempt of which batch of which query a task is, as Spark tells it.  Pure.

| the write is                              | query                            | batch                   |
|-------------------------------------------|----------------------------------|-------------------------|
| a stream's                                | the streaming query's id         | the micro-batch's       |
| a batch write inside `foreachBatch`       | that id, and the `writeId`       | the micro-batch's       |
| a batch write with a `writeId`            | the `writeId`                    | 0: there is no other    |
| a batch write without                     | the token, which nobody else has | 0                       |

The id of a streaming query is kept in its checkpoint, and a new checkpoint is a new query.  Its run's id is
another after each start, and the checkpoint's path is spelt differently from run to run: neither will do.

Inside `foreachBatch` a `writeId` must be given: one call may write several times, and nothing else tells one
write from the next.
"""

from typing import Final, NamedTuple, Protocol

from distributedlog.model.errors import ConfigError, InvalidTransactionStateError
from distributedlog.spark.sink.options import WRITE_ID

QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"
WRITE_PREFIX: Final = "write/"
"""What the ids of batch writes begin with; those of streaming queries are UUIDs."""
UNNAMED_PREFIX: Final = "write-without-id/"


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


def find_attempt(task: Task, token: int, write_id: str | None, *, is_stream: bool) -> Attempt:
    query_id, batch = task.getLocalProperty(QUERY_PROPERTY), task.getLocalProperty(BATCH_PROPERTY)
    attempt_id = f"{task.partitionId()}-{task.attemptNumber()}-{task.taskAttemptId()}"
    if query_id is not None and batch is not None:
        if is_stream:
            return Attempt(query_id, token, int(batch), attempt_id)
        if write_id is None:
            raise ConfigError(
                f"a write inside foreachBatch needs the option {WRITE_ID}: a name for it that stays the same "
                "from batch to batch, and that no other write of the query has"
            )
        return Attempt(f"{query_id}/{write_id}", token, int(batch), attempt_id)
    if is_stream:
        raise InvalidTransactionStateError("Spark does not tell the task its query and batch")
    query_id = UNNAMED_PREFIX + str(token) if write_id is None else WRITE_PREFIX + write_id
    return Attempt(query_id, token, 0, attempt_id)
