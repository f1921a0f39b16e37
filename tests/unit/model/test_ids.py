import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.model.errors import InvalidNameError
from distributedlog.model.ids import PARTITION_MAX, ZERO_UUID, TopicPartition, Uuid, check_topic_name

TOPICS = st.from_regex(r"[A-Za-z0-9._-]{1,30}", fullmatch=True).filter(lambda name: name not in (".", ".."))


@pytest.mark.parametrize("name", ["a", "orders", "__consumer_offsets", "a.b-c_D9", "...", "x" * 249, "-"])
def test_kafkas_topic_names_are_accepted(name: str) -> None:
    assert check_topic_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "a\n", "a\0", "x" * 250, "../a"])
def test_other_topic_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidNameError):
        check_topic_name(name)


@settings(max_examples=100, deadline=None)
@given(TOPICS, st.integers(0, PARTITION_MAX))
def test_a_partitions_directory_names_it(topic: str, partition: int) -> None:
    original = TopicPartition(topic, partition)
    assert original.directory_name == str(original) == f"{topic}-{partition}"
    assert TopicPartition.from_directory_name(original.directory_name) == original


def test_the_last_dash_parts_topic_and_number() -> None:
    assert TopicPartition.from_directory_name("a-1-2") == ("a-1", 2)


@pytest.mark.parametrize(
    "name", ["orders", "orders-", "-1", "orders-x", "orders-2147483648", "a b-1", "o-1.delete", "orders-01"]
)
def test_other_directories_are_not_partitions(name: str) -> None:
    with pytest.raises(InvalidNameError):
        TopicPartition.from_directory_name(name)


@settings(max_examples=100, deadline=None)
@given(st.binary(min_size=16, max_size=16))
def test_an_id_is_read_as_it_is_printed(raw: bytes) -> None:
    text = str(Uuid(raw))
    assert len(text) == 22
    assert Uuid.parse(text) == Uuid(raw)


def test_ids_are_printed_as_kafka_prints_them() -> None:
    assert str(ZERO_UUID) == "A" * 22
    assert str(Uuid(bytes.fromhex("fbefbefbefbefbefbefbefbefbefbefb"))) == "----------------------"[:21] + "w"


@pytest.mark.parametrize("text", ["", "AAAA", "A" * 21, "A" * 23, "A" * 21 + "!", "ä" * 22])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidNameError):
        Uuid.parse(text)
