"""The data handlers behind a real server: bytes in, bytes out, and what is left of clients that misbehave."""

import asyncio
import struct
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from distributedlog.broker.loops import LoopScheduler, PostingExecutor
from distributedlog.broker.net.connection import GONE, REFUSED
from distributedlog.broker.net.dispatch import HANDLERS
from distributedlog.broker.net.server import KafkaServer
from distributedlog.broker.observability.metrics import BrokerMetrics
from distributedlog.broker.quotas.replication_quotas import ReplicationQuotas
from distributedlog.broker.replicas.delayed import Purgatory
from distributedlog.broker.replicas.fetch_sessions import FetchSessionCache
from distributedlog.broker.replicas.partitions import PartitionSet
from distributedlog.broker.replicas.step_queue import StepQueue
from distributedlog.broker.services import Services
from distributedlog.model.config import KIB
from distributedlog.model.error_codes import ErrorCode
from distributedlog.ports.clock import SystemClock
from distributedlog.ports.disk import SystemDisk
from distributedlog.ports.executor import SystemExecutor
from distributedlog.protocol.codec import join_parts
from distributedlog.protocol.framing import decode_response, encode_request
from distributedlog.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from distributedlog.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from distributedlog.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from distributedlog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from distributedlog.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)
from distributedlog.protocol.schema import Message
from distributedlog.settings.addresses import Listener
from distributedlog.settings.node_settings import NodeSettings
from distributedlog.storage.checkpoints import META_PROPERTIES_FILE, MetaProperties, encode_meta_properties
from distributedlog.storage.files import Files
from tests.simulation.clock import SeededRandomness
from tests.unit.broker.handlers.admin_stage import registration_of
from tests.unit.broker.handlers.data_requests import (
    deletion_request,
    epoch_request,
    fetch_request,
    offsets_request,
    only,
    values,
    wanted,
)
from tests.unit.broker.handlers.data_stage import TOPIC, TOPIC_NUMBER, produce_request
from tests.unit.broker.handlers.transaction_stage import ScriptedVerifier
from tests.unit.broker.partition_stage import CLUSTER, ME, Metadata, topic_id
from tests.unit.broker.server_stage import SECRET_HOLDER, Client, Counts, run
from tests.unit.storage.support import batch_of, value_of

R = TypeVar("R", bound=Message)
NOW_MS = SystemClock().wall_ms()
SERVED = (
    ProduceRequest,
    FetchRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
    DeleteRecordsRequest,
)


class Served:
    """A broker that serves the topic `t`, and what its clients got."""

    def __init__(self, root: Path) -> None:
        for request in SERVED:
            registration_of(request)
        loop, clock, disk = asyncio.get_running_loop(), SystemClock(), SystemDisk()
        meta = encode_meta_properties(MetaProperties(CLUSTER, ME, topic_id(99)))
        Files(disk).write_atomically(f"{root}/{META_PROPERTIES_FILE}", meta)
        settings = NodeSettings(
            node_id=ME, data_dir=str(root), listeners=(Listener("PLAINTEXT", "127.0.0.1", 0),)
        )
        scheduler = LoopScheduler(loop, clock)
        self.executor = SystemExecutor(threads=1)
        self.partitions = PartitionSet.open(
            disk,
            settings,
            clock=clock,
            randomness=SeededRandomness(1),
            scheduler=scheduler,
            executor=PostingExecutor(self.executor, scheduler),
            on_failure=lambda failure: None,
        )
        metadata = Metadata()
        self.partitions.apply_image(metadata.create(TOPIC, TOPIC_NUMBER))
        self.purgatory = Purgatory(self.partitions.signals, clock=clock, scheduler=scheduler)
        self.verifier = ScriptedVerifier()
        self.services = services = Services(
            settings=settings,
            clock=clock,
            metadata=metadata,
            controller=cast(Any, None),
            partitions=self.partitions,
            purgatory=self.purgatory,
            searches=StepQueue(PostingExecutor(self.executor, scheduler)),
            preparations=StepQueue(PostingExecutor(self.executor, scheduler), running_max=2),
            fetch_sessions=FetchSessionCache(8, randomness=SeededRandomness(1), idle=self.purgatory.idle),
            replication_quotas=ReplicationQuotas(settings),
            producer_ids=cast(Any, None),
            groups=cast(Any, None),
            transactions=cast(Any, None),
            transaction_verifier=self.verifier,
            metrics=BrokerMetrics(),
            secret_holder=SECRET_HOLDER,
        )
        self.counts = Counts()
        self.server = KafkaServer(settings, services, loop, handlers=HANDLERS, metrics=self.counts)
        self.server.start()
        self.clients: list[Client] = []

    async def connect(self, **options: int) -> Client:
        client = Client(**options)
        self.clients.append(client)
        await client.connect(self.server.addresses["PLAINTEXT"].port)
        return client

    @property
    def end_offset(self) -> int:
        return self.partitions.require(TOPIC, 0).log_end_offset

    @property
    def pins(self) -> int:
        """Regions that are held; a file with unsynced bytes has one pin more, and a sync another."""
        return sum(segment.log.pins for partition in self.partitions for segment in partition.log.segments)

    async def __aenter__(self) -> "Served":
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self.clients:
            client.close()
        await self.server.stop(0)
        assert self.counts.delayed_now == 0
        assert self.purgatory.delayed_count == 0
        await until_idle(self)
        self.partitions.close()
        self.executor.close()


async def until_idle(served: Served) -> None:
    """All is synced, and nobody holds a region; one that leaks lets the test run out of time."""
    while served.pins:
        await asyncio.sleep(0)


async def ask(client: Client, request: Message, version: int, response: type[R]) -> R:
    await send(client, request, version)
    return await answer(client, version, response)


async def send(client: Client, request: Message, version: int) -> None:
    await client.send(join_parts(encode_request(request, version, 5, "tester")))


async def answer(client: Client, version: int, response: type[R]) -> R:
    correlation_id, message = decode_response(response, version, await client.frame())
    assert correlation_id == 5
    return message


def sole(response: ProduceResponse) -> PartitionProduceResponse:
    ((found,),) = (topic.partition_responses for topic in response.responses)
    return found


async def fill(client: Client, *numbers: int) -> None:
    for number in numbers:
        request = produce_request(batch_of([value_of(number)], timestamp_ms=NOW_MS), acks=-1)
        assert sole(await ask(client, request, 9, ProduceResponse)).error_code == ErrorCode.NONE


# --- each API ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 12, 13, 18])
def test_a_replica_by_claim_is_refused_and_its_connection_stays(tmp_path: Path, version: int) -> None:
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    async def story() -> None:
        async with Served(tmp_path) as served:
            client = await served.connect()
            await fill(client, 0)
            claim = fetch_request(wanted(0), replica_id=ME, max_wait_ms=10_000)
            fetched = await ask(client, claim, version, FetchResponse)
            told = [each for topic in fetched.responses for each in topic.partitions]
            assert fetched.error_code == (refused if version >= 7 else ErrorCode.NONE)
            assert [(each.error_code, len(each.records or b"")) for each in told] == (
                [(refused, 0)] if version < 13 else []
            )
            claim_of_offset = offsets_request(-1, replica_id=ME)
            offsets = await ask(client, claim_of_offset, 7, ListOffsetsResponse)
            assert [each.error_code for each in offsets.topics[0].partitions] == [refused]
            assert values(only(await ask(client, fetch_request(wanted(0)), 12, FetchResponse))) == [
                value_of(0)
            ]

    run(story())


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("size", [1, 10 * KIB, 900 * KIB])
def test_what_is_produced_is_fetched(tmp_path: Path, acks: int, size: int) -> None:
    async def story() -> None:
        async with Served(tmp_path) as served:
            client = await served.connect()
            value = size * b"x"
            batch = batch_of([value], timestamp_ms=NOW_MS)
            request = produce_request(batch, acks=acks, timeout_ms=10_000)
            assert sole(await ask(client, request, 9, ProduceResponse)).base_offset == 0
            fetched = await ask(client, fetch_request(wanted(0), max_wait_ms=10_000), 12, FetchResponse)
            assert values(only(fetched)) == [value]

    run(story())


def test_pipelined_requests_are_answered_in_order_though_some_wait(tmp_path: Path) -> None:
    async def story() -> None:
        async with Served(tmp_path) as served:
            client = await served.connect()
            for number in range(20):
                batch = batch_of([value_of(number)], timestamp_ms=NOW_MS)
                await send(client, produce_request(batch, acks=-1 if number % 2 else 1), 9)
            offsets = [sole(await answer(client, 9, ProduceResponse)).base_offset for _ in range(20)]
            assert offsets == list(range(20))

    run(story())


def test_a_consumer_that_waits_gets_what_another_client_writes(tmp_path: Path) -> None:
    async def story() -> None:
        async with Served(tmp_path) as served:
            consumer, producer = await served.connect(), await served.connect()
            await send(consumer, fetch_request(wanted(0), max_wait_ms=10_000), 13)
            await served.counts.until(lambda: served.counts.delayed_now == 1)
            await fill(producer, 7)
            assert values(only(await answer(consumer, 13, FetchResponse))) == [value_of(7)]

    run(story())


def test_offsets_epochs_and_deletions_over_the_wire(tmp_path: Path) -> None:
    async def story() -> None:
        async with Served(tmp_path) as served:
            client = await served.connect()
            await fill(client, *range(5))
            listed = await ask(client, offsets_request(-1), 10, ListOffsetsResponse)
            assert listed.topics[0].partitions[0].offset == 5
            epochs = await ask(client, epoch_request(0), 4, OffsetForLeaderEpochResponse)
            assert epochs.topics[0].partitions[0].end_offset == 5
            deleted = await ask(client, deletion_request(3), 2, DeleteRecordsResponse)
            result = deleted.topics[0].partitions[0]
            assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 3)
            listed = await ask(client, offsets_request(-2), 10, ListOffsetsResponse)
            assert listed.topics[0].partitions[0].offset == 3

    run(story())


# --- clients that misbehave --------------------------------------------------------------------


def test_a_connection_survives_records_that_are_none(tmp_path: Path) -> None:
    async def story() -> None:
        async with Served(tmp_path) as served:
            client = await served.connect()
            for data in (b"", b"x", bytes(61), bytes(range(256)), 3 * batch_of([b"v"])):
                refused = sole(await ask(client, produce_request(data), 9, ProduceResponse))
                assert refused.error_code != ErrorCode.NONE
            assert served.end_offset == 0
            await fill(client, 1)
            assert served.end_offset == 1

    run(story())


def test_a_refusal_of_acks_0_ends_the_connection_and_what_came_before_is_kept(tmp_path: Path) -> None:
    async def story() -> None:
        async with Served(tmp_path) as served:
            client = await served.connect()
            await send(client, produce_request(batch_of([b"v"], timestamp_ms=NOW_MS), acks=0), 9)
            await send(client, produce_request(bytes(100), acks=0), 9)
            assert await client.is_cut()
            await served.counts.until_closed(REFUSED)
            assert served.end_offset == 1

    run(story())


def test_a_claim_of_more_records_than_there_are_ends_the_connection(tmp_path: Path) -> None:
    async def story() -> None:
        async with Served(tmp_path) as served:
            client = await served.connect()
            frame = bytearray(join_parts(encode_request(produce_request(batch_of([b"v"])), 8, 5, "tester")))
            at = frame.index(struct.pack(">i", len(batch_of([b"v"]))), 4)
            frame[at : at + 4] = struct.pack(">i", 2**31 - 1)
            await client.send(bytes(frame))
            assert await client.is_cut()
            assert served.end_offset == 0

    run(story())


def test_clients_that_go_while_they_wait_leave_nothing_behind(tmp_path: Path) -> None:
    async def story() -> None:
        async with Served(tmp_path) as served:
            producer = await served.connect()
            await fill(producer, 0)
            for _ in range(5):
                client = await served.connect()
                await send(client, fetch_request(wanted(0), min_bytes=1 << 20, max_wait_ms=60_000), 12)
                await served.counts.until(lambda: served.counts.delayed_now == 1)
                assert served.purgatory.delayed_count == 1
                client.close()
                await served.counts.until(lambda: served.counts.delayed_now == 0)
                assert served.purgatory.delayed_count == 0
            await served.counts.until_closed(GONE, 5)
            await until_idle(served)

    run(story())


def test_a_client_that_does_not_read_holds_regions_only_as_long_as_it_is_there(tmp_path: Path) -> None:
    async def story() -> None:
        async with Served(tmp_path) as served:
            producer = await served.connect()
            for _ in range(4):
                batch = batch_of([bytes(900 * KIB)], timestamp_ms=NOW_MS)
                await ask(producer, produce_request(batch, acks=-1), 9, ProduceResponse)
            await until_idle(served)
            reader = await served.connect(receive_bytes=4 * KIB)
            for _ in range(10):
                await send(reader, fetch_request(wanted(0, max_bytes=8 << 20), max_bytes=8 << 20), 12)
            await served.counts.until(lambda: served.counts.answered.count(("Fetch", 0)) == 10)
            assert served.pins > 0
            reader.close()
            await until_idle(served)

    run(story())


def test_a_large_answer_comes_whole(tmp_path: Path) -> None:
    async def story() -> None:
        async with Served(tmp_path) as served:
            client = await served.connect()
            for number in range(8):
                batch = batch_of([bytes([number]) * 500 * KIB], timestamp_ms=NOW_MS)
                await ask(client, produce_request(batch, acks=-1), 9, ProduceResponse)
            request = fetch_request(wanted(0, max_bytes=16 << 20), max_bytes=16 << 20)
            data: PartitionData = only(await ask(client, request, 12, FetchResponse))
            assert [value[0] for value in values(data) if value] == list(range(8))

    run(story())
