"""Subscriptions by regular expression."""

import pytest

from distributedlog.groups.consumer.patterns import (
    CACHED_MAX,
    PATTERN_BYTES_MAX,
    Patterns,
    Resolution,
    compile_pattern,
)
from distributedlog.model.errors import InvalidRegularExpressionError
from tests.unit.groups.consumer.stage import Topics

ENOUGH = 1_000_000


def find(patterns: Patterns, pattern: str, topics: Topics) -> frozenset[str]:
    found, _ = patterns.find(pattern, topics, ENOUGH)
    assert found is not None
    return found


def many_topics(count: int) -> Topics:
    return Topics(**{f"t{at:05}": 1 for at in range(count)})


def test_a_pattern_is_matched_with_the_whole_of_a_name_and_never_means_internal_topics() -> None:
    topics = Topics(orders=1, reorders=1, orders_2=1, __consumer_offsets=1)
    patterns = Patterns()
    assert find(patterns, "orders", topics) == {"orders"}
    assert find(patterns, "^orders.*", topics) == {"orders", "orders_2"}
    assert find(patterns, ".*", topics) == {"orders", "reorders", "orders_2"}
    assert find(patterns, "orders|re.*", topics) == {"orders", "reorders"}


def test_topics_are_looked_up_again_when_some_came_or_went_and_only_then() -> None:
    topics, patterns = Topics(a=1), Patterns()
    first = find(patterns, "a.*", topics)
    topics.grow("a", 2)
    assert find(patterns, "a.*", topics) is first
    assert find(patterns, "b.*", topics) == frozenset()
    topics.create("ab", 1)
    assert find(patterns, "a.*", topics) == {"a", "ab"}
    topics.remove("a")
    topics.create("b", 1)
    assert find(patterns, "a.*", topics) == {"ab"}
    assert find(patterns, "b.*", topics) == {"b"}


def test_only_new_names_are_matched() -> None:
    topics, patterns = Topics(a=1, ab=1), Patterns()
    find(patterns, "a.*", topics)
    seen: list[str] = []
    found = patterns._found["a.*"]

    def noting(name: str) -> object:
        seen.append(name)
        return found.matches(name)

    patterns._found["a.*"] = found._replace(matches=noting)
    topics.create("abc", 1)
    topics.remove("a")
    assert find(patterns, "a.*", topics) == {"ab", "abc"}
    assert seen == ["abc"]


@pytest.mark.parametrize(
    "pattern", ["(", "[z-a]", r"(a)\1", "(?=a)", "(?<!a)b", "a{1001}", "((a{100}){100}){100}"]
)
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpressionError, match="is no regular expression"):
        compile_pattern(pattern)


def test_a_pattern_is_bounded_by_its_bytes() -> None:
    compile_pattern("a" * 1000)
    with pytest.raises(InvalidRegularExpressionError, match="at most"):
        compile_pattern("ä" * (PATTERN_BYTES_MAX // 2 + 1))


def test_a_pattern_that_would_take_forever_elsewhere_takes_no_time() -> None:
    topics = Topics(**{"a" * 200 + str(at): 1 for at in range(100)})
    assert find(Patterns(), "(a+)+(a+)+(a+)+b", topics) == frozenset()


def test_what_is_remembered_is_bounded() -> None:
    topics, patterns = Topics(a=1), Patterns()
    for number in range(CACHED_MAX + 10):
        find(patterns, f"a{number}?", topics)
    assert len(patterns._found) <= CACHED_MAX


def test_no_more_names_are_matched_than_is_allowed() -> None:
    topics, patterns = many_topics(100), Patterns()
    assert patterns.find("t.*", topics, 99) == (None, 0)
    found, matches = patterns.find("t.*1", topics, 100)
    assert (len(found or ()), matches) == (10, 100)
    assert patterns.find("t.*1", topics, 0) == (found, 0)
    topics.create("t1", 1)
    assert patterns.find("t.*1", topics, 0) == (None, 0)
    again, matches = patterns.find("t.*1", topics, 1)
    assert (again, matches) == ((found or frozenset()) | {"t1"}, 1)


@pytest.mark.parametrize("step", [1, 7, 100, 1_000])
def test_a_resolution_goes_on_step_by_step_and_finds_the_same(step: int) -> None:
    topics = many_topics(100)
    wanted = ["t.*1", "x", "t000.*", "(a+)+$"]
    resolution = Resolution("g", wanted, topics, Patterns())
    steps = 1
    while not resolution.advance(step):
        steps += 1
    assert steps == -(-400 // step)
    alone = Patterns()
    assert resolution.found == {pattern: find(alone, pattern, topics) for pattern in wanted}


def test_what_a_resolution_found_is_remembered_for_the_names_that_it_was_looked_up_among() -> None:
    topics, patterns = many_topics(100), Patterns()
    resolution = Resolution("g", ["t.*1"], topics, patterns)
    assert not resolution.advance(60)
    topics.create("t1", 1)
    assert resolution.advance(60)
    assert patterns.find("t.*1", topics, 20) == (resolution.found["t.*1"] | {"t1"}, 1)


def test_without_topics_a_resolution_ends() -> None:
    resolution = Resolution("g", ["a", "b"], Topics(), Patterns())
    assert resolution.advance(10)
    assert resolution.found == {"a": frozenset(), "b": frozenset()}
