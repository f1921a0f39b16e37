"""Where a record goes when its handler fails, and what its headers say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog import ConsumerRecord
from distributedlog.model.errors import ConfigError
from distributedlog.patterns import retries
from distributedlog.patterns.correlation import (
    correlation_id_of,
    error_headers,
    error_in,
    reply_address,
    request_headers,
)
from distributedlog.patterns.retries import DeadLetterError, RetryPolicy, after_failure, topics_for
from distributedlog.records.record import Header

POLICY = RetryPolicy(delays_ms=(10, 200))
TOPICS = topics_for("orders", "kitchen", POLICY)
headers = st.lists(st.builds(Header, st.text(), st.none() | st.binary(max_size=30)), max_size=6).map(tuple)


def fail(record: ConsumerRecord, error: Exception, now_ms: int = 1000, tries: int = 1) -> retries.Next:
    return after_failure(
        record, error, tries=tries, group="kitchen", topics=TOPICS, policy=POLICY, now_ms=now_ms
    )


def told(found: tuple[Header, ...]) -> dict[str, bytes | None]:
    return {each.key.removeprefix(retries.PREFIX): each.value for each in found}


def test_a_record_goes_from_one_delay_topic_to_the_next_and_dies() -> None:
    record = ConsumerRecord("orders", 3, 77, 5, b"k", b"v", (Header("own", b"1"), Header("own", None)))
    names = []
    for _ in range(3):
        following = fail(record, ValueError("no such dish"), tries=2)
        names.append((following.topic, following.is_dead))
        assert following.headers[:2] == record.headers[:2], "its own headers stay"
        record = ConsumerRecord(following.topic, 0, 1, 5, b"k", b"v", following.headers)
        due_ms = retries.attempts_of(record).due_ms
        assert due_ms == {1: 1010, 2: 1200, 3: 0}[len(names)]
    assert names == [
        ("orders.kitchen.retry-1", False),
        ("orders.kitchen.retry-2", False),
        ("orders.kitchen.dead-letters", True),
    ]
    assert told(record.headers) == {
        "own": None, "topic": b"orders", "partition": b"3", "offset": b"77", "timestamp": b"5",
        "attempts": b"6", "group": b"kitchen", "exception": b"ValueError", "message": b"no such dish",
    }  # fmt: skip


def test_what_no_other_attempt_would_change_is_a_dead_letter_at_once() -> None:
    following = fail(ConsumerRecord("orders", 0, 0, 0, None, b"v"), DeadLetterError("x" * 9999))
    assert following.is_dead
    message = told(following.headers)["message"]
    assert message is not None
    assert len(message) == retries.MESSAGE_CHARACTERS_MAX


@given(headers, st.integers(0, 2**62))
def test_any_headers_can_be_read_and_no_own_one_is_lost(found: tuple[Header, ...], now_ms: int) -> None:
    record = ConsumerRecord("orders", 0, 0, 0, None, b"v", found)
    following = fail(record, ValueError(), now_ms)
    own = [each for each in found if not each.key.startswith(retries.PREFIX)]
    assert list(following.headers[: len(own)]) == own
    following_record = record._replace(topic=following.topic, headers=following.headers)
    assert retries.attempts_of(following_record) == ("orders", 1, now_ms + 10)


@pytest.mark.parametrize("value", [b"-5", b"x", b"9" * 20, b"", None, "٣".encode()])
def test_a_header_that_is_no_number_counts_as_none(value: bytes | None) -> None:
    record = ConsumerRecord("orders", 0, 0, 0, None, b"v", (Header(retries.DUE, value),))
    assert retries.attempts_of(record).due_ms == 0


def test_names_that_are_none_are_refused() -> None:
    with pytest.raises(ConfigError, match="retry_topic"):
        topics_for("orders", "my group", POLICY)
    with pytest.raises(ConfigError, match=r"\{number\}"):
        RetryPolicy(retry_topic="{topic}.again")
    with pytest.raises(ConfigError, match="not negative"):
        RetryPolicy(delays_ms=(-1,))


@given(st.binary(min_size=1, max_size=256), st.integers(0, 2**31 - 1))
def test_a_reply_finds_its_way(correlation_id: bytes, partition: int) -> None:
    address = reply_address(request_headers(correlation_id, "replies", partition))
    assert address is not None
    assert address[:2] == ("replies", partition)
    assert correlation_id_of(address.headers) == correlation_id


@given(headers)
def test_a_request_may_say_anything(found: tuple[Header, ...]) -> None:
    reply_address(found)
    error_in(found)


@pytest.mark.parametrize(
    "found",
    [
        [Header("kafka_correlationId", b"1")],
        [Header("kafka_replyTopic", b"t")],
        [Header("kafka_correlationId", b"1" * 257), Header("kafka_replyTopic", b"t")],
        [Header("kafka_correlationId", b"1"), Header("kafka_replyTopic", b"no name")],
        [Header("kafka_correlationId", b"1"), Header("kafka_replyTopic", b"t"),
         Header("kafka_replyPartition", b"\xff\xff\xff\xff")],
    ],
)  # fmt: skip
def test_who_says_not_where_to_reply_gets_none(found: list[Header]) -> None:
    assert reply_address(found) is None


def test_an_error_is_told_by_its_name() -> None:
    error = error_in(error_headers(ConfigError("no")))
    assert error is not None
    assert (error.exception, error.message) == ("distributedlog.model.errors.ConfigError", "no")
