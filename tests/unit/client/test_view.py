"""What a client knows of a cluster, and how it learns."""

import pytest

from distributedlog.client.view import ClusterView, PartitionView, SeenEpochs, TopicView, view_of
from distributedlog.model.errors import BrokerError
from distributedlog.model.ids import ZERO_UUID, Uuid
from distributedlog.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ONE, OTHER = Uuid(bytes([1] * 16)), Uuid(bytes([2] * 16))


def topic(name: str, *epochs: int, topic_id: Uuid = ONE) -> TopicView:
    partitions = tuple(PartitionView(index, index, epoch) for index, epoch in enumerate(epochs))
    return TopicView(name, partitions, topic_id)


def view(*topics: TopicView) -> ClusterView:
    return ClusterView(topics={each.name: each for each in topics})


def test_an_answer_about_some_topics_leaves_the_others() -> None:
    merged = view(topic("a", 1), topic("b", 1)).merged(view(topic("b", 2)), is_complete=False)
    assert merged.topics == {"a": topic("a", 1), "b": topic("b", 2)}


def test_an_answer_about_all_topics_forgets_the_others() -> None:
    merged = view(topic("a", 1), topic("b", 1)).merged(view(topic("b", 2)), is_complete=True)
    assert list(merged.topics) == ["b"]


def test_a_broker_that_lags_does_not_take_the_view_back() -> None:
    merged = view(topic("a", 5, 1)).merged(view(topic("a", 4, 2)), is_complete=False)
    assert [each.leader_epoch for each in merged.topics["a"].partitions] == [5, 2]


def test_another_topic_of_the_same_name_begins_anew() -> None:
    reborn = topic("a", 0, topic_id=OTHER)
    assert view(topic("a", 5)).merged(view(reborn), is_complete=False).topics["a"] == reborn


def test_epochs_that_were_seen_outlive_the_view() -> None:
    seen = SeenEpochs()
    seen.note(view(topic("a", 5, 1)))
    seen.note(view())
    checked = seen.checked(view(topic("a", 4, 2, 0), topic("b", 0))).topics
    assert checked["b"] == topic("b", 0)
    late, renewed, new = checked["a"].partitions
    assert (late.has_leader, late.leader_epoch) == (False, 5)
    assert [each.has_leader for each in (renewed, new)] == [True, True]
    assert seen.checked(view(topic("a", 5, 2))).topics["a"] == topic("a", 5, 2)


def test_epochs_of_another_topic_of_the_same_name_say_nothing() -> None:
    seen = SeenEpochs()
    seen.note(view(topic("a", 5)))
    reborn = view(topic("a", 0, topic_id=OTHER))
    assert seen.checked(reborn) == reborn
    seen.note(reborn)
    seen.note(view(topic("a", 3, topic_id=OTHER)))
    assert not seen.checked(view(topic("a", 2, topic_id=OTHER))).topics["a"].is_led


def test_epochs_without_a_topic_id_are_not_kept() -> None:
    seen = SeenEpochs()
    seen.note(view(topic("a", 5, topic_id=ZERO_UUID)))
    nameless = view(topic("a", 0, topic_id=ZERO_UUID))
    assert seen.checked(nameless) == nameless


def test_a_response_is_read_with_its_partitions_in_order() -> None:
    partitions = [
        MetadataResponsePartition(
            partition_index=index,
            leader_id=leader,
            leader_epoch=3,
            replica_nodes=[1, 2],
            isr_nodes=[2],
            offline_replicas=[1],
        )
        for index, leader in ((1, -1), (0, 2))
    ]
    read = view_of(
        MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=2, host="h", port=9, rack="r")],
            cluster_id="c",
            controller_id=2,
            topics=[MetadataResponseTopic(name="a", topic_id=ONE, partitions=partitions)],
        )
    )
    first, second = read.topics["a"].partitions
    assert (first.index, first.leader_id, first.isr, first.offline) == (0, 2, (2,), (1,))
    assert first.is_under_replicated
    assert not second.has_leader
    assert not read.topics["a"].is_led
    assert read.topics["a"].replication_factor == 2
    assert str(read.brokers[2].address) == "h:9"
    assert (read.cluster_id, read.controller_id, read.name_of(ONE)) == ("c", 2, "a")


def test_a_partition_is_found_by_its_index_also_where_some_are_missing() -> None:
    gappy = TopicView("a", (PartitionView(0, 1), PartitionView(2, 1)))
    assert [getattr(gappy.partition(index), "index", None) for index in range(4)] == [0, None, 2, None]


def test_an_answer_that_is_an_error_as_a_whole_is_raised() -> None:
    with pytest.raises(BrokerError, match="REBOOTSTRAP_REQUIRED"):
        view_of(MetadataResponse(brokers=[], topics=[], error_code=129))
