"""What a scrape shows of transactions."""

import asyncio

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import TopicPartition
from distributedlog.transactions.requests import AddRequest, EndRequest, InitRequest
from distributedlog.transactions.sinks.query import sink_id_of
from distributedlog.transactions.sinks.requests import SinkAbort, SinkJoin
from tests.unit.broker.transaction_stage import ID, TIMEOUT_MS, TransactionStage


def scraped(stage: TransactionStage) -> dict[tuple[str, ...], object]:
    return {
        (family.name, *sample.labels.values()): sample.value
        for family in stage.coordinators.metrics.families()
        for sample in family.samples
    }


def test_open_transactions_aborts_and_waiting_markers_are_seen() -> None:
    async def story() -> None:
        stage = TransactionStage()
        await stage.settle()
        assert scraped(stage)["dlog_transaction_oldest_seconds",] == 0
        producer = await stage.producer_of(InitRequest(ID, TIMEOUT_MS))
        await stage.ask(AddRequest(ID, producer, frozenset({TopicPartition("t", 0)})))
        await stage.advance(3_000)
        seen = scraped(stage)
        assert seen["dlog_transactional_ids", "Ongoing"] == 1
        assert seen["dlog_transactional_ids", "Empty"] == 0
        assert seen["dlog_transaction_oldest_seconds",] == 3
        stage.leaders.decide = lambda partition: ErrorCode.NOT_ENOUGH_REPLICAS
        await stage.ask(EndRequest(ID, producer, False))
        seen = scraped(stage)
        assert seen["dlog_transaction_markers_waiting",] == 1
        assert seen["dlog_transactions_aborted", "client"] == 1
        assert seen["dlog_transactions_aborted", "timeout"] == 0
        stage.leaders.decide = lambda partition: ErrorCode.NONE
        await stage.advance(5_000)
        seen = scraped(stage)
        assert seen["dlog_transaction_markers_waiting",] == 0
        assert seen["dlog_transactional_ids", "CompleteAbort"] == 1
        assert seen["dlog_transaction_coordinators_loading",] == 0
        assert seen["dlog_transaction_unreadable_records",] == 0
        stage.coordinators.close()

    asyncio.run(story())


def test_sinks_are_counted_and_their_open_batches_are_open_transactions() -> None:
    async def story() -> None:
        stage = TransactionStage()
        await stage.settle()
        for attempt in ("0-0", "0-1"):
            await stage.ask(SinkJoin("q", 1, 0, attempt, TIMEOUT_MS), sink_id_of("q"))
        await stage.advance(2_000)
        seen = scraped(stage)
        assert seen["dlog_sink_queries", "Ongoing"] == 1
        assert (seen["dlog_sink_attempts",], seen["dlog_sink_pooled_producer_ids",]) == (2, 0)
        assert seen["dlog_transaction_oldest_seconds",] == 2
        await stage.ask(SinkAbort("q", 1), sink_id_of("q"))
        await stage.advance(1_000)
        seen = scraped(stage)
        assert seen["dlog_sink_queries", "CompleteAbort"] == 1
        assert (seen["dlog_sink_attempts",], seen["dlog_sink_pooled_producer_ids",]) == (0, 2)
        assert seen["dlog_transaction_oldest_seconds",] == 0
        stage.coordinators.close()

    asyncio.run(story())
