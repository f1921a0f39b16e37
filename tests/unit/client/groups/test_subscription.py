"""What members tell each other survives the way, and nonsense hurts nobody."""

from hypothesis import given
from hypothesis import strategies as st

from distributedlog.client.groups.subscription import (
    MemberSubscription,
    decode_assignment,
    decode_previous,
    decode_subscription,
    encode_assignment,
    encode_previous,
    encode_subscription,
)
from distributedlog.model.ids import TopicPartition

partitions = st.lists(
    st.builds(TopicPartition, st.sampled_from(["a", "b", "long-name"]), st.integers(0, 2**31 - 1)),
    unique=True,
    max_size=9,
)


@given(partitions, st.integers(-1, 2**31 - 1))
def test_a_subscription_is_read_as_it_was_written(owned: list[TopicPartition], generation: int) -> None:
    data = encode_subscription({"a", "b"}, owned, generation)
    read = MemberSubscription(frozenset("ab"), tuple(sorted(owned)), generation, "i")
    assert decode_subscription(data, "i") == read


@given(partitions, st.integers(-1, 2**31 - 1))
def test_the_sticky_assignor_s_memory_travels_in_the_user_data(
    owned: list[TopicPartition], generation: int
) -> None:
    assert decode_previous(encode_previous(owned, generation)) == (tuple(sorted(owned)), generation)
    data = encode_subscription({"a"}, (), 1, user_data=encode_previous(owned, generation))
    assert decode_subscription(data).owned == tuple(sorted(owned))


@given(partitions)
def test_an_assignment_is_read_as_it_was_written(assigned: list[TopicPartition]) -> None:
    assert decode_assignment(encode_assignment(assigned)) == tuple(sorted(assigned))


@given(st.binary(max_size=60))
def test_nonsense_is_a_member_without_topics_or_memory(data: bytes) -> None:
    decode_previous(data)
    decode_subscription(data)
    assert decode_assignment(b"") == ()
