"""OffsetCommit, OffsetFetch, OffsetDelete."""

from typing import Any

from distributedlog.protocol.messages.delete_groups import DeleteGroupsRequest
from distributedlog.protocol.messages.describe_groups import DescribeGroupsRequest
from distributedlog.protocol.messages.list_groups import ListGroupsRequest
from distributedlog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from distributedlog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from distributedlog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.compat.differential.asking import Conversation, Topic
from tests.compat.differential.building import NO_TOPIC
from tests.compat.differential.probes.groups import new_member, only_mine
from tests.compat.differential.registry import probe

COMMIT_VERSION = 9


def commit_of(
    group: str, topic: Topic, *, partition: int = 0, offset: int = 5, **more: Any
) -> OffsetCommitRequest:
    place = OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=offset,
        committed_leader_epoch=more.pop("leader_epoch", -1),
        committed_metadata=more.pop("metadata", "note"),
    )
    topics = [OffsetCommitRequestTopic(name=topic.name, topic_id=topic.id, partitions=[place])]
    return OffsetCommitRequest(**{"group_id": group, "member_id": "", "topics": topics, **more})


def fetch_of(version: int, group: str, *wanted: tuple[Topic, list[int]], **more: Any) -> OffsetFetchRequest:
    if version < 8:
        named = [OffsetFetchRequestTopic(name=topic.name, partition_indexes=at) for topic, at in wanted]
        return OffsetFetchRequest(group_id=group, topics=named, **more)
    asked = [
        OffsetFetchRequestTopics(name=topic.name, topic_id=topic.id, partition_indexes=at)
        for topic, at in wanted
    ]
    member = {name: more.pop(name) for name in ("member_id", "member_epoch") if name in more}
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=asked, **member)], **more
    )


def _fetch_all(version: int, *groups: str) -> OffsetFetchRequest:
    if version < 8:
        return OffsetFetchRequest(group_id=groups[0], topics=None)
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
    )


@probe(OffsetCommitRequest)
def committed(of: Conversation, version: int) -> None:
    topic, group = of.topic(2), of.name("g")

    def ask(label: str, at: Topic = topic, in_group: str = group, **more: Any) -> None:
        of.ask(label, commit_of(in_group, at, **more), version)

    ask("first")
    ask("another partition", partition=1, offset=7)
    ask("null metadata", metadata=None)
    ask("empty metadata", metadata="")
    ask("4096 bytes of metadata", metadata="x" * 4096)
    ask("4097 bytes of metadata", metadata="x" * 4097)
    ask("partition that is not there", partition=9)
    ask("partition -1", partition=-1)
    ask("topic that is not there", Topic(of.name("none"), NO_TOPIC))
    ask("offset -1", offset=-1)
    ask("offset -2", offset=-2)
    ask("beyond the end", offset=10**12)
    ask("empty group", in_group="")
    ask("a member of a group that has none", member_id="stranger", generation_id_or_member_epoch=1)
    ask("a generation without a member", generation_id_or_member_epoch=1)
    ask("a member without a generation", member_id="stranger")
    ask("a member in a group that is not there", in_group=of.name("h"), member_id="m",
        generation_id_or_member_epoch=0)  # fmt: skip
    ask("leader epoch 3", leader_epoch=3)
    of.ask("no topics", OffsetCommitRequest(group_id=group, member_id="", topics=[]), version)
    of.ask("what is kept", _fetch_all(8, group), 8)
    of.ask("the group", DescribeGroupsRequest(groups=[group]), 6)
    of.ask("listed", ListGroupsRequest(), 5, keep=only_mine(of))


@probe(OffsetCommitRequest)
def committed_by_members(of: Conversation, version: int) -> None:
    topic, group = of.topic(), of.name("g")
    member = new_member(of, group)

    def ask(label: str, who: str, generation: int, **more: Any) -> None:
        request = commit_of(group, topic, member_id=who, generation_id_or_member_epoch=generation, **more)
        of.ask(label, request, version)

    ask("a member", member, 1)
    ask("another generation", member, 9)
    ask("generation -1", member, -1)
    ask("a stranger", "stranger", 1)
    ask("an administrator", "", -1)
    if version >= 7:
        ask("another instance", member, 1, group_instance_id="i")


@probe(OffsetCommitRequest, until=4)
def kept_for_a_time(of: Conversation, version: int) -> None:
    topic, group = of.topic(), of.name("g")
    of.ask("a day", commit_of(group, topic, retention_time_ms=86_400_000), version)
    of.ask("no time", commit_of(group, topic, retention_time_ms=0), version)


@probe(OffsetFetchRequest)
def fetched(of: Conversation, version: int) -> None:
    topic, group = of.topic(2), of.name("g")
    of.call(commit_of(group, topic, leader_epoch=0), COMMIT_VERSION, OffsetCommitResponse)

    def ask(label: str, *wanted: tuple[Topic, list[int]], in_group: str = group, **more: Any) -> None:
        of.ask(label, fetch_of(version, in_group, *wanted, **more), version)

    ask("one", (topic, [0]))
    ask("nothing committed there", (topic, [1]))
    ask("partition that is not there", (topic, [9]))
    ask("topic that is not there", (Topic(of.name("none"), NO_TOPIC), [0]))
    ask("a partition twice", (topic, [0, 0]))
    ask("no partitions", (topic, []))
    ask("no topics")
    ask("another group", (topic, [0]), in_group=of.name("none"))
    ask("empty group", (topic, [0]), in_group="")
    if version >= 2:
        of.ask("all", _fetch_all(version, group), version)
        of.ask("all of another group", _fetch_all(version, of.name("none")), version)
    if version >= 7:
        ask("stable ones", (topic, [0]), require_stable=True)
    if version >= 8:
        of.ask("two groups", _fetch_all(version, group, of.name("none")), version)
        of.ask("one twice", _fetch_all(version, group, group), version)
        of.ask("no groups", OffsetFetchRequest(groups=[]), version)
    if version >= 9:
        ask("as a member that is none", (topic, [0]), member_id="stranger", member_epoch=1)
        ask("as a member of a group that is not there", (topic, [0]), in_group=of.name("none"),
            member_id="stranger", member_epoch=1)  # fmt: skip


@probe(OffsetDeleteRequest)
def positions_deleted(of: Conversation, version: int) -> None:
    topic, group = of.topic(2), of.name("g")
    of.call(commit_of(group, topic), COMMIT_VERSION, OffsetCommitResponse)

    def ask(label: str, name: str, *partitions: int, in_group: str = group) -> None:
        parts = [OffsetDeleteRequestPartition(partition_index=at) for at in partitions]
        topics = [OffsetDeleteRequestTopic(name=name, partitions=parts)]
        of.ask(label, OffsetDeleteRequest(group_id=in_group, topics=topics), version)

    ask("no such group", topic.name, 0, in_group=of.name("none"))
    ask("empty group", topic.name, 0, in_group="")
    ask("partition that is not there", topic.name, 9)
    ask("topic that is not there", of.name("none"), 0)
    ask("nothing committed there", topic.name, 1)
    ask("no partitions", topic.name)
    of.ask("no topics", OffsetDeleteRequest(group_id=group, topics=[]), version)
    ask("one", topic.name, 0)
    ask("again", topic.name, 0)
    of.ask("the group then", DescribeGroupsRequest(groups=[group]), 6)
    of.ask("listed then", ListGroupsRequest(), 5, keep=only_mine(of))
    of.ask("deleted then", DeleteGroupsRequest(groups_names=[group]), 2)
    busy = of.name("b")
    member = new_member(of, busy)
    request = commit_of(busy, topic, member_id=member, generation_id_or_member_epoch=1)
    of.call(request, COMMIT_VERSION, OffsetCommitResponse)
    ask("while members are there", topic.name, 0, in_group=busy)
