"""Our assignors beside Kafka's, on random groups.

Range and round-robin are defined to the last partition, and equal.  What a sticky assignment is, Kafka's
documentation says only by its qualities: where all members subscribe to the same topics both are as balanced
as can be, and keep as much as can stay.

A line to `Assign.java` is an assignor, topics and members (`NAME|INSTANCE|TOPICS|OWNED`), with tabs between;
the answer is what each member gets.
"""

import random
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from distributedlog.client.groups.assignors import ASSIGNORS
from distributedlog.client.groups.subscription import MemberSubscription
from distributedlog.model.ids import TopicPartition
from tests.bench.broker_kafka import fetch_kafka

TOPICS = ("a", "b", "c", "d", "e")
GROUPS = 500
SEED = 21
WAIT_S = 300

Counts = dict[str, int]
Members = dict[str, MemberSubscription]
Assigned = dict[str, list[TopicPartition]]


def draw_group(chance: random.Random, *, are_equal: bool = False) -> tuple[Counts, Members]:
    counts = {topic: chance.randint(1, 9) for topic in TOPICS if chance.random() < 0.8}
    shared = frozenset(chance.sample(TOPICS, chance.randint(1, len(TOPICS))))
    members = {}
    for number in range(chance.randint(1, 8)):
        topics = shared if are_equal else frozenset(chance.sample(TOPICS, chance.randint(0, len(TOPICS))))
        instance = f"i{chance.randint(0, 99)}-{number}" if chance.random() < 0.3 else None
        members[f"m{chance.randint(0, 99)}-{number}"] = MemberSubscription(topics, (), 1, instance)
    wanted = frozenset[str]().union(*(each.topics for each in members.values()))
    # As a leader does: Kafka's sticky assignor takes all topics that it is told for subscribed ones.
    return {topic: count for topic, count in counts.items() if topic in wanted}, members


def with_owned(chance: random.Random, counts: Counts, members: Members) -> Members:
    """The same after some have come and gone: each partition is one's who was there before, or nobody's."""
    names = sorted(members)
    before = chance.sample(names, chance.randint(1, len(names)))
    owned: dict[str, list[TopicPartition]] = {name: [] for name in names}
    for topic, count in counts.items():
        for index in range(count):
            name = chance.choice(before)
            if topic in members[name].topics and chance.random() < 0.8:
                owned[name].append(TopicPartition(topic, index))
    return {name: replace(each, owned=tuple(owned[name])) for name, each in members.items()}


def as_line(name: str, counts: Counts, members: Members) -> str:
    topics = ",".join(f"{topic}={count}" for topic, count in counts.items())
    told = (
        f"{member}|{each.instance_id or ''}|{','.join(sorted(each.topics))}|"
        f"{','.join(f'{at.topic}={at.partition}' for at in each.owned)}"
        for member, each in members.items()
    )
    return f"{name}\t{topics}\t{';'.join(told)}"


def from_line(line: str) -> Assigned:
    found: Assigned = {}
    for part in line.split(";"):
        member, _, partitions = part.partition("|")
        pairs = (each.split("=") for each in partitions.split(",") if each)
        found[member] = [TopicPartition(topic, int(index)) for topic, index in pairs]
    return found


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    jars, made = f"{fetch_kafka()}/*", tmp_path_factory.mktemp("classes")
    source = Path(__file__).with_name("Assign.java")
    subprocess.run(["javac", "-cp", jars, "-d", str(made), str(source)], check=True, timeout=WAIT_S)
    return ["java", "-cp", f"{made}:{jars}", "Assign"]


def kafka_s(program: list[str], asked: list[tuple[str, Counts, Members]]) -> list[Assigned]:
    lines = "".join(as_line(*each) + "\n" for each in asked)
    ran = subprocess.run(
        program, input=lines, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
        timeout=WAIT_S,
    )  # fmt: skip
    found = [from_line(line) for line in ran.stdout.splitlines()]
    assert len(found) == len(asked)
    return found


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_what_is_defined_is_equal(program: list[str], name: str) -> None:
    chance = random.Random(SEED)
    asked = [(name, *draw_group(chance)) for _ in range(GROUPS)]
    for (_, counts, members), theirs in zip(asked, kafka_s(program, asked), strict=True):
        assert ASSIGNORS[name].assign(counts, members) == theirs, (counts, members)


def kept(assigned: Assigned, members: Mapping[str, MemberSubscription]) -> int:
    return sum(len(set(found) & set(members[member].owned)) for member, found in assigned.items())


def test_a_sticky_assignment_is_as_balanced_and_as_sticky(program: list[str]) -> None:
    chance = random.Random(SEED)
    name, asked = "cooperative-sticky", []
    for _ in range(GROUPS):
        counts, members = draw_group(chance, are_equal=True)
        asked.append((name, counts, with_owned(chance, counts, members)))
    for (_, counts, members), theirs in zip(asked, kafka_s(program, asked), strict=True):
        ours = ASSIGNORS[name].assign(counts, members)
        assert kept(ours, members) == kept(theirs, members), (counts, members)
        assert sum(map(len, ours.values())) == sum(map(len, theirs.values())), (counts, members)
        whole = ASSIGNORS["sticky"].assign(counts, members)
        loads = Counter(map(len, whole.values()))
        assert max(loads) - min(loads) <= 1
