from collections import Counter

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from distributedlog.controller.placement import (
    Candidate,
    Location,
    choose_leaving,
    choose_replica,
    place,
)
from distributedlog.model.errors import InvalidReplicationFactorError
from tests.simulation.clock import SeededRandomness

bounded = settings(max_examples=60, deadline=None)


def brokers(count: int, racks: int = 0, fenced: tuple[int, ...] = ()) -> list[Candidate]:
    return [
        Candidate(number, f"rack-{number % racks}" if racks else None, number in fenced)
        for number in range(count)
    ]


@bounded
@given(st.integers(1, 9), st.integers(1, 40), st.data())
def test_leaders_and_replicas_are_spread_evenly(count: int, partitions: int, data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, count))
    placed = place(brokers(count), partitions, factor, SeededRandomness(data.draw(st.integers(0, 99))))
    assert all(len(set(replicas)) == factor for replicas in placed)
    leaders = Counter(dict.fromkeys(range(count), 0))
    leaders.update(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders.values()) <= 1
    whole_rounds = placed[: partitions - partitions % count]
    everyone = Counter(each for replicas in whole_rounds for each in replicas)
    assert len(set(everyone.values())) <= 1


@bounded
@given(st.integers(2, 4), st.integers(1, 3), st.integers(1, 30), st.integers(0, 99))
def test_replicas_lie_in_as_many_racks_as_there_are(
    racks: int, per_rack: int, partitions: int, seed: int
) -> None:
    factor = min(3, racks * per_rack)
    placed = place(brokers(racks * per_rack, racks), partitions, factor, SeededRandomness(seed))
    for replicas in placed:
        assert len({number % racks for number in replicas}) == min(racks, factor)
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) <= -(-partitions // (racks * per_rack))


def on_hosts(*hosts: int, racks: int = 0) -> list[Candidate]:
    """So many brokers on each host; hosts stand in racks in turn."""
    rack_of = {number: f"rack-{number % racks}" if racks else None for number in range(len(hosts))}
    places = [number for number, count in enumerate(hosts) for _ in range(count)]
    return [Candidate(at, rack_of[host], False, f"host-{host}") for at, host in enumerate(places)]


@bounded
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=5),
    st.integers(0, 3),
    st.integers(1, 40),
    st.integers(0, 99),
    st.data(),
)
def test_no_two_replicas_are_on_one_host_while_there_is_another(
    hosts: list[int], racks: int, partitions: int, seed: int, data: st.DataObject
) -> None:
    those = on_hosts(*hosts, racks=racks)
    factor = data.draw(st.integers(1, min(4, len(those))))
    placed = place(those, partitions, factor, SeededRandomness(seed))
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert len({those[each].host for each in replicas}) == min(factor, len(hosts))
        there = len({each.rack for each in those})
        assert len({those[each].rack for each in replicas}) == min(factor, there)
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) <= -(-partitions // len(those))


@bounded
@given(st.integers(2, 4), st.integers(1, 3), st.integers(1, 4), st.integers(0, 99), st.data())
def test_hosts_of_one_size_and_their_brokers_get_as_many_replicas(
    hosts: int, each: int, rounds: int, seed: int, data: st.DataObject
) -> None:
    those = on_hosts(*[each] * hosts)
    factor = data.draw(st.integers(1, min(3, len(those))))
    placed = place(those, rounds * len(those), factor, SeededRandomness(seed))
    given_to = Counter(number for replicas in placed for number in replicas)
    of_hosts = Counter(those[number].host for replicas in placed for number in replicas)
    if factor <= hosts:
        assert len(set(of_hosts.values())) == 1
    assert max(given_to.values()) - min(given_to.values()) <= (1 if factor <= hosts else 2)


def test_a_host_says_nothing_where_all_brokers_are_on_one() -> None:
    """Several brokers on one machine are placed as if each had its own."""
    alike = [each._replace(host="") for each in on_hosts(4)]
    assert place(on_hosts(4), 9, 3, SeededRandomness(1)) == place(alike, 9, 3, SeededRandomness(1))


def test_hosts_of_one_name_in_two_racks_are_two() -> None:
    """Racks may be made up on one machine, to try them."""
    those = [Candidate(number, f"rack-{number % 2}", False, "localhost") for number in range(4)]
    for replicas in place(those, 8, 2, SeededRandomness(1)):
        assert {number % 2 for number in replicas} == {0, 1}


@bounded
@given(
    st.dictionaries(
        st.integers(0, 9),
        st.builds(Location, st.sampled_from([None, "a", "b"]), st.sampled_from("xyz")),
        min_size=2,
    ),
    st.data(),
)
def test_one_more_replica_and_one_fewer_keep_to_different_hosts(
    stands: dict[int, Location], data: st.DataObject
) -> None:
    held = data.draw(
        st.lists(st.sampled_from(sorted(stands)), min_size=1, max_size=len(stands) - 1, unique=True)
    )
    load = {each: (data.draw(st.integers(0, 3)),) for each in stands}
    free = stands.keys() - set(held)
    chosen = choose_replica(free, held, stands, load)
    used = {stands[each] for each in held}
    assert stands[chosen] not in used or all(stands[each] in used for each in free)
    alike = [
        each
        for each in free
        if (stands[each] in used, stands[each].rack) == (stands[chosen] in used, stands[chosen].rack)
    ]
    on_its_host = [each for each in alike if stands[each] == stands[chosen]]
    assert load[chosen] == min(load[each] for each in on_its_host)
    leaving = choose_leaving((*held, chosen), stands, {each: count for each, (count,) in load.items()})
    assert leaving != held[0]
    left = [each for each in (*held, chosen) if each != leaving]
    assert len({stands[each] for each in left}) >= min(
        len(left), len({stands[each] for each in (*held, chosen)})
    )


def test_who_stands_nowhere_leaves_first_even_if_it_is_preferred_as_leader() -> None:
    stands = {1: Location(None, "a"), 2: Location(None, "b")}
    assert choose_leaving((9, 1, 2), stands, {}) == 9
    assert choose_leaving((1, 2), stands, {}) == 2


def test_the_partitions_of_one_leader_have_different_followers() -> None:
    placed = place(brokers(6), 60, 3, SeededRandomness(1))
    followers = {each for replicas in placed if replicas[0] == 0 for each in replicas[1:]}
    assert followers == {1, 2, 3, 4, 5}


def test_where_a_topic_starts_is_drawn() -> None:
    starts = {place(brokers(5), 1, 1, SeededRandomness(seed))[0][0] for seed in range(40)}
    assert starts == {0, 1, 2, 3, 4}


def test_a_fenced_broker_never_leads_and_follows_only_if_it_must() -> None:
    placed = place(brokers(4, fenced=(2,)), 12, 3, SeededRandomness(1))
    assert all(2 not in replicas for replicas in placed)
    placed = place(brokers(3, fenced=(2,)), 12, 3, SeededRandomness(1))
    assert all(2 in replicas[1:] for replicas in placed)


def test_there_must_be_as_many_brokers_as_replicas_and_one_to_lead() -> None:
    with pytest.raises(InvalidReplicationFactorError, match="3 replicas"):
        place(brokers(2), 1, 3, SeededRandomness(1))
    with pytest.raises(InvalidReplicationFactorError, match="nobody could lead"):
        place(brokers(2, fenced=(0, 1)), 1, 1, SeededRandomness(1))
