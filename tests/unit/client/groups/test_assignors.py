"""Assignors: every partition once, to somebody who wants it; evenly; and what can stay stays."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.client.groups.assignors import ASSIGNORS, assignors_named
from distributedlog.client.groups.subscription import MemberSubscription
from distributedlog.model.errors import ConfigError
from distributedlog.model.ids import TopicPartition

TOPICS = ["a", "b", "c", "d"]
counts_of_topics = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9), max_size=4)
members_of_a_group = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(7)]),
    st.frozensets(st.sampled_from(TOPICS)),
    min_size=1,
    max_size=7,
)
Assigned = dict[str, list[TopicPartition]]


def subscribed(
    members: dict[str, frozenset[str]], owned: Assigned | None = None
) -> dict[str, MemberSubscription]:
    return {
        member: MemberSubscription(topics, tuple((owned or {}).get(member, ())), 1)
        for member, topics in members.items()
    }


def everything(counts: dict[str, int], members: dict[str, frozenset[str]]) -> list[TopicPartition]:
    wanted = frozenset().union(*members.values())
    return [
        TopicPartition(topic, n) for topic in sorted(counts) if topic in wanted for n in range(counts[topic])
    ]


def check_whole(assigned: Assigned, counts: dict[str, int], members: dict[str, frozenset[str]]) -> None:
    assert sorted(each for found in assigned.values() for each in found) == everything(counts, members)
    assert all(each.topic in members[member] for member, found in assigned.items() for each in found)
    assert assigned.keys() == members.keys()


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky", "cooperative-sticky"])
@given(counts=counts_of_topics, members=members_of_a_group)
def test_every_partition_goes_once_to_somebody_who_wants_it(
    name: str, counts: dict[str, int], members: dict[str, frozenset[str]]
) -> None:
    check_whole(ASSIGNORS[name].assign(counts, subscribed(members)), counts, members)


@pytest.mark.parametrize("name", ["roundrobin", "sticky", "cooperative-sticky"])
@given(counts=counts_of_topics, count=st.integers(1, 7))
def test_loads_of_equal_members_differ_by_one_at_most(name: str, counts: dict[str, int], count: int) -> None:
    members = {f"m{number}": frozenset(TOPICS) for number in range(count)}
    loads = [len(each) for each in ASSIGNORS[name].assign(counts, subscribed(members)).values()]
    assert max(loads) - min(loads) <= 1


@given(counts=counts_of_topics, members=members_of_a_group, data=st.data())
def test_no_move_makes_a_sticky_assignment_more_even(
    counts: dict[str, int], members: dict[str, frozenset[str]], data: st.DataObject
) -> None:
    owned: Assigned = {}
    for each in everything(counts, members):
        owned.setdefault(data.draw(st.sampled_from(sorted(members))), []).append(each)
    assigned = ASSIGNORS["sticky"].assign(counts, subscribed(members, owned))
    check_whole(assigned, counts, members)
    for member, found in assigned.items():
        for each in found:
            others = [len(assigned[m]) for m in members if each.topic in members[m]]
            assert len(assigned[member]) - min(others) <= 1


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
@given(counts=counts_of_topics, members=members_of_a_group)
def test_what_was_assigned_is_assigned_again(
    name: str, counts: dict[str, int], members: dict[str, frozenset[str]]
) -> None:
    first = ASSIGNORS[name].assign(counts, subscribed(members))
    assert ASSIGNORS[name].assign(counts, subscribed(members, first)) == first


@given(counts=counts_of_topics, before=st.integers(1, 7), now=st.integers(1, 7))
def test_no_more_moves_than_balance_needs(counts: dict[str, int], before: int, now: int) -> None:
    old = {f"m{number}": frozenset(TOPICS) for number in range(before)}
    new = {f"m{number}": frozenset(TOPICS) for number in range(now)}
    first = ASSIGNORS["sticky"].assign(counts, subscribed(old))
    second = ASSIGNORS["sticky"].assign(counts, subscribed(new, first))
    total = len(everything(counts, new))
    kept = sum(len(set(first.get(member, ())) & set(second[member])) for member in new)
    could_stay = sorted((len(first.get(member, ())) for member in new), reverse=True)
    each, more = divmod(total, now)
    assert kept == sum(min(had, each + (place < more)) for place, had in enumerate(could_stay))


@given(counts=counts_of_topics, members=members_of_a_group, data=st.data())
def test_a_cooperative_move_takes_two_rebalances_and_nobody_has_a_partition_twice(
    counts: dict[str, int], members: dict[str, frozenset[str]], data: st.DataObject
) -> None:
    assignor = ASSIGNORS["cooperative-sticky"]
    owned: Assigned = {}
    for each in everything(counts, members):
        owned.setdefault(data.draw(st.sampled_from(sorted(members))), []).append(each)
    first = assignor.assign(counts, subscribed(members, owned))
    for member, found in first.items():
        for each in found:
            assert all(each not in owned.get(other, ()) for other in members if other != member)
    check_whole(assignor.assign(counts, subscribed(members, first)), counts, members)


def test_two_that_claim_a_partition_the_newer_keeps_it_and_of_one_generation_none_is_believed() -> None:
    topics = frozenset("a")
    claimed = (TopicPartition("a", 0),)
    members = {
        "m0": MemberSubscription(topics, claimed, 4),
        "m1": MemberSubscription(topics, claimed, 5),
    }
    assert ASSIGNORS["sticky"].assign({"a": 1}, members) == {"m0": [], "m1": list(claimed)}
    tied = {member: MemberSubscription(topics, claimed, 5) for member in ("m0", "m1")}
    assert Counter(map(len, ASSIGNORS["sticky"].assign({"a": 1}, tied).values())) == {0: 1, 1: 1}


def test_range_and_round_robin_are_kafka_s() -> None:
    members = {member: MemberSubscription(frozenset("ab")) for member in ("x", "y")}
    at = TopicPartition
    assert ASSIGNORS["range"].assign({"a": 3, "b": 3}, members) == {
        "x": [at("a", 0), at("a", 1), at("b", 0), at("b", 1)],
        "y": [at("a", 2), at("b", 2)],
    }
    assert ASSIGNORS["roundrobin"].assign({"a": 3, "b": 3}, members) == {
        "x": [at("a", 0), at("a", 2), at("b", 1)],
        "y": [at("a", 1), at("b", 0), at("b", 2)],
    }


def test_static_members_come_first_by_their_instance_ids() -> None:
    members: dict[str, Any] = {
        "a": MemberSubscription(frozenset("t")),
        "z": MemberSubscription(frozenset("t"), instance_id="1"),
    }
    assert ASSIGNORS["range"].assign({"t": 1}, members) == {"a": [], "z": [TopicPartition("t", 0)]}


def test_an_unknown_assignor_is_refused() -> None:
    with pytest.raises(ConfigError, match="cooperative-sticky"):
        assignors_named(("best",))
    with pytest.raises(ConfigError):
        assignors_named(())
