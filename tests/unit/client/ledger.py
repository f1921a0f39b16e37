"""Partitions in memory behind a scripted broker: as much of produce and fetch as it takes to count records.

`faults` are taken one for each produce request: what goes wrong with it.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from distributedlog.client.offset_specs import EARLIEST, LATEST
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from distributedlog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from distributedlog.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from distributedlog.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from distributedlog.records.batch import read_header, stamp
from distributedlog.records.record import Record, decode_batch
from tests.unit.client.stage import Answer, HangUp, ScriptedBroker

Fault = Literal[
    "none", "not leader", "leader no more", "lost before", "lost after", "slow replicas", "too large",
    "no answer",
]  # fmt: skip
"""A leader that is one no more has appended what it refuses."""

CODES = {"not leader": 6, "leader no more": 6, "slow replicas": 20, "too large": 10}
OUT_OF_ORDER, DUPLICATE = 45, 46


@dataclass
class Ledger:
    topics: dict[str, int]
    faults: deque[Fault] = field(default_factory=deque)
    logs: dict[TopicPartition, list[bytearray]] = field(default_factory=dict)
    """Batches, stamped with their offsets."""
    start_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    sequences: dict[tuple[TopicPartition, int, int], int] = field(default_factory=dict)
    """The next one of each producer, by id and epoch.  Of an id that is not known any is taken, as by Kafka's
    brokers."""
    producers: int = 0
    versions_asked: list[int] = field(default_factory=list)

    def broker(self, *, with_producer_ids: bool = True) -> ScriptedBroker:
        versions = {ApiKey.PRODUCE: (3, 12), ApiKey.FETCH: (4, 12), ApiKey.LIST_OFFSETS: (1, 7)}
        if with_producer_ids:
            versions[ApiKey.INIT_PRODUCER_ID] = (0, 4)
        answers: dict[ApiKey, Answer] = {
            ApiKey.PRODUCE: self.produce,
            ApiKey.FETCH: self.fetch,
            ApiKey.LIST_OFFSETS: self.list_offsets,
            ApiKey.INIT_PRODUCER_ID: self.init_producer,
        }
        return ScriptedBroker(answers=answers, topics=self.topics, versions=versions)

    def values(self, partition: TopicPartition) -> list[bytes | None]:
        return [record.value for record in self.records(partition)]

    def records(self, partition: TopicPartition) -> list[Record]:
        return [record for batch in self.logs.get(partition, []) for record in decode_batch(batch)]

    def end(self, partition: TopicPartition) -> int:
        log = self.logs.get(partition)
        return read_header(log[-1]).next_offset if log else self.start_offsets.get(partition, 0)

    def init_producer(self, _request: InitProducerIdRequest, _version: int) -> InitProducerIdResponse:
        self.producers += 1
        return InitProducerIdResponse(producer_id=self.producers, producer_epoch=0)

    def produce(self, request: ProduceRequest, _version: int) -> ProduceResponse | None:
        fault: Fault = self.faults.popleft() if self.faults else "none"
        if fault == "lost before":
            raise HangUp
        responses = []
        for topic in request.topic_data:
            answers = []
            for data in topic.partition_data:
                partition = TopicPartition(topic.name, data.index)
                assert data.records is not None
                if fault in ("not leader", "too large"):
                    answers.append(_refusal(data.index, CODES[fault]))
                    continue
                code, offset = self.append(partition, bytearray(data.records))
                code = CODES.get(fault, code) if code in (0, DUPLICATE) else code
                answers.append(
                    PartitionProduceResponse(index=data.index, error_code=code, base_offset=offset)
                )
            responses.append(TopicProduceResponse(name=topic.name, partition_responses=answers))
        if fault == "lost after":
            raise HangUp
        if fault == "no answer" or request.acks == 0:
            return None
        return ProduceResponse(responses=responses)

    def append(self, partition: TopicPartition, batch: bytearray) -> tuple[int, int]:
        """The error code, and the offset."""
        header = read_header(batch)
        if header.has_producer_id:
            producer = (partition, header.producer_id, header.producer_epoch)
            is_known = any(each[:2] == producer[:2] for each in self.sequences)
            expected = self.sequences.get(producer, 0 if is_known else header.base_sequence)
            if header.last_sequence < expected:
                return DUPLICATE, -1
            if header.base_sequence != expected:
                return OUT_OF_ORDER, -1
            self.sequences[producer] = header.last_sequence + 1
        offset = self.end(partition)
        stamp(batch, 0, offset, 0)
        self.logs.setdefault(partition, []).append(batch)
        return 0, offset

    def fetch(self, request: FetchRequest, version: int) -> FetchResponse:
        self.versions_asked.append(version)
        topics = []
        for topic in request.topics:
            told = [
                self._read(TopicPartition(topic.topic, each.partition), each.fetch_offset)
                for each in topic.partitions
            ]
            topics.append(FetchableTopicResponse(topic=topic.topic, partitions=told))
        return FetchResponse(responses=topics)

    def _read(self, partition: TopicPartition, offset: int) -> PartitionData:
        is_within = self.start_offsets.get(partition, 0) <= offset <= self.end(partition)
        wanted: Iterable[bytearray] = (
            batch for batch in self.logs.get(partition, []) if read_header(batch).next_offset > offset
        )
        return PartitionData(
            partition_index=partition.partition,
            error_code=0 if is_within else 1,
            high_watermark=self.end(partition),
            aborted_transactions=None,
            records=b"".join(wanted) if is_within else None,
        )

    def list_offsets(self, request: ListOffsetsRequest, _version: int) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            told = [
                ListOffsetsPartitionResponse(
                    partition_index=each.partition_index,
                    offset=self._offset_at(TopicPartition(topic.name, each.partition_index), each.timestamp),
                )
                for each in topic.partitions
            ]
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=told))
        return ListOffsetsResponse(topics=topics)

    def _offset_at(self, partition: TopicPartition, timestamp: int) -> int:
        if timestamp == EARLIEST:
            return self.start_offsets.get(partition, 0)
        if timestamp == LATEST:
            return self.end(partition)
        later = (each.offset for each in self.records(partition) if each.timestamp_ms >= timestamp)
        return next(later, -1)


def _refusal(index: int, code: int) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index, error_code=code, base_offset=-1, error_message="the broker's own words"
    )
