"""Loads on a transaction coordinator: `python -m tests.bench.transactions_load KIND PORT PID NUMBER`; prints
JSON.

The same for every broker that speaks Kafka's protocol, in a process of its own.

    commits   four producers, each on its connection with a transactional id of its own, commit one
              transaction after the other, each with one record in each of NUMBER partitions: a Produce that
              adds them (KIP-890), then EndTxn; a commit is timed from EndTxn to its answer, and what comes
              behind it, the markers, is part of the transactions per second, as the next one waits for them
    open      NUMBER transactional ids, each with a transaction that has a partition and is left open
    loaded    until the coordinator says of NUMBER transactions that they are open

CPU is that of the broker, all threads.
"""

import asyncio
import json
import os
import statistics
import sys
import time
from typing import Any, Final

from distributedlog.client.connection import Connection
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from distributedlog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from distributedlog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from distributedlog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from distributedlog.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from distributedlog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from distributedlog.records.record import Record, encode_batch
from tests.bench.broker_load import cpu_seconds
from tests.bench.groups_load import opened

TOPIC: Final = "in-transactions"
PARTITIONS: Final = 100
PRODUCERS: Final = 4
TOGETHER: Final = 100
RECORD_BYTES: Final = 100
SECONDS: Final = float(os.environ.get("DLOG_BENCH_SECONDS", "2"))
TIMEOUT_MS: Final = 60_000
OPEN_MS: Final = 900_000
"""How long a transaction may be open: the most that brokers allow by default."""
LOADED_SECONDS_MAX: Final = 120.0
AGAIN_SECONDS: Final = 0.002
KEY_TYPE: Final = 1
INIT_VERSION, ADD_VERSION, PRODUCE_VERSION, END_VERSION, LIST_VERSION = 5, 3, 12, 5, 1
AGAIN: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


async def found(connection: Connection, name: str) -> None:
    """Until the transactional id has a coordinator: the first one asked for makes the topic."""
    request = FindCoordinatorRequest(key_type=KEY_TYPE, coordinator_keys=[name])
    while True:
        answer = await connection.call(request, FindCoordinatorResponse, timeout_ms=TIMEOUT_MS)
        if answer.coordinators[0].error_code == ErrorCode.NONE:
            return
        await asyncio.sleep(AGAIN_SECONDS)


async def begun(connection: Connection, name: str, timeout_ms: int) -> InitProducerIdResponse:
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
    while True:
        answer = await connection.call(
            request, InitProducerIdResponse, timeout_ms=TIMEOUT_MS, version=INIT_VERSION
        )
        if answer.error_code == ErrorCode.NONE:
            return answer
        assert answer.error_code in AGAIN, answer
        await asyncio.sleep(AGAIN_SECONDS)


# --- commits -----------------------------------------------------------------------------------


class TransactionalProducer:
    """Commits one transaction after the other, each of which has an epoch of its own."""

    def __init__(self, connection: Connection, name: str, partitions: int) -> None:
        self._connection = connection
        self._name = name
        self._partitions = partitions
        self._id = self._epoch = -1
        self.commit_seconds: list[float] = []

    async def begin(self) -> None:
        await found(self._connection, self._name)
        answer = await begun(self._connection, self._name, TIMEOUT_MS)
        self._id, self._epoch = answer.producer_id, answer.producer_epoch

    async def run(self, deadline: float) -> None:
        while time.perf_counter() < deadline:
            await self._write()
            began = time.perf_counter()
            await self._commit()
            self.commit_seconds.append(time.perf_counter() - began)

    async def _write(self) -> None:
        """A batch for each partition; those that the end of the transaction before holds up, once more."""
        batch = encode_batch(
            [Record(value=b"v" * RECORD_BYTES)],
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=0,
            is_transactional=True,
        )
        missing = list(range(self._partitions))
        while missing:
            data = [PartitionProduceData(index=at, records=bytearray(batch)) for at in missing]
            request = ProduceRequest(
                transactional_id=self._name,
                acks=-1,
                timeout_ms=TIMEOUT_MS,
                topic_data=[TopicProduceData(name=TOPIC, partition_data=data)],
            )
            answer = await self._connection.call(
                request, ProduceResponse, timeout_ms=TIMEOUT_MS, version=PRODUCE_VERSION
            )
            refused = {
                each.index: each.error_code
                for each in answer.responses[0].partition_responses
                if each.error_code != ErrorCode.NONE
            }
            assert AGAIN.issuperset(refused.values()), refused
            missing = list(refused)
            if missing:
                await asyncio.sleep(AGAIN_SECONDS)

    async def _commit(self) -> None:
        request = EndTxnRequest(
            transactional_id=self._name,
            producer_id=self._id,
            producer_epoch=self._epoch,
            committed=True,
        )
        while True:
            answer = await self._connection.call(
                request, EndTxnResponse, timeout_ms=TIMEOUT_MS, version=END_VERSION
            )
            if answer.error_code == ErrorCode.NONE:
                self._id, self._epoch = answer.producer_id, answer.producer_epoch
                return
            assert answer.error_code in AGAIN, answer
            await asyncio.sleep(AGAIN_SECONDS)


async def commits(port: int, pid: int, partitions: int) -> dict[str, Any]:
    producers = [
        TransactionalProducer(await opened(port), f"committing-{at}", partitions) for at in range(PRODUCERS)
    ]
    for each in producers:
        await each.begin()
        await each.run(time.perf_counter() + AGAIN_SECONDS)  # one transaction at least, before it counts
        each.commit_seconds.clear()
    cpu, began = cpu_seconds(pid), time.perf_counter()
    await asyncio.gather(*(each.run(began + SECONDS) for each in producers))
    seconds, cpu = time.perf_counter() - began, cpu_seconds(pid) - cpu
    commit_ms = sorted(each * 1e3 for producer in producers for each in producer.commit_seconds)
    return {
        "per_second": len(commit_ms) / seconds,
        "p50_ms": statistics.median(commit_ms),
        "p99_ms": commit_ms[int(len(commit_ms) * 0.99)],
        "cpu_us": cpu * 1e6 / len(commit_ms),
    }


# --- open transactions ---------------------------------------------------------------------------


async def open_many(port: int, pid: int, count: int) -> dict[str, Any]:
    connections = [await opened(port) for _ in range(TOGETHER)]
    await found(connections[0], "open-0")

    async def open_some(at: int, connection: Connection) -> None:
        for number in range(at, count, len(connections)):
            await _open(connection, f"open-{number}", number % PARTITIONS)

    began = time.perf_counter()
    await asyncio.gather(*(open_some(at, each) for at, each in enumerate(connections)))
    return {"seconds": time.perf_counter() - began}


async def _open(connection: Connection, name: str, partition: int) -> None:
    producer = await begun(connection, name, OPEN_MS)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[partition])],
    )
    answer = await connection.call(
        request, AddPartitionsToTxnResponse, timeout_ms=TIMEOUT_MS, version=ADD_VERSION
    )
    (added,) = answer.results_by_topic_v3_and_below
    assert added.results_by_partition[0].partition_error_code == ErrorCode.NONE, answer


async def loaded(port: int, pid: int, count: int) -> dict[str, Any]:
    began = time.perf_counter()
    while time.perf_counter() - began < LOADED_SECONDS_MAX:
        try:
            if await _count_open(port) >= count:
                return {"seconds": time.perf_counter() - began}
        except (OSError, DlogError):
            pass  # it does not serve yet
        await asyncio.sleep(AGAIN_SECONDS)
    raise AssertionError(f"{count} transactions were not loaded in {LOADED_SECONDS_MAX} s")


async def _count_open(port: int) -> int:
    """How many transactions are open, as far as the coordinator has loaded all of them."""
    connection = await opened(port)
    try:
        request = ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=[])
        answer = await connection.call(
            request, ListTransactionsResponse, timeout_ms=TIMEOUT_MS, version=LIST_VERSION
        )
        return len(answer.transaction_states) if answer.error_code == ErrorCode.NONE else -1
    finally:
        connection.close()


KINDS: Final = {"commits": commits, "open": open_many, "loaded": loaded}


def main() -> None:
    kind, port, pid, number = sys.argv[1], *map(int, sys.argv[2:5])
    sys.stdout.write(json.dumps(asyncio.run(KINDS[kind](port, pid, number))) + "\n")


if __name__ == "__main__":
    main()
