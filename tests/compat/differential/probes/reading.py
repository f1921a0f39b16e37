"""Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeProducers."""

from typing import Any

from distributedlog.model.ids import ZERO_UUID
from distributedlog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from distributedlog.protocol.messages.describe_producers import DescribeProducersRequest
from distributedlog.protocol.messages.describe_producers import TopicRequest as ProducersOf
from distributedlog.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from distributedlog.protocol.messages.list_offsets import ListOffsetsRequest
from distributedlog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.compat.differential.asking import Conversation, Topic
from tests.compat.differential.building import NO_TOPIC, batch_of, fetch, list_offsets
from tests.compat.differential.registry import probe


def _filled(of: Conversation, batches: int = 2, **more: Any) -> Topic:
    topic = of.topic(**more)
    of.append(topic, *[batch_of(of) for _ in range(batches)])
    return topic


def _nowhere(of: Conversation) -> Topic:
    return Topic(of.name("none"), NO_TOPIC)


# --- Fetch -------------------------------------------------------------------------------------


@probe(FetchRequest)
def offsets(of: Conversation, version: int) -> None:
    topic = _filled(of)
    for offset in (0, 1, 3, 5, 6, 7, -1):
        of.ask(f"from {offset}", fetch(topic, offset), version)
    of.ask("read committed", fetch(topic, isolation_level=1), version)
    of.ask("read committed at the end", fetch(topic, 6, isolation_level=1), version)
    of.ask("isolation level 7", fetch(topic, isolation_level=7), version)


@probe(FetchRequest)
def places(of: Conversation, version: int) -> None:
    topic = _filled(of)
    of.ask("partition that is not there", fetch(topic, partition=1), version)
    of.ask("partition -1", fetch(topic, partition=-1), version)
    of.ask("topic that is not there", fetch(_nowhere(of)), version)
    of.ask("no name and no id", fetch(Topic("", ZERO_UUID)), version)
    of.ask("bad name", fetch(Topic("a/b", NO_TOPIC)), version)
    of.ask("no topics", fetch(topic, topics=[]), version)
    parts = [FetchPartition(partition=at, fetch_offset=0, partition_max_bytes=1 << 20) for at in (0, 1, 0)]
    mixed = [FetchTopic(topic=topic.name, topic_id=topic.id, partitions=parts)]
    of.ask("there, not there, and once more", fetch(topic, topics=mixed), version)
    both = [*fetch(topic).topics, *fetch(_nowhere(of)).topics]
    of.ask("a topic that is there and one that is not", fetch(topic, topics=both), version)


@probe(FetchRequest)
def limits(of: Conversation, version: int) -> None:
    topic = _filled(of, 3, partitions=2)
    of.append(topic, batch_of(of), partition=1)
    for limit in (0, 1, 100, 150, 250, -1):
        of.ask(f"partition_max_bytes={limit}", fetch(topic, partition_max_bytes=limit), version)
        of.ask(f"max_bytes={limit}", fetch(topic, max_bytes=limit), version)
    parts = [FetchPartition(partition=at, fetch_offset=0, partition_max_bytes=1 << 20) for at in (0, 1)]
    both = [FetchTopic(topic=topic.name, topic_id=topic.id, partitions=parts)]
    of.ask("two partitions, one byte", fetch(topic, topics=both, max_bytes=1), version)
    parts = [FetchPartition(partition=at, fetch_offset=0, partition_max_bytes=1) for at in (0, 1)]
    both = [FetchTopic(topic=topic.name, topic_id=topic.id, partitions=parts)]
    of.ask("two partitions, one byte each", fetch(topic, topics=both), version)
    of.ask("waits at the end", fetch(topic, 9, max_wait_ms=50, min_bytes=1), version)
    of.ask("negative wait", fetch(topic, 9, max_wait_ms=-1, min_bytes=1), version)
    of.ask("negative min_bytes", fetch(topic, 0, min_bytes=-1), version)


@probe(FetchRequest, since=9)
def leader_epochs(of: Conversation, version: int) -> None:
    topic = _filled(of)
    for epoch in (-1, 0, 1, -2):
        of.ask(f"current_leader_epoch={epoch}", fetch(topic, current_leader_epoch=epoch), version)
    for epoch in (0, 1, 9, -2):
        of.ask(f"last_fetched_epoch={epoch}", fetch(topic, 3, last_fetched_epoch=epoch), version)
    of.ask("diverged", fetch(topic, 9, last_fetched_epoch=0), version)


@probe(FetchRequest, since=7)
def sessions(of: Conversation, version: int) -> None:
    topic = _filled(of, 1, partitions=2)

    def ask(label: str, session: int, epoch: int, **more: Any) -> Any:
        return of.ask(label, fetch(topic, session_id=session, session_epoch=epoch, **more), version)

    made = ask("new", 0, 0)
    session = made.session_id
    ask("as before", session, 1, topics=[])
    of.append(topic, batch_of(of))
    ask("new records", session, 2, topics=[])
    ask("nothing changed", session, 3, offset=6)
    ask("still nothing", session, 4, topics=[])
    ask("one more partition", session, 5, partition=1)
    forgotten = [ForgottenTopic(topic=topic.name, topic_id=topic.id, partitions=[0])]
    ask("one less", session, 6, topics=[], forgotten_topics_data=forgotten)
    ask("a partition that is not there", session, 7, partition=9)
    ask("wrong epoch", session, 3, topics=[])
    ask("unknown session", 123_456, 1, topics=[])
    ask("unknown session, epoch 0", 123_456, 0)
    ask("no session, epoch 5", 0, 5)
    ask("closed", session, -1, topics=[])
    ask("after it was closed", session, 8, topics=[])
    of.ask("epoch -1", fetch(topic, session_id=0, session_epoch=-1), version)
    of.ask("epoch -2", fetch(topic, session_id=0, session_epoch=-2), version)


@probe(FetchRequest)
def as_a_replica(of: Conversation, version: int) -> None:
    topic = _filled(of)
    for replica in (-2, 1, 5):
        state = ReplicaState(replica_id=replica, replica_epoch=1)
        request = fetch(topic, replica_id=replica, replica_state=state)
        of.ask(f"replica_id={replica}", request, version)


@probe(FetchRequest)
def after_records_were_deleted(of: Conversation, version: int) -> None:
    topic = _filled(of)
    of.ask("deleted", _delete_records(topic.name, [(0, 4)]), 2)
    for offset in (0, 3, 4):
        of.ask(f"from {offset}", fetch(topic, offset), version)


@probe(FetchRequest, since=12)
def of_another_cluster(of: Conversation, version: int) -> None:
    of.ask("another cluster id", fetch(_filled(of), cluster_id="AAAAAAAAAAAAAAAAAAAAAA"), version)


@probe(FetchRequest, since=11)
def from_a_rack(of: Conversation, version: int) -> None:
    of.ask("a rack", fetch(_filled(of), rack_id="rack"), version)


# --- ListOffsets -------------------------------------------------------------------------------


@probe(ListOffsetsRequest)
def specs(of: Conversation, version: int) -> None:
    topic = _filled(of)
    for timestamp in range(-8, 1):
        of.ask(f"timestamp {timestamp}", list_offsets(topic.name, [timestamp]), version)
    of.ask("read committed", list_offsets(topic.name, [-1], isolation_level=1), version)
    of.ask("isolation level 7", list_offsets(topic.name, [-1], isolation_level=7), version)
    empty = of.topic()
    for timestamp in (-1, -2, -3, -4, -5, -6, 0):
        of.ask(f"empty, timestamp {timestamp}", list_offsets(empty.name, [timestamp]), version)


@probe(ListOffsetsRequest)
def times(of: Conversation, version: int) -> None:
    topic = _filled(of)
    for after in (-1, 0, 1, 1000, 1500, 2000, 2001):
        request = list_offsets(topic.name, [of.started_ms + after])
        of.ask(f"{after} ms after the first", request, version)
    of.ask("the end of time", list_offsets(topic.name, [2**63 - 1]), version)


@probe(ListOffsetsRequest)
def where_nothing_is(of: Conversation, version: int) -> None:
    topic = _filled(of)
    of.ask("partition that is not there", list_offsets(topic.name, [-1], partition=1), version)
    of.ask("partition -1", list_offsets(topic.name, [-1], partition=-1), version)
    of.ask("topic that is not there", list_offsets(of.name("none"), [-1]), version)
    of.ask("bad name", list_offsets("a/b", [-1]), version)
    of.ask("a partition twice", list_offsets(topic.name, [-1, -2]), version)
    of.ask("no partitions", list_offsets(topic.name, []), version)
    of.ask("no topics", ListOffsetsRequest(replica_id=-1, topics=[]), version)


@probe(ListOffsetsRequest, since=4)
def epochs_of_offsets(of: Conversation, version: int) -> None:
    topic = _filled(of)
    for epoch in (-1, 0, 1, -2):
        of.ask(f"current_leader_epoch={epoch}", list_offsets(topic.name, [-1], epoch=epoch), version)


@probe(ListOffsetsRequest)
def offsets_as_a_replica(of: Conversation, version: int) -> None:
    topic = _filled(of)
    for replica in (-2, -3, 1, 5):
        of.ask(f"replica_id={replica}", list_offsets(topic.name, [-1], replica_id=replica), version)


# --- OffsetForLeaderEpoch ----------------------------------------------------------------------


def _epochs(
    topic: str, *asked: tuple[int, int], current: int = -1, **more: Any
) -> OffsetForLeaderEpochRequest:
    parts = [
        OffsetForLeaderPartition(partition=at, current_leader_epoch=current, leader_epoch=epoch)
        for at, epoch in asked
    ]
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=parts)], **more)


@probe(OffsetForLeaderEpochRequest)
def ends_of_epochs(of: Conversation, version: int) -> None:
    topic = _filled(of)
    for epoch in (0, 1, 9, -1, -2):
        of.ask(f"epoch {epoch}", _epochs(topic.name, (0, epoch)), version)
    for current in (0, 1, -2):
        of.ask(f"current epoch {current}", _epochs(topic.name, (0, 0), current=current), version)
    of.ask("empty", _epochs(of.topic().name, (0, 0)), version)
    of.ask("partition that is not there", _epochs(topic.name, (1, 0)), version)
    of.ask("topic that is not there", _epochs(of.name("none"), (0, 0)), version)
    of.ask("bad name", _epochs("a/b", (0, 0)), version)
    of.ask("no topics", OffsetForLeaderEpochRequest(topics=[]), version)
    for replica in (-1, 1, 5):
        of.ask(f"replica {replica}", _epochs(topic.name, (0, 0), replica_id=replica), version)


# --- DeleteRecords -----------------------------------------------------------------------------


def _delete_records(
    topic: str, asked: list[tuple[int, int]], timeout_ms: int = 10_000
) -> DeleteRecordsRequest:
    parts = [DeleteRecordsPartition(partition_index=at, offset=offset) for at, offset in asked]
    return DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=parts)], timeout_ms=timeout_ms
    )


@probe(DeleteRecordsRequest)
def up_to(of: Conversation, version: int) -> None:
    topic = _filled(of)
    for offset in (0, 2, 1, 7, -2, 6):
        of.ask(f"up to {offset}", _delete_records(topic.name, [(0, offset)]), version)
    of.append(topic, batch_of(of))
    of.ask("up to the end", _delete_records(topic.name, [(0, -1)]), version)
    of.ask("where it begins then", list_offsets(topic.name, [-2]), 7)
    of.ask("partition that is not there", _delete_records(topic.name, [(1, 0)]), version)
    of.ask("partition -1", _delete_records(topic.name, [(-1, 0)]), version)
    of.ask("topic that is not there", _delete_records(of.name("none"), [(0, 0)]), version)
    of.ask("bad name", _delete_records("a/b", [(0, 0)]), version)
    of.ask("no partitions", _delete_records(topic.name, []), version)
    of.ask("timeout 0", _delete_records(topic.name, [(0, -1)], timeout_ms=0), version)
    of.ask("negative timeout", _delete_records(topic.name, [(0, -1)], timeout_ms=-1), version)


@probe(DeleteRecordsRequest)
def of_compacted_topics(of: Conversation, version: int) -> None:
    for policy in ("compact", "compact,delete"):
        topic = _filled(of, configs={"cleanup.policy": policy})
        of.ask(policy, _delete_records(topic.name, [(0, 2)]), version)
    of.ask("internal", _delete_records("__consumer_offsets", [(0, 0)]), version)


# --- DescribeProducers -------------------------------------------------------------------------


@probe(DescribeProducersRequest)
def producers(of: Conversation, version: int) -> None:
    def ask(label: str, name: str, *partitions: int) -> None:
        topics = [ProducersOf(name=name, partition_indexes=list(partitions))]
        of.ask(label, DescribeProducersRequest(topics=topics), version)

    topic = _filled(of)
    ask("none", topic.name, 0)
    of.append(
        topic,
        batch_of(of, producer_id=500_000, producer_epoch=3, base_sequence=0),
        batch_of(of, producer_id=500_000, producer_epoch=3, base_sequence=3),
    )
    ask("one", topic.name, 0)
    ask("partition that is not there", topic.name, 1)
    ask("partition -1", topic.name, -1)
    ask("topic that is not there", of.name("none"), 0)
    ask("bad name", "a/b", 0)
    ask("no partitions", topic.name)
    of.ask("no topics", DescribeProducersRequest(topics=[]), version)
