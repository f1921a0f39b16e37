"""A plan for another number of replicas: exactly so many, on different hosts, and no other replica moves."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.cli.cluster.reassignment_plan import Plan
from distributedlog.cli.topic.replication_factor import plan_factor
from distributedlog.controller.placement import Location
from distributedlog.model.errors import InvalidReplicationFactorError
from distributedlog.model.ids import TopicPartition

places = st.builds(Location, st.sampled_from([None, "a", "b"]), st.sampled_from("xyz"))


def partitions_of(*held: tuple[int, ...], topic: str = "orders") -> Plan:
    return {TopicPartition(topic, at): replicas for at, replicas in enumerate(held)}


def standing(*brokers: int) -> dict[int, Location]:
    """Each on a host of its own."""
    return {each: Location(None, f"host-{each}") for each in brokers}


def all_in_sync(held: Plan) -> dict[TopicPartition, frozenset[int]]:
    return {name: frozenset(replicas) for name, replicas in held.items()}


@settings(deadline=None)
@given(st.dictionaries(st.integers(1, 8), places, min_size=1), st.data())
def test_every_partition_has_so_many_replicas_on_different_hosts(
    stands: dict[int, Location], data: st.DataObject
) -> None:
    some = st.lists(st.sampled_from(sorted(stands)), min_size=1, unique=True).map(tuple)
    held = partitions_of(*data.draw(st.lists(some, min_size=1, max_size=8)))
    factor = data.draw(st.integers(1, len(stands)))
    before, moves = plan_factor(held, "orders", factor, stands, all_in_sync(held))
    assert before == tuple(sorted({len(replicas) for replicas in held.values()}))
    assert set(moves) == {name for name, replicas in held.items() if len(replicas) != factor}
    for name, target in moves.items():
        present = held[name]
        assert len(set(target)) == len(target) == factor
        assert target[0] == present[0], "the preferred leader stays"
        smaller, larger = sorted((present, target), key=len)
        assert tuple(each for each in larger if each in smaller) == smaller, "replicas keep their order"
        hosts = {stands[each] for each in present}
        if factor > len(present):
            free_hosts = set(stands.values()) - hosts
            grown = {stands[each] for each in target}
            assert len(grown) == min(len(hosts) + factor - len(present), len(hosts | free_hosts))
        else:
            assert len({stands[each] for each in target}) == min(factor, len(hosts))


def test_new_replicas_are_spread_by_what_brokers_hold() -> None:
    held = {**partitions_of(*[(1,)] * 6), **partitions_of(*[(2,)] * 6, topic="others")}
    _, moves = plan_factor(held, "orders", 2, standing(1, 2, 3, 4), {})
    assert Counter(target[1] for target in moves.values()) == {3: 3, 4: 3}


def test_who_is_not_in_sync_or_does_not_live_goes_first() -> None:
    held = partitions_of((1, 2, 3), (9, 1, 2))
    in_sync = {TopicPartition("orders", 0): frozenset({2, 3}), TopicPartition("orders", 1): frozenset({1, 2})}
    _, moves = plan_factor(held, "orders", 2, standing(1, 2, 3), in_sync)
    assert moves == partitions_of((2, 3), (1, 2))


def test_too_many_replicas_are_refused_by_name() -> None:
    with pytest.raises(InvalidReplicationFactorError, match=r"orders-0 .* 2 brokers that live"):
        plan_factor(partitions_of((1,)), "orders", 3, standing(1, 2), {})
