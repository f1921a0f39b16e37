"""Who is given what."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.groups.consumer.assignors import ASSIGNORS, Reader, assign_range, assign_uniform
from distributedlog.groups.consumer.topics import (
    NO_PARTITIONS,
    TopicIdPartition,
    TopicIdPartitions,
    TopicView,
)
from distributedlog.model.ids import Uuid


def topics(**counts: int) -> dict[str, TopicView]:
    return {
        name: TopicView(Uuid(name.encode().ljust(16, b"\0")), name, count) for name, count in counts.items()
    }


def readers(
    subscriptions: dict[str, set[str]], before: dict[str, TopicIdPartitions] | None = None
) -> list[Reader]:
    return [
        Reader(name, None, frozenset(wants), (before or {}).get(name, NO_PARTITIONS))
        for name, wants in subscriptions.items()
    ]


def told(given: dict[str, TopicIdPartitions]) -> dict[str, list[str]]:
    return {
        name: sorted(f"{tp.topic_id.bytes16.rstrip(bytes(1)).decode()}{tp.partition}" for tp in tps)
        for name, tps in given.items()
    }


def test_range_gives_runs_and_splits_equal_topics_alike() -> None:
    given = assign_range(readers({"m1": {"a", "b"}, "m0": {"a", "b"}}), topics(a=3, b=3))
    assert told(given) == {"m0": ["a0", "a1", "b0", "b1"], "m1": ["a2", "b2"]}


def test_range_puts_static_members_first_by_their_instance_ids() -> None:
    those = [
        Reader("x", None, frozenset({"a"}), NO_PARTITIONS),
        Reader("z", "i0", frozenset({"a"}), NO_PARTITIONS),
        Reader("y", "i1", frozenset({"a"}), NO_PARTITIONS),
    ]
    assert told(assign_range(those, topics(a=3))) == {"z": ["a0"], "y": ["a1"], "x": ["a2"]}


def test_uniform_moves_only_what_it_must() -> None:
    cluster = topics(a=6)
    one = assign_uniform(readers({"m0": {"a"}}), cluster)
    two = assign_uniform(readers({"m0": {"a"}, "m1": {"a"}}, one), cluster)
    assert {name: len(tps) for name, tps in two.items()} == {"m0": 3, "m1": 3}
    assert two["m0"] < one["m0"]
    back = assign_uniform(readers({"m1": {"a"}}, two), cluster)
    assert two["m1"] < back["m1"]


def test_uniform_leaves_an_even_assignment_alone() -> None:
    cluster = topics(a=5, b=2)
    wants = {name: {"a", "b"} for name in ("m0", "m1", "m2")}
    first = assign_uniform(readers(wants), cluster)
    assert assign_uniform(readers(wants, first), cluster) == first


def test_uniform_evens_out_unequal_subscriptions() -> None:
    given = assign_uniform(readers({"m0": {"a", "b"}, "m1": {"a"}, "m2": {"b"}}), topics(a=4, b=2))
    assert sorted(len(tps) for tps in given.values()) == [2, 2, 2]


def test_a_member_that_reads_nothing_gets_nothing() -> None:
    for assign in ASSIGNORS.values():
        given = assign(readers({"m0": {"a"}, "idle": set()}), topics(a=2))
        assert told(given) == {"m0": ["a0", "a1"], "idle": []}
        assert assign([], topics()) == {}


NAMES = ["a", "b", "c"]
SUBSCRIPTIONS = st.dictionaries(
    st.sampled_from([f"m{at}" for at in range(6)]), st.sets(st.sampled_from(NAMES)), min_size=1
)
COUNTS = st.fixed_dictionaries({name: st.integers(0, 7) for name in NAMES})


@pytest.mark.parametrize("name", ASSIGNORS)
@settings(max_examples=60, deadline=None)
@given(before=SUBSCRIPTIONS, after=SUBSCRIPTIONS, counts=COUNTS)
def test_every_partition_has_one_owner_that_subscribes_to_it(
    name: str, before: dict[str, set[str]], after: dict[str, set[str]], counts: dict[str, int]
) -> None:
    cluster = topics(**counts)
    assign = ASSIGNORS[name]
    first = assign(readers(before), cluster)
    given = assign(readers(after, first), cluster)
    wanted = set().union(*after.values())
    tps = [tp for mine in given.values() for tp in mine]
    assert sorted(tps) == sorted(
        TopicIdPartition(cluster[each].topic_id, at) for each in wanted for at in range(counts[each])
    )
    for member, mine in given.items():
        assert {tp.topic_id for tp in mine} <= {cluster[each].topic_id for each in after[member]}
    assert given == assign(reversed(readers(after, first)), cluster), "the order of members means nothing"


@settings(max_examples=60, deadline=None)
@given(after=SUBSCRIPTIONS, counts=COUNTS)
def test_uniform_leaves_nobody_who_could_take_from_a_much_richer_one(
    after: dict[str, set[str]], counts: dict[str, int]
) -> None:
    cluster = topics(**counts)
    given = assign_uniform(readers(after), cluster)
    for topic in cluster.values():
        those = [name for name, wants in after.items() if topic.name in wants]
        for rich in those:
            has_some = any(tp.topic_id == topic.topic_id for tp in given[rich])
            for poor in those:
                assert not has_some or len(given[rich]) - len(given[poor]) <= 1


@settings(max_examples=40, deadline=None)
@given(count=st.integers(0, 30), size=st.integers(1, 8), leaving=st.integers(0, 7))
def test_uniform_moves_no_more_than_a_departure_makes_necessary(count: int, size: int, leaving: int) -> None:
    cluster = topics(a=count)
    names = [f"m{at}" for at in range(size + 1)]
    first = assign_uniform(readers({name: {"a"} for name in names}), cluster)
    gone = names[leaving % len(names)]
    second = assign_uniform(readers({name: {"a"} for name in names if name != gone}, first), cluster)
    for name, mine in second.items():
        assert first[name] <= mine, "who stays keeps all that it had"
