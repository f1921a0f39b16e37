"""Internal topics get more replicas when brokers join, a few partitions at a time."""

from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.controller.image import Partition
from distributedlog.controller.moves.internal_topics import PARTITIONS_AT_ONCE, PAUSE_MS
from distributedlog.controller.reassignments import list_moving
from distributedlog.controller.requests import (
    AlterPartitionsReply,
    AlterPartitionsRequest,
    AlterReassignmentsReply,
    AlterReassignmentsRequest,
    IsrChange,
    IsrMember,
    UnregisterBrokerRequest,
)
from distributedlog.model.cluster_settings import INTERNAL_TOPICS_GROW
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import TopicPartition
from distributedlog.model.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tests.unit.controller.stage import Stage, config

COUNT = 2 * PARTITIONS_AT_ONCE + 5


class Scene:
    """A broker with both internal topics, and a topic of others."""

    def __init__(self, *replicas: int, count: int = COUNT, **changes: str) -> None:
        self.stage = Stage(config(**{"internal_topics_grow_enable": "true", **changes}))
        held = replicas or (1,)
        self.stage.start(*held)
        for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC, "orders"):
            self.stage.create(name, *[held] * (count if name == OFFSETS_TOPIC else 1))

    def moving(self) -> dict[TopicPartition, Partition]:
        return dict(list_moving(self.stage.image))

    def wait(self) -> dict[TopicPartition, Partition]:
        """Returns what is being moved when the controller has looked; every broker is heard meanwhile."""
        self.stage.pass_time(PAUSE_MS + 1)
        for broker_id, broker in self.stage.image.brokers.items():
            if not broker.fenced:
                self.stage.heartbeat(broker_id)
        return self.moving()

    def arrive(self) -> None:
        """All that is being moved is in sync on all of its replicas."""
        for name, partition in self.moving().items():
            topic = self.stage.image.topic_named(name.topic)
            assert topic is not None
            members = tuple(IsrMember(each, self.stage.epochs[each]) for each in partition.replicas)
            change = IsrChange(
                topic.topic_id, name.partition, partition.leader_epoch, partition.partition_epoch, members
            )
            leader = partition.leader
            request = AlterPartitionsRequest(leader, self.stage.epochs[leader], (change,))
            (outcome,) = self.stage.ask(request, AlterPartitionsReply).changes
            assert outcome.error is ErrorCode.NONE

    def grow(self) -> list[int]:
        """Returns how many partitions each batch moved, until there is none left."""
        batches = []
        while moving := self.wait():
            batches.append(len(moving))
            self.arrive()
        return batches

    def replicas(self, name: str = OFFSETS_TOPIC) -> set[int]:
        topic = self.stage.image.topic_named(name)
        assert topic is not None
        return {len(each.replicas) for each in topic.partitions.values()}


def test_internal_topics_grow_to_three_replicas_batch_by_batch() -> None:
    scene = Scene()
    assert scene.wait() == {}
    scene.stage.start(2, 3, 4)
    assert scene.grow() == [PARTITIONS_AT_ONCE, PARTITIONS_AT_ONCE, 6]
    assert scene.replicas(OFFSETS_TOPIC) == scene.replicas(TRANSACTIONS_TOPIC) == {3}
    assert scene.replicas("orders") == {1}, "topics of others are theirs"
    assert {scene.stage.partition(OFFSETS_TOPIC, each).leader for each in range(COUNT)} == {1}
    assert scene.stage.image == scene.stage.replayed()
    assert scene.wait() == {}


def test_they_grow_with_each_broker_and_stay_when_one_stops() -> None:
    scene = Scene(count=1)
    for broker_id, replicas in ((2, 2), (3, 3), (4, 3)):
        scene.stage.start(broker_id)
        scene.grow()
        assert scene.replicas() == {replicas}
    scene.stage.silence(2)
    assert scene.grow() == []
    assert scene.replicas() == {3}


def test_the_next_batch_waits_until_this_one_has_arrived_whoever_is_the_controller() -> None:
    scene = Scene()
    scene.stage.start(2, 3)
    first = scene.wait()
    assert scene.wait() == first
    scene.stage.failover()
    assert scene.wait() == first
    scene.arrive()
    assert len(scene.wait()) == PARTITIONS_AT_ONCE


def test_nothing_grows_while_a_partition_of_them_is_moved_by_hand() -> None:
    scene = Scene()
    scene.stage.start(2)
    by_hand = TopicPartition(TRANSACTIONS_TOPIC, 0)
    request = AlterReassignmentsRequest(((by_hand, (2,)),), True)
    scene.stage.ask(request, AlterReassignmentsReply)
    assert list(scene.wait()) == [by_hand]
    scene.arrive()
    assert len(scene.wait()) == PARTITIONS_AT_ONCE


def test_moves_of_other_topics_hold_nothing_up() -> None:
    scene = Scene()
    scene.stage.start(2)
    request = AlterReassignmentsRequest(((TopicPartition("orders", 0), (2,)),), True)
    scene.stage.ask(request, AlterReassignmentsReply)
    assert len(scene.wait()) == 1 + PARTITIONS_AT_ONCE


def test_a_fenced_broker_neither_counts_nor_gets_a_replica() -> None:
    scene = Scene(count=1)
    scene.stage.register(3)
    scene.stage.start(2)
    scene.grow()
    assert scene.stage.partition(OFFSETS_TOPIC).replicas == (1, 2)
    scene.stage.heartbeat(3)
    scene.grow()
    assert scene.replicas() == {3}


def test_a_partition_whose_replica_is_away_waits_for_it() -> None:
    scene = Scene(1, 2, count=1)
    scene.stage.silence(2)
    scene.stage.start(3, 4)
    assert scene.grow() == []
    scene.stage.ask(UnregisterBrokerRequest(2), object)
    assert scene.grow() == [], "a replica that is gone for good is replaced by hand"
    scene.stage.start(2)
    assert scene.grow() == [2]
    assert scene.replicas() == {3}


def test_a_cluster_that_was_made_before_or_says_so_is_left_alone() -> None:
    scene = Scene(internal_topics_grow_enable="false")
    scene.stage.start(2, 3)
    assert scene.grow() == []
    assert INTERNAL_TOPICS_GROW in dict(scene.stage.image.settings_of(4, "").items()), (
        "it is in the log, so that it can be changed"
    )


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=6), st.integers(1, 12))
def test_replicas_are_on_different_hosts_and_spread_evenly(hosts: list[str], count: int) -> None:
    scene = Scene(count=count)
    for broker_id, host in enumerate(hosts, 2):
        scene.stage.start(broker_id, host=host)
    scene.grow()
    brokers = scene.stage.image.brokers
    wanted = min(3, len(brokers))
    of_hosts = len({each.placement_host for each in brokers.values()})
    topic = scene.stage.image.topic_named(OFFSETS_TOPIC)
    assert topic is not None
    for partition in topic.partitions.values():
        assert len(partition.replicas) == wanted
        assert len({brokers[each].placement_host for each in partition.replicas}) == min(wanted, of_hosts)
        assert partition.replicas[0] == partition.leader == 1
