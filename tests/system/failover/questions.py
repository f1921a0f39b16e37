"""Every broker is asked again and again, by hand, while brokers fail: what a client could be answered.

A client that is told UNKNOWN_TOPIC_OR_PARTITION, or UNKNOWN_TOPIC_ID, throws away what it knows of the
topic, and some tell their users.  So no broker may say it of a topic that is there: not while leaders change,
and not while it starts and has not read all of the metadata yet.  A broker that does not lead says
NOT_LEADER_OR_FOLLOWER, and names who does, with the address (KIP-951), as soon as somebody does.

The questions are Metadata, Produce, Fetch and ListOffsets for all partitions of a topic, one connection to a
broker, which is made anew when it breaks.  Fetches name the first leader epoch: without one any replica may
serve them, with one that is over they are refused and told who leads.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import Uuid
from distributedlog.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from distributedlog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from distributedlog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from distributedlog.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from distributedlog.protocol.schema import Message
from distributedlog.records.record import Record, encode_batch
from tests.system.pipelined_client import Asked, PipelinedClient

LATEST = -1
PAUSE_SECONDS = 0.05
ANSWER_SECONDS_MAX = 30.0
FIRST_EPOCH = 0
UNKNOWN = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
MOVED = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH}
"""What a broker says that does not lead, or leads in a later epoch."""


class Questions:
    """A context manager: while it is entered, all brokers are asked about a topic."""

    def __init__(self, addresses: Mapping[int, str], topic: str, partitions: int) -> None:
        self.answers: Counter[tuple[str, ErrorCode]] = Counter()
        self.hints: Counter[str] = Counter()
        """The refusals that named the leader, with its address, by what was asked."""
        self.hints_without_address: list[str] = []
        self._topic, self._partitions = topic, range(partitions)
        self._topic_id = _topic_id(next(iter(addresses.values())), topic)
        self._mutex = threading.Lock()
        self._ends = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask_one, args=(broker, address))
            for broker, address in addresses.items()
        ]

    def __enter__(self) -> "Questions":
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        for each in self._threads:
            each.join()

    def check(self) -> None:
        unknown = {each: count for each, count in self.answers.items() if each[1] in UNKNOWN}
        assert not unknown, f"a topic that is there was called unknown: {unknown}"
        assert not self.hints_without_address, self.hints_without_address[:3]
        for api in ("Produce", "Fetch"):
            assert self.hints[api] > 0, f"nobody who asked for {api} was told who leads"

    def __str__(self) -> str:
        told = ", ".join(f"{api} {code.name} {count}" for (api, code), count in sorted(self.answers.items()))
        hints = ", ".join(f"{api} {count}" for api, count in sorted(self.hints.items()))
        return f"{told}; these named the leader: {hints}"

    def _ask_one(self, broker: int, address: str) -> None:
        while not self._ends.is_set():
            try:
                with PipelinedClient(address, ANSWER_SECONDS_MAX) as client:
                    while not self._ends.wait(PAUSE_SECONDS):
                        responses = client.ask(*self._questions())
                        with self._mutex:
                            for response in responses:
                                self._note(broker, response)
            except (OSError, AssertionError):  # it is down, or hung up
                time.sleep(PAUSE_SECONDS)

    def _questions(self) -> list[Asked]:
        batch = bytes(encode_batch([Record(b"asked", timestamp_ms=time.time_ns() // 1_000_000)]))
        produced = [PartitionProduceData(index=each, records=batch) for each in self._partitions]
        fetched = [
            FetchPartition(
                partition=each, current_leader_epoch=FIRST_EPOCH, fetch_offset=0, partition_max_bytes=1
            )
            for each in self._partitions
        ]
        listed = [ListOffsetsPartition(partition_index=each, timestamp=LATEST) for each in self._partitions]
        return [
            (_metadata_of(self._topic), 12),
            (
                ProduceRequest(
                    acks=1, timeout_ms=1_000,
                    topic_data=[TopicProduceData(topic_id=self._topic_id, partition_data=produced)],
                ),
                13,
            ),
            (
                FetchRequest(
                    max_wait_ms=0, min_bytes=0, max_bytes=1,
                    topics=[FetchTopic(topic_id=self._topic_id, partitions=fetched)],
                ),
                17,
            ),
            (
                ListOffsetsRequest(
                    replica_id=-1, topics=[ListOffsetsTopic(name=self._topic, partitions=listed)]
                ),
                9,
            ),
        ]  # fmt: skip

    def _note(self, broker: int, response: Message) -> None:
        for code in _codes(response):
            self.answers[type(response).__name__.removesuffix("Response"), ErrorCode(code)] += 1
        if isinstance(response, ProduceResponse | FetchResponse):
            places = {each.node_id for each in response.node_endpoints}
            for leader_id in _named_leaders(response):
                self.hints[type(response).__name__.removesuffix("Response")] += 1
                if leader_id not in places:
                    self.hints_without_address.append(f"broker {broker} names {leader_id}")


def _named_leaders(response: ProduceResponse | FetchResponse) -> Iterator[int]:
    """The leaders that are named to who does not know them."""
    partitions: list[PartitionProduceResponse | PartitionData]
    if isinstance(response, ProduceResponse):
        partitions = [each for topic in response.responses for each in topic.partition_responses]
    else:
        partitions = [each for topic in response.responses for each in topic.partitions]
    for each in partitions:
        leader = each.current_leader
        if each.error_code in MOVED and leader and leader.leader_id >= 0:
            yield leader.leader_id


def _topic_id(address: str, topic: str) -> Uuid:
    with PipelinedClient(address, ANSWER_SECONDS_MAX) as client:
        (response,) = client.ask((_metadata_of(topic), 12))
    assert isinstance(response, MetadataResponse)
    return response.topics[0].topic_id


def _metadata_of(topic: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)


def _codes(response: Message) -> Iterator[int]:
    """The error codes of a response, of topics and partitions."""
    match response:
        case MetadataResponse():
            for found in response.topics:
                yield found.error_code
                yield from (each.error_code for each in found.partitions)
        case ProduceResponse():
            for produced in response.responses:
                yield from (each.error_code for each in produced.partition_responses)
        case FetchResponse():
            yield response.error_code
            for fetched in response.responses:
                yield from (each.error_code for each in fetched.partitions)
        case ListOffsetsResponse():
            for listed in response.topics:
                yield from (each.error_code for each in listed.partitions)
