"""The client's half of an exactly-once sink: batches that many producers write and one record commits.

    driver     `token` for each batch ──► ... ──► `end` with the attempts that won, or `abort`
    attempt    `join` ──► writes under its lease (`Producer.lease`), with `heartbeats` ──► flushes

An attempt never commits.  What it has written nobody sees before the driver's `end`; when that has returned
all of it can be seen.  Every call may be sent again: a coordinator that died is looked for, and its successor
answers the same.

| what a call raises             | what it means                                                         |
|--------------------------------|-----------------------------------------------------------------------|
| `ProducerFencedError`          | another driver goes on with the query, or the batch was aborted       |
| `InvalidTransactionStateError` | the checkpoint is older than the sink; or a winner is none, and all   |
|                                | is aborted                                                            |
| `UnsupportedVersionError`      | the broker has no such sinks (`offers_sinks`)                         |

Nothing here is kept: a driver or an attempt that dies leaves its batch to the coordinator.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from distributedlog.client.coordinators import TRANSACTION_KEY, Coordinator
from distributedlog.client.errors import check_response
from distributedlog.client.metadata import Cluster
from distributedlog.model.config import MINUTE_MS
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.sink_records import SinkWinner
from distributedlog.protocol.messages.sink_transaction import (
    SINK_ID_PREFIX,
    SinkOperation,
    SinkTransactionRequest,
    SinkTransactionResponse,
)

BATCH_TIMEOUT_MS: Final = 5 * MINUTE_MS
HEARTBEATS_IN_TIMEOUT: Final = 10


class SinkLease(NamedTuple):
    """A producer that an attempt writes as, under this transactional id."""

    transactional_id: str
    producer_id: int
    epoch: int


class SinkAttemptView(NamedTuple):
    producer_id: int
    epoch: int
    attempt_id: str
    partitions: tuple[TopicPartition, ...]


class SinkView(NamedTuple):
    """What a query is at."""

    query_id: str
    state: str
    token: int
    batch_id: int
    committed_batch_id: int
    timeout_ms: int
    start_ms: int
    attempts: tuple[SinkAttemptView, ...]
    pooled_count: int


async def offers_sinks(cluster: Cluster) -> bool:
    """Returns whether the cluster has exactly-once sinks: Kafka's brokers have not."""
    connection = await cluster.retrying(cluster.any_connection)
    return connection.serves(SinkTransactionRequest)


class Sink:
    """The batches of one query.  Works on a cluster that it is given."""

    def __init__(self, cluster: Cluster, query_id: str) -> None:
        self.query_id = query_id
        self._cluster = cluster
        self._coordinator = Coordinator(cluster, TRANSACTION_KEY, SINK_ID_PREFIX + query_id)

    async def token(self) -> int:
        """Returns a number that is higher than all that were returned before, cluster-wide."""
        request = SinkTransactionRequest(operation=SinkOperation.TOKEN, query_id=self.query_id, winners=[])

        async def attempt() -> int:
            connection = await self._cluster.any_connection()
            response = await self._cluster.call(connection, request, SinkTransactionResponse)
            check_response(response.error_code, "a token for a sink", response.error_message)
            return response.token

        return await self._cluster.retrying(attempt)

    async def join(
        self, token: int, batch_id: int, attempt_id: str, *, timeout_ms: int = BATCH_TIMEOUT_MS
    ) -> SinkLease | None:
        """Returns who the attempt writes as; None: the batch is committed, and the attempt writes nothing."""
        response = await self._ask(
            SinkTransactionRequest(
                operation=SinkOperation.JOIN,
                query_id=self.query_id,
                token=token,
                batch_id=batch_id,
                attempt_id=attempt_id,
                timeout_ms=timeout_ms,
                winners=[],
            )
        )
        if response.is_skipped:
            return None
        return SinkLease(response.transactional_id, response.producer_id, response.producer_epoch)

    async def heartbeat(self, token: int, batch_id: int, *, patience_ms: int | None = None) -> None:
        request = self._make_request(SinkOperation.HEARTBEAT, token, batch_id)
        await self._ask(request, patience_ms=patience_ms)

    @asynccontextmanager
    async def heartbeats(
        self, token: int, batch_id: int, *, timeout_ms: int = BATCH_TIMEOUT_MS
    ) -> AsyncIterator["asyncio.Task[None]"]:
        """Keeps a batch open meanwhile.  The task ends by itself only with the error that says that the
        batch is over, or when no coordinator has answered for as long as it may be open without a sign of
        life."""
        task = asyncio.create_task(self._beat(token, batch_id, timeout_ms))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _beat(self, token: int, batch_id: int, timeout_ms: int) -> None:
        patience_ms = max(timeout_ms, self._cluster.options.call_timeout_ms)
        while True:
            await self.heartbeat(token, batch_id, patience_ms=patience_ms)
            await asyncio.sleep(timeout_ms / HEARTBEATS_IN_TIMEOUT / 1000)

    async def end(self, token: int, batch_id: int, winners: Iterable[tuple[int, int]]) -> None:
        """Commits what these producers, by id and epoch, have written, and aborts everything else of the
        batch; returns when all can be seen."""
        request = self._make_request(SinkOperation.END, token, batch_id)
        request.winners = [SinkWinner(producer_id=each[0], producer_epoch=each[1]) for each in winners]
        await self._ask(request)

    async def abort(self, token: int) -> None:
        """Aborts the batch of this token, if it is open."""
        await self._ask(self._make_request(SinkOperation.ABORT, token, -1))

    async def describe(self) -> SinkView:
        """Raises `TransactionalIdNotFoundError` for a query that has never written."""
        found = await self._ask(self._make_request(SinkOperation.DESCRIBE, -1, -1))
        return SinkView(
            self.query_id,
            found.state,
            found.token,
            found.batch_id,
            found.committed_batch_id,
            found.timeout_ms,
            found.start_timestamp_ms,
            tuple(
                SinkAttemptView(
                    each.producer_id,
                    each.producer_epoch,
                    each.attempt_id,
                    tuple(TopicPartition(by.topic, at) for by in each.partitions for at in by.partition_ids),
                )
                for each in found.attempts
            ),
            found.pooled_count,
        )

    def _make_request(self, operation: SinkOperation, token: int, batch_id: int) -> SinkTransactionRequest:
        return SinkTransactionRequest(
            operation=operation, query_id=self.query_id, token=token, batch_id=batch_id, winners=[]
        )

    async def _ask(
        self, request: SinkTransactionRequest, *, patience_ms: int | None = None
    ) -> SinkTransactionResponse:
        async def attempt() -> SinkTransactionResponse:
            try:
                connection = await self._coordinator.connection()
                response = await self._cluster.call(connection, request, SinkTransactionResponse)
                about = f"the sink of query {self.query_id!r}"
                check_response(response.error_code, about, response.error_message)
            except DlogError:
                self._coordinator.forget()
                raise
            return response

        return await self._cluster.retrying(attempt, timeout_ms=patience_ms)
