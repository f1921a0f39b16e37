"""What two samples say of a cluster's load."""

from distributedlog.cli.cluster.balancing.loads import Site
from distributedlog.cli.cluster.balancing.measuring import Sample, combine
from distributedlog.client.admin.admin import OffsetRange, Reassignment
from distributedlog.client.view import NO_NODE, PartitionView, TopicView
from distributedlog.model.ids import TopicPartition

P = [TopicPartition("orders", at) for at in range(5)]
BROKERS = {1: Site(), 2: Site()}


def sample(
    seconds: float, sizes: dict[int, int], ends: dict[int, int], committed: dict[tuple[str, int], int]
) -> Sample:
    return Sample(
        seconds,
        {P[at]: size for at, size in sizes.items()},
        {P[at]: OffsetRange(0, end) for at, end in ends.items()},
        {(group, P[at]): offset for (group, at), offset in committed.items()},
    )


def topic(*partitions: PartitionView) -> list[TopicView]:
    return [TopicView("orders", partitions)]


def in_sync(at: int, *replicas: int) -> PartitionView:
    return PartitionView(at, replicas[0], 0, replicas, replicas)


def test_what_was_written_and_read_between_the_samples_is_told_by_the_second() -> None:
    first = sample(10.0, {0: 10_000}, {0: 100}, {("a", 0): 20, ("b", 0): 100})
    last = sample(20.0, {0: 14_000}, {0: 140}, {("a", 0): 40, ("b", 0): 140})
    load = combine(BROKERS, topic(in_sync(0, 1, 2)), {}, first, last).partitions[P[0]]
    assert (load.size_bytes, load.bytes_in, load.consumed) == (14_000, 400, 600)
    assert load.of_leadership.bytes_out == 1_000, "two groups read, and one follower"
    assert not load.is_pinned


def test_a_log_that_was_trimmed_has_records_of_mean_size() -> None:
    first = sample(0.0, {0: 50_000}, {0: 100}, {})
    last = sample(1.0, {0: 20_000}, {0: 200}, {})
    assert combine(BROKERS, topic(in_sync(0, 1)), {}, first, last).partitions[P[0]].bytes_in == 10_000


def test_a_new_group_a_topic_made_meanwhile_and_a_reset_count_nothing() -> None:
    first = sample(0.0, {}, {}, {("a", 0): 90})
    last = sample(1.0, {0: 1_000}, {0: 100}, {("a", 0): 10, ("new", 0): 100})
    load = combine(BROKERS, topic(in_sync(0, 1)), {}, first, last).partitions[P[0]]
    assert (load.bytes_in, load.consumed) == (0, 0)


def test_without_time_between_them_there_are_no_rates() -> None:
    only = sample(5.0, {0: 1_000}, {0: 100}, {("a", 0): 10})
    load = combine(BROKERS, topic(in_sync(0, 1)), {}, only, only).partitions[P[0]]
    assert (load.size_bytes, load.bytes_in, load.consumed) == (1_000, 0, 0)


def test_what_is_not_whole_is_left_where_it_is() -> None:
    only = sample(0.0, {}, {}, {})
    partitions = topic(
        PartitionView(0, 1, 0, (1, 2), (1,)),
        PartitionView(1, NO_NODE, 0, (1,), ()),
        in_sync(2, 1, 3),
        in_sync(3, 1, 2),
        in_sync(4, 2, 1),
    )
    moving = {P[3]: Reassignment((1, 2), (2,), (1,))}
    load = combine(BROKERS, partitions, moving, only, only).partitions
    assert [load[name].is_pinned for name in P] == [True, True, True, True, False]
    assert load[P[3]].replicas == (2,), "it counts where it goes"
