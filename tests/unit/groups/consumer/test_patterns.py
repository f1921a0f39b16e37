"""Subscriptions by regular expression."""

import pytest

from distributedlog.groups.consumer.patterns import CACHED_MAX, PATTERN_BYTES_MAX, Patterns, compiled
from distributedlog.model.errors import InvalidRegularExpressionError
from tests.unit.groups.consumer.stage import Topics


def test_a_pattern_is_matched_with_the_whole_of_a_name_and_never_means_internal_topics() -> None:
    topics = Topics(orders=1, reorders=1, orders_2=1, __consumer_offsets=1)
    patterns = Patterns()
    assert patterns.topics("orders", topics) == {"orders"}
    assert patterns.topics("^orders.*", topics) == {"orders", "orders_2"}
    assert patterns.topics(".*", topics) == {"orders", "reorders", "orders_2"}
    assert patterns.topics("orders|re.*", topics) == {"orders", "reorders"}


def test_topics_are_looked_up_again_when_some_came_or_went_and_only_then() -> None:
    topics, patterns = Topics(a=1), Patterns()
    first = patterns.topics("a.*", topics)
    topics.grow("a", 2)
    assert patterns.topics("a.*", topics) is first
    assert patterns.topics("b.*", topics) == frozenset()
    topics.create("ab", 1)
    assert patterns.topics("a.*", topics) == {"a", "ab"}
    topics.remove("a")
    topics.create("b", 1)
    assert patterns.topics("a.*", topics) == {"ab"}
    assert patterns.topics("b.*", topics) == {"b"}


def test_only_new_names_are_matched() -> None:
    topics, patterns = Topics(a=1, ab=1), Patterns()
    patterns.topics("a.*", topics)
    seen: list[str] = []
    found = patterns._found["a.*"]

    def noting(name: str) -> object:
        seen.append(name)
        return found.matches(name)

    patterns._found["a.*"] = found._replace(matches=noting)
    topics.create("abc", 1)
    topics.remove("a")
    assert patterns.topics("a.*", topics) == {"ab", "abc"}
    assert seen == ["abc"]


@pytest.mark.parametrize(
    "pattern", ["(", "[z-a]", r"(a)\1", "(?=a)", "(?<!a)b", "a{1001}", "((a{100}){100}){100}"]
)
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpressionError, match="is no regular expression"):
        compiled(pattern)


def test_a_pattern_is_bounded_by_its_bytes() -> None:
    compiled("a" * 1000)
    with pytest.raises(InvalidRegularExpressionError, match="at most"):
        compiled("ä" * (PATTERN_BYTES_MAX // 2 + 1))


def test_a_pattern_that_would_take_forever_elsewhere_takes_no_time() -> None:
    topics = Topics(**{"a" * 200 + str(at): 1 for at in range(100)})
    assert Patterns().topics("(a+)+(a+)+(a+)+b", topics) == frozenset()


def test_what_is_remembered_is_bounded() -> None:
    topics, patterns = Topics(a=1), Patterns()
    for number in range(CACHED_MAX + 10):
        patterns.topics(f"a{number}?", topics)
    assert len(patterns._found) <= CACHED_MAX
