"""Which partitions `dlog topic list` shows when asked for those that are short of replicas."""

from distributedlog.cli.topic.list_ import Wanted, find_partitions
from distributedlog.client.view import PartitionView, TopicView

TOPICS = (
    TopicView(
        "orders",
        (
            PartitionView(0, 1, 1, (1, 2, 3), (1, 2, 3)),
            PartitionView(1, 1, 1, (1, 2, 3), (1, 2)),
            PartitionView(2, 1, 1, (1, 2, 3), (1,)),
            PartitionView(3, -1, 1, (1, 2, 3), ()),
        ),
    ),
    TopicView("single", (PartitionView(0, 1, 1, (1,), (1,)),)),
)
MIN_ISR = {"orders": 2, "single": 2}


def found(wanted: Wanted) -> list[tuple[str, int]]:
    return [(topic.name, partition.index) for topic, partition in find_partitions(TOPICS, MIN_ISR, wanted)]


def test_partitions_are_chosen_by_what_they_are_short_of() -> None:
    assert found(Wanted(under_replicated=True)) == [("orders", 1), ("orders", 2), ("orders", 3)]
    assert found(Wanted(under_min_isr=True)) == [("orders", 2), ("orders", 3)]
    assert found(Wanted(unavailable=True)) == [("orders", 3)]
    assert found(Wanted(under_min_isr=True, unavailable=True)) == [("orders", 2), ("orders", 3)]
    assert found(Wanted()) == []
