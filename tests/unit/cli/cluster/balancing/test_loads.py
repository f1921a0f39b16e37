"""What partitions make of the load of brokers, and who counts as within."""

import pytest

from distributedlog.cli.cluster.balancing.loads import (
    LEADERS,
    ClusterLoad,
    Load,
    PartitionLoad,
    Site,
    find_bands,
    total_excess,
)
from distributedlog.model.ids import TopicPartition

MIB = 1024.0 * 1024


def test_every_replica_weighs_its_bytes_and_the_first_one_what_is_read() -> None:
    orders = PartitionLoad((1, 2, 3), size_bytes=100, bytes_in=10, consumed=4)
    cluster = ClusterLoad({1: Site(), 2: Site()}, {TopicPartition("orders", 0): orders})
    assert cluster.by_broker() == {1: Load(100, 10, 4 + 2 * 10, 1), 2: Load(100, 10, 0, 0)}


def test_a_broker_is_outside_by_what_is_beyond_the_tolerance() -> None:
    loads = [Load(disk=80 * MIB), Load(disk=120 * MIB)]
    assert total_excess(loads, 0.1) == pytest.approx(0.2)
    assert total_excess(loads, 0.2) == 0.0


def test_next_to_nothing_does_not_count() -> None:
    assert total_excess([Load(disk=10), Load(disk=1_000_000, bytes_in=9_000)], 0.1) == 0.0


def test_leaders_are_whole() -> None:
    bands = find_bands([Load(leaders=1), Load(leaders=1), Load(leaders=2)], 0.1)
    assert [bands[LEADERS].excess(each) > 0 for each in (0, 1, 2, 3)] == [True, False, False, True]
