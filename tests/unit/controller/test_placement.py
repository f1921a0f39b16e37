from collections import Counter

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from distributedlog.controller.placement import Candidate, place
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
