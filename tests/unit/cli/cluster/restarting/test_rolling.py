"""What a rolling restart looks at."""

from distributedlog.cli.cluster.restarting.own_view import Registration, is_new
from distributedlog.cli.cluster.restarting.rolling import find_alone, find_lacking, find_led_elsewhere
from distributedlog.client.view import NO_NODE, PartitionView, TopicView
from distributedlog.model.ids import TopicPartition

TOPICS = [
    TopicView(
        "orders",
        (
            PartitionView(0, 1, 0, (1, 2), (1, 2)),
            PartitionView(1, 2, 0, (1, 2), (2,)),
            PartitionView(2, NO_NODE, 0, (3,), (3,)),
            PartitionView(3, 2, 0, (2,), (2,)),
        ),
    )
]


def named(*indexes: int) -> list[TopicPartition]:
    return [TopicPartition("orders", at) for at in indexes]


def test_a_partition_lacks_replicas_or_a_leader() -> None:
    assert find_lacking(TOPICS) == set(named(1, 2))


def test_a_partition_alone_on_a_broker_that_is_restarted_is_told() -> None:
    assert find_alone(TOPICS, [1, 2]) == set(named(3))


def test_a_broker_is_to_lead_what_it_is_the_first_replica_of() -> None:
    assert find_led_elsewhere(TOPICS, 1) == named(1)
    assert find_led_elsewhere(TOPICS, 3) == named(2)
    assert find_led_elsewhere(TOPICS, 2) == []


def test_a_broker_is_back_when_it_takes_part_in_another_epoch() -> None:
    before = Registration(is_fenced=False, epoch=7)
    assert is_new(Registration(is_fenced=False, epoch=9), before)
    assert not is_new(before, before), "nobody has heard yet that it was gone"
    assert not is_new(Registration(is_fenced=True, epoch=9), before)
    assert not is_new(None, before)
    untold = Registration(is_fenced=False, epoch=None)
    assert is_new(untold, untold), "a broker that answers is as much as can be known"
