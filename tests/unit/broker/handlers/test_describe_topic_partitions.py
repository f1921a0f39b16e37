from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.broker.handlers._operations import TOPIC_OPERATIONS
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import ZERO_UUID
from distributedlog.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tests.unit.broker.handlers.admin_stage import Broker


def ask(
    broker: Broker, *names: str, limit: int = 2_000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return broker.ask(request, 0, DescribeTopicPartitionsResponse)


def test_a_partition_is_told_with_all_its_replicas() -> None:
    broker = Broker(1, 2)
    broker.create("t", (2, 1), min_insync_replicas="2")
    broker.silence(2)
    (topic,) = ask(broker, "t").topics
    assert (topic.name, topic.topic_id, topic.error_code) == ("t", broker.image.topic_ids["t"], 0)
    assert topic.topic_authorized_operations == TOPIC_OPERATIONS
    (partition,) = topic.partitions
    assert (partition.leader_id, partition.leader_epoch) == (1, 1)
    assert (partition.replica_nodes, partition.isr_nodes) == ([2, 1], [1])
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([2], [])
    assert partition.offline_replicas == [2]


def test_a_partition_without_a_leader_is_told_without_an_error() -> None:
    broker = Broker(1, 2)
    broker.create("t", (2,))
    broker.silence(2)
    (partition,) = ask(broker, "t").topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (0, -1)


def test_topics_that_are_not_there_are_errors_only_if_named() -> None:
    broker = Broker()
    broker.create("b")
    told = [(each.name, each.error_code, each.topic_id) for each in ask(broker, "c", "b", "a b").topics]
    assert told == [
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION, ZERO_UUID),
        ("b", 0, broker.image.topic_ids["b"]),
        ("c", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ZERO_UUID),
    ]
    assert [each.name for each in ask(broker).topics] == ["b"]
    assert broker.controller.asked == []


def test_a_topic_that_was_deleted_between_two_pages_is_passed_over() -> None:
    broker = Broker()
    broker.create("c")
    assert [each.name for each in ask(broker, cursor=("b", 3)).topics] == ["c"]


def test_a_cursor_must_be_among_what_is_asked_for() -> None:
    broker = Broker()
    broker.create("t")
    for cursor in (("u", 0), ("t", -1)):
        (topic,) = ask(broker, "t", cursor=cursor).topics
        assert (topic.error_code, topic.partitions) == (ErrorCode.INVALID_REQUEST, [])
        assert topic.topic_authorized_operations == -(2**31), "nothing is known of them"


def test_a_page_has_a_limit_whatever_the_client_wants() -> None:
    broker = Broker()
    broker.create_many(1, 2_001)
    assert len(ask(broker, limit=2**31 - 1).topics[0].partitions) == 2_000
    assert len(ask(broker, limit=-5).topics[0].partitions) == 1


@settings(max_examples=30, deadline=None)
@given(
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    limit=st.integers(1, 7),
    by_name=st.booleans(),
)
def test_pages_together_tell_every_partition_once(counts: list[int], limit: int, by_name: bool) -> None:
    broker = Broker()
    names = [f"t{number}" for number in range(len(counts))]
    for name, count in zip(names, counts, strict=True):
        broker.create(name, *[(1,)] * count)
    wanted = [*names, "u"] if by_name else []
    told: list[tuple[str | None, int]] = []
    absent: list[str | None] = []
    cursor: tuple[str, int] | None = None
    for _ in range(sum(counts) + 1):
        page = ask(broker, *wanted, limit=limit, cursor=cursor)
        partitions = [
            (topic.name, each.partition_index) for topic in page.topics for each in topic.partitions
        ]
        assert len(partitions) <= limit
        assert all(topic.partitions or topic.error_code for topic in page.topics)
        told += partitions
        absent += [topic.name for topic in page.topics if topic.error_code]
        if page.next_cursor is None:
            break
        cursor = page.next_cursor.topic_name, page.next_cursor.partition_index
    assert told == [
        (name, number) for name, count in zip(names, counts, strict=True) for number in range(count)
    ]
    assert absent == (["u"] if by_name else [])
