"""The sink with `delivery=exactly-once`: the driver decides, by one record, which attempts' rows are seen.

Tasks are retried, and with speculation run twice; each attempt that ends tells of what it wrote, and Spark
names to the driver the one that counts.  So every attempt writes under a producer id of its own in a
transaction that stays open, and `commit` ends it with the winners (`client/sinks`, docs/decisions/0032).

| who                               | does                                                                 |
|-----------------------------------|----------------------------------------------------------------------|
| the driver, as it makes a writer  | checks options and types, and that the brokers have such sinks       |
| the driver, as it pickles it      | takes a token, higher than all before: who has a lower one is fenced |
| a task, until its first row       | gives signs of life for the others of its batch (`waiting`)          |
| a task, at its first row: `write` | joins the batch, writes under its lease, flushes, tells who it was   |
| the driver: `commit`              | ends the batch with the winners; on return all can be seen           |
| the driver: `abort`               | aborts what the messages' token has opened, unless it is decided     |

Spark makes a writer for each micro-batch, pickles it for the tasks, and makes another in another process for
`commit`: the token gets there in the tasks' messages alone.  A batch write's writer is pickled twice, with
one token.

| a task                       | tells                                                                 |
|------------------------------|-----------------------------------------------------------------------|
| without rows                 | nothing: it has not joined                                            |
| of a batch that is committed | that it was skipped: it reads its input to the end and writes nothing |
| that is cancelled            | what any other does; nobody asks it                                   |
| whose batch is over          | raises, and so does every task after it                               |

**What a crash does.**  Nothing is kept here.  Before the decision the batch is aborted by the next token, or
by its timeout; after it the coordinator finishes, and the batch that Spark plays again is skipped.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pickle import PicklingError
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from distributedlog.client.sinks import Sink, offers_sinks
from distributedlog.model.errors import (
    ConfigError,
    DlogError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    ProducerFencedError,
    UnsupportedVersionError,
)
from distributedlog.spark.connections import ConnectedCluster, connect
from distributedlog.spark.plain_errors import told_plainly
from distributedlog.spark.sink.attempts import WRITE_PREFIX, Attempt, Task, find_attempt
from distributedlog.spark.sink.columns import SinkColumns
from distributedlog.spark.sink.options import (
    AT_LEAST_ONCE,
    BATCH_ID,
    DELIVERY,
    EXACTLY_ONCE,
    WRITE_ID,
    SinkOptions,
)
from distributedlog.spark.sink.waiting import waiting
from distributedlog.spark.sink.worker import task_producer
from distributedlog.spark.sink.writer import Written, send_rows, spelled, total

if TYPE_CHECKING:
    import pyarrow

PURPOSE: Final = "sink"
LOG: Final = logging.getLogger(__name__)
LOG.setLevel(logging.INFO)  # as `writer`'s


class Winner(NamedTuple):
    """Who wrote, in which batch."""

    query_id: str
    token: int
    batch_id: int
    producer_id: int
    epoch: int


@dataclass(frozen=True)
class WrittenOnce(Written):
    """What a task wrote, to be seen if the driver says so; None: nothing."""

    winner: Winner | None = None
    skipped: Attempt | None = None
    """Who has written nothing, as its batch was committed before."""


class _ExactlyOnce:
    """What the writers of batches and of streams have in common."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns
        self._token: int | None = None
        _check_offered(options)

    def __getstate__(self) -> dict[str, Any]:
        if self._token is None:
            self._token = _take_token(self._options)
        return dict(self.__dict__)

    def _write(self, iterator: "Iterator[pyarrow.RecordBatch]", *, is_stream: bool) -> WrittenOnce:
        assert self._token is not None, "a writer gets to a task only pickled"
        named = self._options.write_id, self._options.batch_id
        attempt = find_attempt(current_task(), self._token, *named, is_stream=is_stream)
        rows = (piece for piece in iterator if piece.num_rows)
        with waiting(self._options, attempt):
            first = next(rows, None)
        if first is None:
            return WrittenOnce()
        return write_attempt(self._options, self._columns, attempt, chain([first], rows))


class ExactlyOnceWriter(_ExactlyOnce, DataSourceArrowWriter):
    @told_plainly
    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> WrittenOnce:
        return self._write(iterator, is_stream=False)

    @told_plainly
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit_winners(self._options, messages)
        warning = _warning(self._options, messages)
        if warning is None:
            LOG.info("%s", _told(messages))
        else:
            LOG.warning("%s", warning)

    @told_plainly
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        abort_batch(self._options, messages)
        LOG.warning("nothing was written: the write is aborted")


class ExactlyOnceStreamWriter(_ExactlyOnce, DataSourceStreamArrowWriter):
    @told_plainly
    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> WrittenOnce:
        return self._write(iterator, is_stream=True)

    @told_plainly
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        commit_winners(self._options, messages)
        LOG.info("batch %d: %s", batchId, _told(messages))

    @told_plainly
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        abort_batch(self._options, messages)
        LOG.warning("batch %d: it is aborted, unless it was committed before", batchId)


SKIPPED: Final = "skipped: it was committed before"


def _told(messages: Sequence[WriterCommitMessage | None]) -> str:
    return SKIPPED if _skipped(messages) else f"committed: {spelled(total(messages))}"


def _skipped(messages: Sequence[WriterCommitMessage | None]) -> list[Attempt]:
    return [each.skipped for each in messages if isinstance(each, WrittenOnce) and each.skipped is not None]


def _warning(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> str | None:
    """Says that rows were left out because of a name that only the user can know to be another write's; None:
    none were, or it was the query itself that came again."""
    if not any(each.query_id.startswith(WRITE_PREFIX) for each in _skipped(messages)):
        return None
    name = f"{WRITE_ID} {options.write_id!r}"
    if options.batch_id is not None:
        return (
            f"{SKIPPED}, batch {options.batch_id} of {name}; if these are other rows, of another query or "
            f"checkpoint, give another {WRITE_ID}"
        )
    return (
        f"{SKIPPED}, under {name}; if these are other rows, give another {WRITE_ID}, and to the writes of a "
        f"stream's batches a {BATCH_ID}"
    )


# --- the driver --------------------------------------------------------------------------------


def _connect(options: SinkOptions) -> ConnectedCluster:
    return connect(options.bootstrap, options.client, PURPOSE)


def _check_offered(options: SinkOptions) -> None:
    connected = _connect(options)
    if not connected.run(offers_sinks(connected.cluster)):
        raise _not_offered(options)


def _not_offered(options: SinkOptions) -> ConfigError:
    return ConfigError(
        f"the brokers at {options.bootstrap} do not offer {DELIVERY}={EXACTLY_ONCE}: choose "
        f"{DELIVERY}={AT_LEAST_ONCE}, after which a task that Spark repeats may have written rows twice"
    )


def _take_token(options: SinkOptions) -> int:
    """Raises what Spark's pickler passes on as it is."""
    connected = _connect(options)
    try:
        return connected.run(Sink(connected.cluster, PURPOSE).token())
    except DlogError as error:
        raise PicklingError(f"no token for the batch: {error}") from None


def commit_winners(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Ends the batch with those who count; there is none to end where no task had rows, or all skipped."""
    winners = _winners(messages)
    if not winners:
        return
    batches = {each[:3] for each in winners}
    if len(batches) > 1:
        raise InvalidTransactionStateError(f"the tasks have written in several batches: {sorted(batches)}")
    ((query_id, token, batch_id),) = batches
    connected = _connect(options)
    ended = Sink(connected.cluster, query_id).end(
        token, batch_id, [(each.producer_id, each.epoch) for each in winners]
    )
    try:
        connected.run(ended)
    except DlogError as error:
        raise _explained(error, options, query_id) from None


def abort_batch(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Without a message there is no token: the next one, or the timeout, aborts the batch."""
    connected = _connect(options)
    for query_id, token in {(each.query_id, each.token) for each in _winners(messages)}:
        connected.run(Sink(connected.cluster, query_id).abort(token))


def _winners(messages: Sequence[WriterCommitMessage | None]) -> list[Winner]:
    return [each.winner for each in messages if isinstance(each, WrittenOnce) and each.winner is not None]


# --- a task ------------------------------------------------------------------------------------


def current_task() -> Task:
    task = TaskContext.get()
    assert task is not None, "`write` is called in a task"
    return task


def write_attempt(
    options: SinkOptions,
    columns: SinkColumns,
    attempt: Attempt,
    iterator: "Iterator[pyarrow.RecordBatch]",
) -> WrittenOnce:
    """Writes rows, of which there is one at least, as this attempt."""
    try:
        with task_producer(options) as producer:
            lease = producer.join(attempt)
            if lease is None:
                for _ in iterator:  # what is not read to its end fails its task
                    pass
                return WrittenOnce(skipped=attempt)
            counts = send_rows(options, columns, producer, iterator)
    except DlogError as error:
        raise _explained(error, options, attempt.query_id) from None
    winner = Winner(attempt.query_id, attempt.token, attempt.batch_id, lease.producer_id, lease.epoch)
    return WrittenOnce(counts, winner)


def _explained(error: DlogError, options: SinkOptions, query_id: str) -> DlogError:
    """Says what to do, of errors that belong to the protocol."""
    match error:
        case ProducerFencedError() | InvalidProducerEpochError():
            return ProducerFencedError(
                f"query {query_id!r} was gone on with by another driver, or its batch was aborted after "
                f"{options.batch_timeout_ms} ms without a sign of life: nothing of the batch was written; if "
                f"no other driver runs, start the query again ({error})"
            )
        case InvalidTransactionStateError() if "checkpoint is older" in str(error):
            again = "which is a new query" if options.batch_id is None else f"and another {WRITE_ID}"
            return InvalidTransactionStateError(
                f"{error}: go on from the checkpoint that wrote last, or begin with a new one, {again} and "
                "writes everything again"
            )
        case UnsupportedVersionError():
            return _not_offered(options)
    return error
