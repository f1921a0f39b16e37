"""A real broker handles the requests of one connection as if one after the other, however fast they come.

Each story is told ROUNDS times: what was out of order was so most of the time, and not always.
"""

import itertools
import random
import time
from collections.abc import Iterator
from typing import TypeVar

import pytest

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import ZERO_UUID
from distributedlog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from distributedlog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from distributedlog.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from distributedlog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from distributedlog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from distributedlog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from distributedlog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from distributedlog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from distributedlog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from distributedlog.protocol.schema import Message
from distributedlog.records.compression import Codec
from distributedlog.records.record import Record, encode_batch
from distributedlog.replication.contract import OffsetSpec
from tests.system.pipelined_client import Asked, PipelinedClient
from tests.system.server_process import ServerProcess

ROUNDS = 20
M = TypeVar("M", bound=Message)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ServerProcess(tmp_path_factory.mktemp("order"), {}) as server:
        yield server.facts["client"]


@pytest.fixture
def client(address: str) -> Iterator[PipelinedClient]:
    with PipelinedClient(address) as connected:
        yield connected


@pytest.fixture
def topic(client: PipelinedClient, request: pytest.FixtureRequest) -> str:
    name = request.node.name[:200].replace("[", "-").replace("]", "").replace(" ", "-")
    (created,) = client.ask(creation(name))
    assert isinstance(created, CreateTopicsResponse)
    assert created.topics[0].error_code == 0
    return str(name)


def creation(name: str, partitions: int = 1) -> Asked:
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7


def metadata(name: str) -> Asked:
    topics = [MetadataRequestTopic(name=name)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9


def production(topic: str, values: list[bytes], acks: int, codec: Codec = Codec.NONE) -> Asked:
    now_ms = time.time_ns() // 1_000_000
    batch = encode_batch([Record(value, None, (), now_ms) for value in values], codec=codec)
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    return ProduceRequest(transactional_id=None, acks=acks, timeout_ms=30_000, topic_data=[data]), 9


def offset_at(topic: str, timestamp: int) -> Asked:
    partition = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    topics = [ListOffsetsTopic(name=topic, partitions=[partition])]
    return ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics), 7


def deletion_of_records(topic: str, offset: int) -> Asked:
    topics = [
        DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
    ]
    return DeleteRecordsRequest(topics=topics, timeout_ms=30_000), 2


def long_poll(topic: str, offset: int, max_wait_ms: int, min_bytes: int = 1) -> Asked:
    partition = FetchPartition(
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=offset,
        log_start_offset=-1,
        partition_max_bytes=1 << 20,
    )
    return (
        FetchRequest(
            replica_id=-1,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=1 << 20,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, partitions=[partition])],
            forgotten_topics_data=[],
            rack_id="",
        ),
        11,
    )


def listed(response: Message) -> int:
    assert isinstance(response, ListOffsetsResponse)
    found = response.topics[0].partitions[0]
    assert found.error_code == 0
    return found.offset


def base_offset(response: Message) -> int:
    assert isinstance(response, ProduceResponse)
    found = response.responses[0].partition_responses[0]
    assert found.error_code == 0, found.error_message
    return found.base_offset


def described(response: Message) -> tuple[int, int]:
    """The error code of the topic, and how many partitions it has with a leader."""
    assert isinstance(response, MetadataResponse)
    found = response.topics[0]
    return found.error_code, sum(each.error_code == 0 and each.leader_id >= 0 for each in found.partitions)


def test_who_creates_changes_and_deletes_a_topic_sees_it_in_the_metadata_behind(
    client: PipelinedClient,
) -> None:
    for number in range(ROUNDS):
        name = f"created-{number}"
        more = CreatePartitionsTopic(name=name, count=5, assignments=None)
        gone = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID)], timeout_ms=30_000
        )
        _, created, _, grown, _, deleted = client.ask(
            creation(name, 3),
            metadata(name),
            (CreatePartitionsRequest(topics=[more], timeout_ms=30_000, validate_only=False), 3),
            metadata(name),
            (gone, 6),
            metadata(name),
        )
        assert described(created) == (0, 3)
        assert described(grown) == (0, 5)
        assert described(deleted) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)


@pytest.mark.parametrize("acks", [1, -1])
def test_who_produces_finds_the_end_behind_it(client: PipelinedClient, topic: str, acks: int) -> None:
    for number in range(ROUNDS):
        produced, latest = client.ask(production(topic, [b"v"], acks), offset_at(topic, OffsetSpec.LATEST))
        assert (base_offset(produced), listed(latest)) == (number, number + 1)


def test_who_produces_without_a_response_finds_the_end_behind_it(client: PipelinedClient, topic: str) -> None:
    request, version = production(topic, [b"v"], 0)
    for number in range(ROUNDS):
        (latest,) = client.ask(offset_at(topic, OffsetSpec.LATEST), silent=[(request, version)])
        assert listed(latest) == number + 1


def test_who_deletes_records_finds_the_start_behind_it(client: PipelinedClient, topic: str) -> None:
    client.ask(production(topic, [b"v"] * (ROUNDS + 1), -1))
    for number in range(1, ROUNDS + 1):
        _, earliest = client.ask(deletion_of_records(topic, number), offset_at(topic, OffsetSpec.EARLIEST))
        assert listed(earliest) == number


@pytest.mark.parametrize("acks", [1, -1])
def test_batches_stand_in_the_log_as_they_were_sent_whatever_is_opened_beside_the_loop(
    client: PipelinedClient, topic: str, acks: int
) -> None:
    """Every third batch opens to more than the loop opens itself."""
    chance = random.Random(4)
    long = [chance.randbytes(5_000) + bytes(300_000) for _ in range(8)]
    asked = [
        production(topic, long, acks, Codec.ZSTD) if number % 3 == 0 else production(topic, [b"v"], acks)
        for number in range(ROUNDS)
    ]
    *produced, latest = client.ask(*asked, offset_at(topic, OffsetSpec.LATEST))
    counts = [8 if number % 3 == 0 else 1 for number in range(ROUNDS)]
    assert [base_offset(each) for each in produced] == [0, *itertools.accumulate(counts)][:-1]
    assert listed(latest) == sum(counts)


def test_anything_begins_behind_a_fetch_that_waits(client: PipelinedClient, topic: str) -> None:
    """The Produce behind the Fetch is what the Fetch waits for: else both would wait a minute."""
    for number in range(ROUNDS):
        began = time.monotonic()
        versions = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        fetched, known, produced, latest = client.ask(
            long_poll(topic, number, max_wait_ms=60_000),
            (versions, 3),
            production(topic, [b"v"], -1),
            offset_at(topic, OffsetSpec.LATEST),
        )
        assert time.monotonic() - began < 50
        assert isinstance(fetched, FetchResponse)
        assert fetched.responses[0].partitions[0].records
        assert isinstance(known, ApiVersionsResponse)
        assert (base_offset(produced), listed(latest)) == (number, number + 1)
