"""TxnOffsetCommit: positions of a group that are part of a transaction, and who sees them when."""

from typing import Any, Final

from distributedlog.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from distributedlog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from distributedlog.protocol.messages.init_producer_id import InitProducerIdResponse
from distributedlog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from distributedlog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.compat.differential.asking import Conversation
from tests.compat.differential.probes.transactions import EPOCH_PER_TRANSACTION_SINCE, init, wait_for_state
from tests.compat.differential.registry import probe

ADD_VERSION: Final = 3
END_VERSION: Final = 4
FETCH_VERSION: Final = 8
MEMBERS_SINCE: Final = 3


def add_group(of: Conversation, name: str, producer: InitProducerIdResponse, group: str) -> None:
    request = AddOffsetsToTxnRequest(
        transactional_id=name,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        group_id=group,
    )
    assert of.call(request, ADD_VERSION, AddOffsetsToTxnResponse).error_code == 0, "not added"


def ask_positions(of: Conversation, label: str, group: str, topic: str) -> None:
    """Asks for the positions that are stable, and for any."""
    topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0, 1])]
    for stable in (True, False):
        groups = [OffsetFetchRequestGroup(group_id=group, topics=topics)]
        request = OffsetFetchRequest(groups=groups, require_stable=stable)
        of.ask(f"{label}, {'stable' if stable else 'any'}", request, FETCH_VERSION)


def commit_of(
    name: str, producer: InitProducerIdResponse, group: str, *positions: tuple[str, int, int], **more: Any
) -> TxnOffsetCommitRequest:
    """Commits an offset for each topic and partition."""
    topics = [
        TxnOffsetCommitRequestTopic(
            name=topic,
            partitions=[
                TxnOffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_metadata=more.pop("metadata", "m"),
                )
            ],
        )
        for topic, partition, offset in positions
    ]
    fields: dict[str, Any] = {
        "transactional_id": name,
        "group_id": group,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "topics": topics,
    }
    return TxnOffsetCommitRequest(**(fields | more))


@probe(TxnOffsetCommitRequest)
def committed_positions(of: Conversation, version: int) -> None:
    name, group, topic = of.name("tx"), of.name("g"), of.topic(2)
    producer = init(of, name)

    def ask(label: str, *positions: tuple[str, int, int], **more: Any) -> None:
        of.ask(label, commit_of(name, producer, group, *positions, **more), version)

    if version < EPOCH_PER_TRANSACTION_SINCE:
        ask("before the group is added", (topic.name, 0, 3))
        add_group(of, name, producer, group)
    ask("a position", (topic.name, 0, 5))
    ask("a later one, and another", (topic.name, 0, 6), (topic.name, 1, 1))
    ask("without metadata", (topic.name, 0, 7), metadata=None)
    ask("too much metadata", (topic.name, 1, 7), metadata="m" * 5000)
    ask("a topic that is not there", (of.name("gone"), 0, 1))
    ask("a partition that is not there", (topic.name, 9, 1))
    ask("nothing")
    ask("another epoch", (topic.name, 1, 8), producer_epoch=4)
    ask("another id", (topic.name, 1, 8), producer_id=987_654_321)
    ask("another transactional id", (topic.name, 1, 8), transactional_id=of.name("other"))
    ask_positions(of, "while it is open", group, topic.name)
    end = EndTxnRequest(
        transactional_id=name,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=True,
    )
    assert of.call(end, END_VERSION, EndTxnResponse).error_code == 0, "not ended"
    wait_for_state(of, name, "CompleteCommit")
    ask_positions(of, "committed", group, topic.name)


@probe(TxnOffsetCommitRequest, since=MEMBERS_SINCE)
def committed_by_members(of: Conversation, version: int) -> None:
    name, group, topic = of.name("tx"), of.name("g"), of.topic()
    producer = init(of, name)
    add_group(of, name, producer, group)

    def ask(label: str, **more: Any) -> None:
        of.ask(label, commit_of(name, producer, group, (topic.name, 0, 3), **more), version)

    ask("a member of a group without members", member_id="somebody", generation_id=1)
    ask("a generation without a member", generation_id=1)
    ask("a member without a generation", member_id="somebody")
    ask("a static member that is not there", member_id="somebody", group_instance_id="i", generation_id=1)
    ask("an empty group", group_id="")
    ask_positions(of, "then", group, topic.name)
