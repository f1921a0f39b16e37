from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.spark.topic_views import ending_offsets, named_topics, words_of

NAMES = st.text("abcXYZ019._-", min_size=1, max_size=12)


def test_topics_are_found_where_the_query_names_them() -> None:
    query = "SELECT o.value FROM orders o JOIN `web.clicks-eu` c ON o.key = c.key -- not payments"
    assert named_topics(query, ["orders", "web.clicks-eu", "payments", "web"]) == ["orders", "web.clicks-eu"]


def test_texts_and_comments_name_no_topic() -> None:
    topics = ["orders", "clicks"]
    assert named_topics("SELECT 'orders', 'it''s clicks' FROM x /* orders\n clicks */", topics) == []
    assert named_topics(r"SELECT 'a\'orders' FROM clicks", topics) == ["clicks"]


def test_plain_names_do_not_know_upper_case_but_an_exact_name_wins() -> None:
    assert named_topics("SELECT * FROM Orders", ["orders"]) == ["orders"]
    assert named_topics("SELECT * FROM Orders", ["orders", "Orders"]) == ["Orders"]


def test_what_stands_behind_a_dot_is_told_apart() -> None:
    query = "SELECT o.value, 'x'.y FROM topic.orders o JOIN topic . `a-b` JOIN clicks, topic. /* . */ news"
    plain = set(words_of(query, behind_dots=False))
    assert {"clicks", "o", "topic"} <= plain
    assert not plain & {"orders", "a-b", "news", "value", "y"}
    assert {"orders", "a-b", "news", "clicks"} <= set(words_of(query))
    assert "news" in set(words_of("SELECT 1. /* . */ FROM a, -- b.\n news", behind_dots=False))


def test_a_topic_named_twice_is_one() -> None:
    assert named_topics("SELECT * FROM a UNION ALL SELECT * FROM a", ["a"]) == ["a"]


@given(NAMES)
@settings(max_examples=100, deadline=None)
def test_every_name_is_found_in_backquotes(name: str) -> None:
    assert list(words_of(f"FROM `{name}`")) == ["FROM", name]
    assert named_topics(f"SELECT count(*) FROM `{name}` WHERE x = '`'", [name]) == [name]


@given(st.text(max_size=60))
@settings(max_examples=100, deadline=None)
def test_no_query_is_too_odd_to_be_looked_at(query: str) -> None:
    assert named_topics(query, ["orders"]) in ([], ["orders"])


def test_the_end_is_given_as_the_source_wants_it() -> None:
    assert ending_offsets({1: 5, 0: 7}, "a") == '{"a": {"0": 7, "1": 5}}'
