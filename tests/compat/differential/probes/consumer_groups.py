"""Groups of the new protocol: ConsumerGroupHeartbeat, ConsumerGroupDescribe, and the older calls on them."""

import time
from typing import Any

from distributedlog.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from distributedlog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedTopicPartitions,
)
from distributedlog.protocol.messages.delete_groups import DeleteGroupsRequest
from distributedlog.protocol.messages.describe_groups import DescribeGroupsRequest
from distributedlog.protocol.messages.list_groups import ListGroupsRequest
from distributedlog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.compat.differential.asking import AGAIN_SECONDS, SETTLE_SECONDS_MAX, Conversation, Topic
from tests.compat.differential.building import NO_TOPIC
from tests.compat.differential.probes.groups import join, only_mine
from tests.compat.differential.probes.positions import commit_of, fetch_of
from tests.compat.differential.registry import probe

DESCRIBE_VERSION = 1


def _beat(
    of: Conversation, topic: Topic, member: str = "m0", epoch: int = 0, **more: Any
) -> ConsumerGroupHeartbeatRequest:
    fields: dict[str, Any] = {"group_id": of.name("g"), "member_id": member, "member_epoch": epoch}
    if epoch == 0:
        fields |= {
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": [topic.name],
            "topic_partitions": [],
        }
    return ConsumerGroupHeartbeatRequest(**{**fields, **more})


def _owned(topic: Topic, *partitions: int) -> list[OwnedTopicPartitions]:
    return [OwnedTopicPartitions(topic_id=topic.id, partitions=list(partitions))]


def _known_topic(of: Conversation, partitions: int = 1) -> Topic:
    """A topic that coordinators know of: they may hear of it later than those who lead its partitions."""
    topic = of.topic(partitions)
    give_up = time.monotonic() + SETTLE_SECONDS_MAX
    attempt = 0
    while True:
        attempt += 1
        request = _beat(of, topic, group_id=of.name(f"scout{attempt}"))
        given = of.call(request, 1, ConsumerGroupHeartbeatResponse).assignment
        if given is not None and given.topic_partitions:
            return topic
        assert time.monotonic() < give_up, "no coordinator knows of the topic"
        time.sleep(AGAIN_SECONDS)


@probe(ConsumerGroupHeartbeatRequest)
def a_member(of: Conversation, version: int) -> None:
    topic = _known_topic(of, 4)

    def ask(label: str, member: str = "m0", epoch: int = 0, **more: Any) -> None:
        of.ask(label, _beat(of, topic, member, epoch, **more), version)

    ask("leaves a group that is not there", epoch=-1)
    ask("is in a group that is not there", epoch=5)
    ask("joins")
    ask("is there", epoch=1)
    ask("has what it was given", epoch=1, topic_partitions=_owned(topic, 0, 1, 2, 3))
    ask("has what nobody has", epoch=1, topic_partitions=_owned(Topic("x", NO_TOPIC), 0))
    ask("another epoch", epoch=9)
    ask("epoch -3", epoch=-3)
    ask("a stranger", "stranger", 1)
    ask("a stranger leaves", "stranger", -1)
    ask("leaves for a while, and is not static", epoch=-2)
    ask("another subscription", epoch=1, subscribed_topic_names=[of.name("none")],
        topic_partitions=_owned(topic, 0, 1, 2, 3))  # fmt: skip
    ask("leaves", epoch=-1)
    ask("leaves again", epoch=-1)


@probe(ConsumerGroupHeartbeatRequest)
def refused_members(of: Conversation, version: int) -> None:
    topic = _known_topic(of)

    def ask(label: str, member: str = "m0", epoch: int = 0, **more: Any) -> None:
        of.ask(label, _beat(of, topic, member, epoch, **more), version)

    ask("no group", group_id="")
    ask("blank group", group_id=" ")
    if version >= 1:
        ask("no id", "")
    ask("no rebalance timeout", rebalance_timeout_ms=-1)
    ask("no subscription", subscribed_topic_names=None)
    ask("nothing subscribed", subscribed_topic_names=[])
    ask("no partitions", topic_partitions=None)
    ask("joins with partitions", topic_partitions=_owned(topic, 0))
    ask("unknown assignor", server_assignor="nosuch")
    ask("empty assignor", server_assignor="")
    ask("empty instance", instance_id="")
    ask("empty rack", rack_id="")
    if version >= 1:
        ask("bad pattern", subscribed_topic_names=None, subscribed_topic_regex="(")
        ask("empty pattern", subscribed_topic_names=None, subscribed_topic_regex="")
    ask("away without an instance", epoch=-2)
    ask("a topic twice", subscribed_topic_names=[topic.name, topic.name])
    ask("bad topic name", "m1", subscribed_topic_names=["a/b"])


@probe(ConsumerGroupHeartbeatRequest)
def a_static_member(of: Conversation, version: int) -> None:
    topic = _known_topic(of, 2)

    def ask(label: str, member: str = "s0", epoch: int = 0, **more: Any) -> None:
        of.ask(label, _beat(of, topic, member, epoch, **{"instance_id": "i0", **more}), version)

    ask("joins")
    ask("its double", "s1")
    ask("another instance", epoch=1, instance_id="i9")
    ask("away", epoch=-2)
    ask("away again", epoch=-2)
    ask("speaks while it is away", epoch=1)
    ask("back", "s1")
    ask("its former self", "s0", 1)
    ask("leaves", "s1", -1)


@probe(ConsumerGroupHeartbeatRequest)
def two_members(of: Conversation, version: int) -> None:
    topic = _known_topic(of, 4)

    def ask(label: str, member: str, epoch: int = 0, **more: Any) -> None:
        of.ask(label, _beat(of, topic, member, epoch, **more), version)

    ask("first", "m0", server_assignor="range")
    ask("second", "m1", server_assignor="range")
    ask("has to give up", "m0", 1)
    ask("waits", "m1", 2)
    described = ConsumerGroupDescribeRequest(group_ids=[of.name("g")], include_authorized_operations=False)
    of.ask("reconciling", described, DESCRIBE_VERSION)
    ask("has given up", "m0", 1, topic_partitions=_owned(topic, 0, 1))
    ask("gets the rest", "m1", 2, topic_partitions=[])
    ask("leaves", "m1", -1)
    ask("gets all again", "m0", 2)


@probe(ConsumerGroupHeartbeatRequest, since=1)
def a_pattern(of: Conversation, version: int) -> None:
    topic = _known_topic(of, 2)
    request = _beat(of, topic, subscribed_topic_names=None, subscribed_topic_regex=f"{of.prefix}-t.*")
    first = of.call(request, version, ConsumerGroupHeartbeatResponse)
    assert first.error_code == 0

    def is_given(answer: ConsumerGroupHeartbeatResponse) -> bool:
        return answer.assignment is not None and bool(answer.assignment.topic_partitions)

    if not is_given(first):
        again = _beat(of, topic, epoch=first.member_epoch)
        of.call_until(again, version, ConsumerGroupHeartbeatResponse, is_given)
    asked = ConsumerGroupDescribeRequest(group_ids=[of.name("g")], include_authorized_operations=False)
    of.ask("described", asked, DESCRIBE_VERSION, keep=_without_epochs)


def _without_epochs(tree: Any) -> Any:
    """A pattern may be resolved in one step or in two."""
    if isinstance(tree, dict):
        return {key: _without_epochs(value) for key, value in tree.items() if not key.endswith("epoch")}
    return tree


@probe(ConsumerGroupDescribeRequest)
def consumer_groups_described(of: Conversation, version: int) -> None:
    topic, group = _known_topic(of, 2), of.name("g")

    def ask(label: str, *names: str, operations: bool = False) -> None:
        request = ConsumerGroupDescribeRequest(
            group_ids=list(names), include_authorized_operations=operations
        )
        of.ask(label, request, version)

    ask("not there", group)
    of.ask("joins", _beat(of, topic, rack_id="r", instance_id="i"), 1)
    ask("one", group)
    ask("two", group, of.name("none"))
    ask("one twice", group, group)
    ask("operations", group, operations=True)
    ask("operations of one that is not there", of.name("none"), operations=True)
    ask("empty name", "")
    ask("none")
    of.ask("by the older call", DescribeGroupsRequest(groups=[group]), 6)
    of.ask("by the older call, before 6", DescribeGroupsRequest(groups=[group]), 5)
    of.ask("listed", ListGroupsRequest(), 5, keep=only_mine(of))
    of.ask("listed by type", ListGroupsRequest(types_filter=["consumer"]), 5, keep=only_mine(of))
    of.ask("deleted while members are there", DeleteGroupsRequest(groups_names=[group]), 2)
    of.ask("leaves", _beat(of, topic, epoch=-1, instance_id="i"), 1)
    ask("empty", group)
    classic = of.name("k")
    of.ask("a classic member", join(classic), 3)
    ask("a classic group", classic)
    of.ask("deleted", DeleteGroupsRequest(groups_names=[group]), 2)
    ask("gone", group)


@probe(ConsumerGroupDescribeRequest)
def positions_of_consumer_groups(of: Conversation, version: int) -> None:
    topic, group = _known_topic(of, 2), of.name("g")
    of.ask("joins", _beat(of, topic), 1)

    def commit(label: str, member: str, epoch: int, at: int = 9) -> None:
        request = commit_of(group, topic, member_id=member, generation_id_or_member_epoch=epoch)
        of.ask(label, request, at)

    commit("a member", "m0", 1)
    commit("another epoch", "m0", 7)
    commit("an epoch before", "m0", 0)
    commit("a stranger", "x", 1)
    commit("an administrator", "", -1)
    commit("by an older version", "m0", 1, 8)
    of.ask("fetches", fetch_of(9, group, (topic, [0]), member_id="m0", member_epoch=1), 9)
    of.ask("fetches in another epoch", fetch_of(9, group, (topic, [0]), member_id="m0", member_epoch=7), 9)
    of.ask("a stranger fetches", fetch_of(9, group, (topic, [0]), member_id="x", member_epoch=1), 9)
    parts = [OffsetDeleteRequestPartition(partition_index=0)]
    topics = [OffsetDeleteRequestTopic(name=topic.name, partitions=parts)]
    of.ask("deletes what is subscribed", OffsetDeleteRequest(group_id=group, topics=topics), 0)
    other = _known_topic(of)
    topics = [OffsetDeleteRequestTopic(name=other.name, partitions=parts)]
    of.ask("deletes what is not subscribed", OffsetDeleteRequest(group_id=group, topics=topics), 0)
