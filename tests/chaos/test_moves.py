"""What a run allows of where partitions are when all moves have ended."""

from distributedlog.model.ids import TopicPartition
from distributedlog.model.internal_topics import OFFSETS_TOPIC
from tests.chaos.moves import find_wrong

ORDERS, OFFSETS = TopicPartition("orders", 0), TopicPartition(OFFSETS_TOPIC, 0)
ASKED = [(1, 2, 3), (3, 1)]


def test_a_partition_is_where_it_was_or_where_somebody_asked_it_to_be() -> None:
    for held in ASKED:
        assert find_wrong({ORDERS: held}, {ORDERS: ASKED}) == []
    for held in ((3, 1, 2), (2, 3), (1,), ()):
        assert [each.name for each in find_wrong({ORDERS: held}, {ORDERS: ASKED})] == ["move went wrong"]
    assert find_wrong({}, {ORDERS: ASKED}), "it is gone"


def test_a_partition_of_an_internal_topic_may_have_grown_since() -> None:
    assert find_wrong({OFFSETS: (3, 1, 2)}, {OFFSETS: ASKED}) == []
    assert find_wrong({OFFSETS: (2, 1, 3)}, {OFFSETS: ASKED}) != []
    assert find_wrong({OFFSETS: (3, 1, 2, 4)}, {OFFSETS: ASKED}) != []
