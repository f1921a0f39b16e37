"""Keys go where Kafka's clients put them."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from distributedlog.client.partitioner import StickyChoice, murmur2, partition_of
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
