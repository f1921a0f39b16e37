"""Keys go where Kafka's clients put them."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.client.partitioner import StickyChoice, make_partitioner, murmur2, partition_of
from distributedlog.model.errors import ConfigError
from tests.unit.client.oracle import their_murmur2


@given(st.binary(max_size=70))
def test_the_hash_is_that_of_another_client(key: bytes) -> None:
    assert murmur2(key) == their_murmur2(key) & 0xFFFF_FFFF


@given(st.binary(max_size=20), st.integers(1, 50))
def test_a_key_stays_where_it_is_and_within_the_topic(key: bytes, count: int) -> None:
    assert partition_of(key, count) == (their_murmur2(key) & 0x7FFF_FFFF) % count


def test_records_without_a_key_fill_a_batch_before_they_move_on() -> None:
    choice = StickyChoice(2, 1000)
    chosen = [choice.choose(3, 100) for _ in range(60)]
    assert chosen[:21] == [2] * 10 + [0] * 10 + [1]
    assert set(Counter(chosen).values()) == {20}


def choices(name: Any, keys: Sequence[bytes | None], count: int = 5, size: int = 10) -> list[int]:
    partitioner = make_partitioner(name, lambda count: 3 % count, 25)
    return [partitioner.choose("t", key, count, size) for key in keys]


def test_named_partitioners_do_what_their_namesakes_do() -> None:
    assert choices("murmur2", [None] * 7) == [3, 3, 3, 4, 4, 4, 0]
    assert choices("murmur2", [b"a", b"", b"a"]) == [partition_of(each, 5) for each in (b"a", b"", b"a")]
    assert choices("murmur2_random", [None, b"a", b""]) == [3, partition_of(b"a", 5), partition_of(b"", 5)]
    assert choices("consistent_random", [None, b"", b"abc"]) == [3, 3, 0x352441C2 % 5]
    assert choices("consistent", [None, b"", b"abc"]) == [0, 0, 0x352441C2 % 5]
    assert choices("round_robin", [b"a"] * 4) == [3, 4, 0, 1]
    assert choices("sticky", [b"a", b"b", b"c", b"d"]) == [3, 3, 3, 4]
    assert choices(lambda topic, key, count: len(key or b""), [None, b"aa"]) == [0, 2]


def test_partitioners_survive_topics_that_grow_and_others_beside() -> None:
    partitioner = make_partitioner("round_robin", lambda count: 0, 1)
    assert [partitioner.choose("t", None, each, 1) for each in (2, 2, 3, 3)] == [0, 1, 2, 0]
    assert partitioner.choose("u", None, 2, 1) == 0


def test_more_keys_than_are_remembered_keep_their_places() -> None:
    keys = [b"%d" % number for number in range(9000)] * 2
    assert choices("murmur2", keys) == [partition_of(key, 5) for key in keys]


@pytest.mark.parametrize("choice", [-1, 5, None, "1", 2.0])
def test_a_callable_that_chooses_no_partition_is_told(choice: Any) -> None:
    with pytest.raises(ConfigError, match="partitions 0 to 4"):
        choices(lambda topic, key, count: choice, [b"k"])


def test_an_unknown_partitioner_is_refused() -> None:
    with pytest.raises(ConfigError, match="round_robin"):
        make_partitioner("best", lambda count: 0, 1)
