"""What a scrape shows of transactions."""

import asyncio

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import TopicPartition
from distributedlog.transactions.requests import AddRequest, EndRequest, InitRequest
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
