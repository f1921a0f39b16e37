"""Readers whose partitions get another leader: what they have read may not be in its log (KIP-320)."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from distributedlog import Consumer, LogTruncationError, TopicPartition
from distributedlog.client.consumer import Consumer as Assigned
from distributedlog.client.fetcher import FetchOptions
from distributedlog.client.metadata import Cluster
from distributedlog.client.offset_specs import BEGINNING, END
from distributedlog.client.view import PartitionView
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import TopicPartition as Partition
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.messages.fetch import FetchRequest, FetchResponse
from distributedlog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from distributedlog.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from distributedlog.records.batch import stamp
from distributedlog.records.record import Record, encode_batch
from tests.unit.client.ledger import Ledger
from tests.unit.client.stage import QUICK, ScriptedBroker, run

HERE = Partition("t", 0)
WAIT_MS = 60_000


class Leaders:
    """One leader after the other, in the same place; the last one may have lost records of the first."""

    def __init__(self) -> None:
        self.ledger = Ledger({"t": 1})
        self.epoch = 0
        self.ends: list[tuple[int, int, int]] = []
        """Error code, epoch and end offset of the next answers; the last one stays."""
        self.asked: list[tuple[int, int]] = []
        self.broker = self.ledger.broker()
        self.broker.versions[ApiKey.OFFSET_FOR_LEADER_EPOCH] = (2, 4)
        self.broker.answers[ApiKey.METADATA] = self.metadata
        self.broker.answers[ApiKey.FETCH] = self.fetch
        self.broker.answers[ApiKey.OFFSET_FOR_LEADER_EPOCH] = self.epoch_end

    def write(self, *values: str) -> None:
        for each in values:
            batch = encode_batch([Record(each.encode(), timestamp_ms=1)])
            self.ledger.append(HERE, batch)
            stamp(batch, 0, self.ledger.end(HERE) - 1, self.epoch)

    def truncate(self, end: int) -> None:
        del self.ledger.logs[HERE][end:]

    def fetch(self, request: FetchRequest, version: int) -> FetchResponse:
        response = self.ledger.fetch(request, version)
        if any(
            each.current_leader_epoch < self.epoch for topic in request.topics for each in topic.partitions
        ):
            for data in response.responses[0].partitions:
                data.error_code, data.records = ErrorCode.FENCED_LEADER_EPOCH, None
        return response

    def metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        response = self.broker.metadata(request, version)
        for topic in response.topics:
            for each in topic.partitions:
                each.leader_epoch = self.epoch
        return response

    def epoch_end(self, request: OffsetForLeaderEpochRequest, _version: int) -> OffsetForLeaderEpochResponse:
        (partition,) = request.topics[0].partitions
        self.asked.append((partition.current_leader_epoch, partition.leader_epoch))
        code, epoch, end = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        told = EpochEndOffset(partition=0, error_code=code, leader_epoch=epoch, end_offset=end)
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="t", partitions=[told])])


@contextmanager
def reader(leaders: Leaders, reset: str) -> Iterator[Consumer]:
    """One that has read all there is."""
    broker: ScriptedBroker
    with leaders.broker.running() as broker:
        settings = {"metadata_max_age_ms": 20, "fetch_max_wait_ms": 1, "retry_backoff_ms": 5}
        with Consumer(broker.bootstrap, auto_offset_reset=reset, **settings) as consumer:  # type: ignore[arg-type]
            consumer.assign([HERE])
            consumer.seek(HERE, 0)
            assert read(consumer, 5) == ["a0", "a1", "a2", "a3", "a4"]
            yield consumer


def read(consumer: Consumer, wanted: int) -> list[str]:
    found: list[str] = []
    while len(found) < wanted:
        records = consumer.poll(WAIT_MS)
        assert records, found
        found += (each.value.decode() for each in records)
    return found


@pytest.fixture
def leaders() -> Leaders:
    made = Leaders()
    made.write("a0", "a1", "a2", "a3", "a4")
    return made


def test_a_leader_that_has_all_that_was_read_is_asked_once(leaders: Leaders) -> None:
    with reader(leaders, "earliest") as consumer:
        leaders.ends = [(75, -1, -1), (0, 0, 5)]  # it knows of its epoch a moment later
        leaders.epoch = 3
        leaders.write("b5", "b6")
        assert read(consumer, 2) == ["b5", "b6"]
        leaders.write("b7")
        assert read(consumer, 1) == ["b7"]
        assert leaders.asked == [(3, 0), (3, 0)]
        assert consumer.metrics()["truncations"] == 0


def test_a_truncated_log_is_read_on_where_the_logs_part(leaders: Leaders) -> None:
    with reader(leaders, "latest") as consumer:
        leaders.ends = [(0, 0, 3)]
        leaders.epoch = 2
        leaders.truncate(3)
        leaders.write("b3", "b4", "b5", "b6")
        assert read(consumer, 4) == ["b3", "b4", "b5", "b6"]
        assert (consumer.position(HERE), consumer.metrics()["truncations"]) == (7, 1)


def test_a_truncated_log_is_an_error_without_a_reset(leaders: Leaders) -> None:
    with reader(leaders, "none") as consumer:
        leaders.ends = [(0, 0, 3)]
        leaders.epoch = 2
        leaders.truncate(3)
        leaders.write("b3", "b4", "b5", "b6")
        for _ in range(2):
            with pytest.raises(LogTruncationError, match="the logs part at 3"):
                consumer.poll(WAIT_MS)
        assert consumer.position(HERE) == 5
        consumer.seek(HERE, 3)
        assert read(consumer, 4) == ["b3", "b4", "b5", "b6"]


def test_a_leader_that_knows_nothing_of_the_epoch_has_the_reader_begin_as_the_reset_says(
    leaders: Leaders,
) -> None:
    with reader(leaders, "earliest") as consumer:
        leaders.ends = [(0, -1, -1)]
        leaders.epoch = 9
        leaders.truncate(0)
        leaders.write("b0", "b1")
        assert read(consumer, 2) == ["b0", "b1"]
        assert consumer.assignment == {TopicPartition("t", 0)}


def test_a_broker_that_cannot_be_asked_is_believed(leaders: Leaders) -> None:
    del leaders.broker.versions[ApiKey.OFFSET_FOR_LEADER_EPOCH]
    with reader(leaders, "none") as consumer:
        leaders.epoch = 2
        leaders.write("b5")
        assert read(consumer, 1) == ["b5"]


def test_a_leader_that_becomes_known_while_others_are_looked_up_is_asked_before_it_is_read_from(
    leaders: Leaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bytes | None] = []

    async def story() -> None:
        async with (
            Cluster([broker.address], QUICK) as cluster,
            Assigned(cluster, FetchOptions(wait_ms_max=1), on_out_of_range=END) as consumer,
        ):
            look = cluster.partition

            async def look_and_learn(partition: Partition) -> PartitionView:
                """What is found is the old leader; then a look for another partition brings the new one."""
                found = await look(partition)
                if leaders.epoch == 0 and len(seen) == 5:
                    leaders.ends = [(0, 0, 3)]
                    leaders.epoch = 2
                    leaders.truncate(3)
                    leaders.write("b3", "b4", "b5", "b6")
                    await cluster.refresh({"t"})
                return found

            monkeypatch.setattr(cluster, "partition", look_and_learn)
            await consumer.assign({HERE: BEGINNING})
            while b"b6" not in seen:
                for fetched in await consumer.poll(WAIT_MS):
                    seen.extend(each.value for each in fetched.records)
            assert seen[5:] == [b"b3", b"b4", b"b5", b"b6"]
            assert leaders.asked == [(2, 0)]

    with leaders.broker.running() as broker:
        run(story())
