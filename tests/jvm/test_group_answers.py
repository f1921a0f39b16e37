"""The same stories of consumer groups, told to Apache Kafka and to us, are answered alike.

Where we mean to differ (see docs/groups.md) the stories do not go.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from distributedlog.model.errors import DlogError
from tests.bench.broker_kafka import Kafka, Ours, make_topic
from tests.jvm.group_probe import TOPIC, GroupProbe

TIMEOUT_SECONDS = 120.0
AGAIN_SECONDS = 0.2
Answers = list[tuple[str, object]]


def probe_of(broker: Kafka | Ours) -> GroupProbe:
    """Once it serves, has the topic, and coordinates groups."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    probe = GroupProbe(broker.port)
    has_topic = False
    while True:
        try:
            if not has_topic:
                make_topic(broker, TOPIC, 4)
                has_topic = True
            if probe.is_coordinated():
                return probe
        except (DlogError, OSError):
            assert time.monotonic() < deadline, "it does not serve"
        time.sleep(AGAIN_SECONDS)


@pytest.fixture
def probes(tmp_path: Path) -> Iterator[tuple[GroupProbe, GroupProbe]]:
    brokers = (Ours(tmp_path / "ours"), Kafka(tmp_path / "kafka"))
    for broker in brokers:
        broker.start()
    try:
        yield probe_of(brokers[0]), probe_of(brokers[1])
    finally:
        for broker in brokers:
            broker.stop()


def members_of_the_new_protocol(of: GroupProbe) -> Answers:
    return [
        ("leaves a group that is not there", of.beat("m0", -1)),
        ("joins", of.beat("m0")),
        ("joins again: the answer was lost", of.beat("m0")),
        ("is there", of.beat("m0", 1)),
        ("says what it has", of.beat("m0", 1, [0, 1, 2, 3])),
        ("says everything",
         of.beat("m0", 1, [0, 1, 2, 3], rebalance_timeout_ms=60_000, subscribed_topic_names=[TOPIC])),
        ("another joins", of.beat("m1")),
        ("has to give up", of.beat("m0", 1)),
        ("waits", of.beat("m1", 2)),
        ("has not given up", of.beat("m0", 1, [0, 1, 2, 3])),
        ("reconciling", of.describe()),
        ("another epoch", of.beat("m0", 9)),
        ("has given up", of.beat("m0", 1, [0, 1])),
        ("the epoch before, holding too much", of.beat("m0", 1, [2, 3])),
        ("the epoch before, holding nothing", of.beat("m0", 1, [])),
        ("gets the rest", of.beat("m1", 2, [])),
        ("begins anew", of.beat("m1")),
        ("stable", of.describe()),
        ("a bad pattern", of.beat("m2", subscribed_topic_names=None, subscribed_topic_regex="(")),
        ("a bad assignor", of.beat("m2", server_assignor="x")),
        ("no subscription", of.beat("m2", subscribed_topic_names=None)),
        ("no id", of.beat("")),
        ("no such epoch", of.beat("m0", -3)),
        ("away, and not static", of.beat("m0", -2)),
        ("a static one joins", of.beat("s0", instance="i0")),
        ("its double", of.beat("s1", instance="i0")),
        ("away", of.beat("s0", -2, instance="i0")),
        ("is away, and speaks", of.beat("s0", 3, instance="i0")),
        ("back", of.beat("s1", instance="i0")),
        ("its former self", of.beat("s0", 3, instance="i0")),
        ("an instance that is not known", of.beat("s9", 3, instance="i9")),
        ("commits in another epoch", of.commit("m0", 1)),
        ("commits in none", of.commit("", -1)),
        ("a stranger commits", of.commit("x", 1)),
        ("commits by an old version", of.commit("m0", 2, version=8)),
        ("an administrator fetches", of.fetch(None, -1)),
        ("fetches in another epoch", of.fetch("m0", 1)),
        ("a stranger fetches", of.fetch("x", 1)),
        ("leaves", of.beat("m0", -1)),
        ("assigning", of.kind()),
        ("an administrator removes one", of.leave("m1")),
        ("the last leaves", of.beat("s1", -1, instance="i0")),
        ("empty", of.kind()),
        ("speaks to an empty group", of.beat("m0", 2)),
        ("an administrator commits", of.commit("", -1)),
        ("joins an empty group", of.beat("m3")),
        ("stable again", of.describe()),
    ]  # fmt: skip


def a_group_that_moves(of: GroupProbe) -> Answers:
    return [
        ("classic", of.join("k")),
        ("with its id", of.join("k")),
        ("assigns", of.sync("k", 1, {"k": [0, 1, 2, 3]})),
        ("is there", of.classic_beat("k", 1)),
        ("a classic group", of.kind()),
        ("a new one joins", of.beat("m0")),
        ("a consumer group", of.kind()),
        ("has to join again", of.classic_beat("k", 1)),
        ("has to join first", of.sync("k", 1)),
        ("joins again", of.join("k")),
        ("gets its part", of.sync("k", 2)),
        ("is there", of.classic_beat("k", 2)),
        ("the new one gets the rest", of.beat("m0", 2, [])),
        ("stable", of.describe()),
        ("another classic one", of.join("l")),
        ("with its id", of.join("l")),
        ("gets nothing yet", of.sync("l", 3)),
        ("waits", of.classic_beat("l", 3)),
        ("has to join again", of.classic_beat("k", 2)),
        ("joins, and goes on reading", of.join("k", [0, 1])),
        ("gets what it may keep", of.sync("k", 2)),
        ("has to give up and join again", of.classic_beat("k", 2)),
        ("reconciling", of.describe()),
        ("another kind of group", of.join("x", protocol_type="connect")),
        ("another protocol", of.join("x", protocol="sticky")),
        ("a new one that speaks the old protocol", of.classic_beat("m0", 2)),
        ("a stranger", of.classic_beat("zz", 3)),
        ("another generation", of.classic_beat("k", 1)),
        ("a stranger leaves", of.leave("zz")),
        ("a classic one leaves", of.leave("l")),
        ("the last new one leaves", of.beat("m0", -1)),
        ("a classic group again", of.kind()),
        ("has to join again", of.classic_beat("k", 2)),
        ("leads", of.join("k")),
        ("assigns", of.sync("k", 5, {"k": [0, 1, 2, 3]})),
        ("leaves", of.leave("k")),
        ("empty", of.kind()),
        ("a new one takes the name", of.beat("m9")),
        ("a consumer group", of.kind()),
        ("leaves", of.beat("m9", -1)),
        ("empty", of.kind()),
        ("a classic one takes the name", of.join("n")),
        ("with its id", of.join("n")),
        ("a classic group", of.kind()),
        ("a new one that was never there", of.beat("m9", 5)),
    ]  # fmt: skip


@pytest.mark.parametrize("story", [members_of_the_new_protocol, a_group_that_moves])
def test_a_story_is_answered_as_kafka_answers_it(
    story: Callable[[GroupProbe], Answers], probes: tuple[GroupProbe, GroupProbe]
) -> None:
    ours, theirs = (story(probe) for probe in probes)
    differing = [(mine, other) for mine, other in zip(ours, theirs, strict=True) if mine != other]
    assert not differing
