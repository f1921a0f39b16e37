"""What a plan that empties a broker is: every replica goes, nothing else moves, racks stay apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.cli.cluster.draining import plan_drain
from distributedlog.cli.cluster.reassignment_plan import Plan
from distributedlog.controller.placement import Location
from distributedlog.model.errors import InvalidRequestError
from distributedlog.model.ids import TopicPartition


def partitions_of(*held: tuple[int, ...]) -> Plan:
    return {TopicPartition("orders", at): replicas for at, replicas in enumerate(held)}


places = st.builds(Location, st.sampled_from([None, "a", "b", "c"]), st.sampled_from("xyz"))
Cluster = tuple[Plan, dict[int, Location], int]


def standing(*brokers: int) -> dict[int, Location]:
    """Each on a host of its own."""
    return {each: Location(None, f"host-{each}") for each in brokers}


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    racks = draw(st.dictionaries(st.integers(0, 9), places, min_size=2))
    sizes = st.integers(1, min(3, len(racks) - 1))
    held = draw(st.lists(sizes.flatmap(lambda n: st.permutations(sorted(racks)).map(lambda p: tuple(p[:n])))))
    return partitions_of(*held), racks, draw(st.sampled_from(sorted(racks)))


@given(clusters())
def test_a_plan_moves_all_replicas_of_the_broker_and_no_other(
    cluster: Cluster,
) -> None:
    partitions, racks, drained = cluster
    plan = plan_drain(partitions, racks, drained)
    assert set(plan) == {name for name, held in partitions.items() if drained in held}
    for name, target in plan.items():
        assert len(set(target)) == len(target) == len(partitions[name])
        moved = [(old, new) for old, new in zip(partitions[name], target, strict=True) if old != new]
        assert [old for old, _ in moved] == [drained]
        assert moved[0][1] in racks.keys() - {drained}


@given(clusters())
def test_two_replicas_share_a_rack_only_where_no_other_is_free(
    cluster: Cluster,
) -> None:
    partitions, stands, drained = cluster
    for name, target in plan_drain(partitions, stands, drained).items():
        staying = {stands[each].rack for each in partitions[name] if each != drained} - {None}
        (new,) = set(target) - set(partitions[name])
        free = set(stands) - set(partitions[name])
        if stands[new].rack in staying:
            assert all(stands[each].rack in staying for each in free)


@given(clusters())
def test_two_replicas_share_a_host_only_where_no_other_is_free(cluster: Cluster) -> None:
    partitions, stands, drained = cluster
    for name, target in plan_drain(partitions, stands, drained).items():
        staying = {stands[each] for each in partitions[name] if each != drained}
        (new,) = set(target) - set(partitions[name])
        free = set(stands) - set(partitions[name])
        assert stands[new] not in staying or all(stands[each] in staying for each in free)


def test_the_replicas_are_spread_by_count_and_the_preferred_leaders_too() -> None:
    held = partitions_of(*[(1, 2)] * 6, (3, 2), (4, 2))
    plan = plan_drain(held, standing(1, 2, 3, 4), 1)
    assert sorted(target[0] for target in plan.values()) == [3, 3, 3, 4, 4, 4]


def test_moves_under_a_dead_broker_go_to_those_that_live() -> None:
    assert plan_drain(partitions_of((5, 1)), standing(1, 2), 5) == partitions_of((2, 1))


def test_a_partition_with_nowhere_to_go_is_named() -> None:
    with pytest.raises(InvalidRequestError, match=r"orders-0 .* add a broker"):
        plan_drain(partitions_of((1, 2)), standing(1, 2), 1)


def test_a_broker_that_holds_nothing_has_an_empty_plan() -> None:
    assert plan_drain(partitions_of((1, 2)), standing(1, 2, 3), 3) == {}
