"""Partitions: who is cut from whom."""

from random import Random

import pytest

from tests.chaos.nemeses.networks import bridge, isolated


def test_who_is_isolated_is_cut_from_all_others_and_they_are_not_from_each_other() -> None:
    assert set(isolated([1, 2, 3], [1])) == {(1, 2), (1, 3), (2, 1), (3, 1)}
    assert len(isolated([1, 2, 3, 4, 5], [2, 4])) == 12


@pytest.mark.parametrize("size", [3, 5])
def test_a_bridge_reaches_all_and_the_others_only_their_half(size: int) -> None:
    ids = range(1, size + 1)
    for seed in range(50):
        middle, cut = bridge(ids, Random(seed))
        assert not [way for way in cut if middle in way]
        assert {(target, source) for source, target in cut} == set(cut), "both ways"
        for node in ids:
            unreached = {target for source, target in cut if source == node}
            assert len(unreached) == (0 if node == middle else (size - 1) // 2)
