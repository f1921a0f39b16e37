"""Groups: who reads what, and from where after the others are gone."""

from collections.abc import Collection
from typing import Any

import pytest

from distributedlog import Admin, GroupRebalancedError, TopicPartition
from distributedlog.model.errors import GroupNotFoundError, NonEmptyGroupError
from tests.compat.client.faces import Face
from tests.compat.client.reading import read, until

PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 200},
    "consumer": {"auto_offset_reset": "earliest", "group_protocol": "consumer"},
}
ASSIGNORS = {
    **{each: {"assignor": each} for each in ("range", "roundrobin", "sticky", "cooperative-sticky")},
    "uniform": {"group_remote_assignor": "uniform"},
}
PARTITIONS = 3


@pytest.fixture(params=list(PROTOCOLS))
def early(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The settings of members that read from the beginning, by either protocol of groups."""
    return PROTOCOLS[request.param]


def fill(face: Face, topic: str, numbers: range) -> None:
    with face.producer() as producer:
        for number in numbers:
            producer.send(topic, str(number), partition=number % PARTITIONS)


def values(records: Any) -> list[int]:
    return sorted(int(each.value) for each in records)


def places(topic: str) -> set[TopicPartition]:
    return {TopicPartition(topic, each) for each in range(PARTITIONS)}


def test_the_next_consumer_goes_on_behind_what_is_committed(
    face: Face, topic: str, name: str, admin: Admin, early: dict[str, Any]
) -> None:
    fill(face, topic, range(30))
    with face.consumer(group_id=name, topics=[topic], **early) as consumer:
        assert values(read(consumer, 30)) == list(range(30))
        assert consumer.lag() == dict.fromkeys(places(topic), 0)
        assert admin.describe_group(name).state == "Stable"
    assert {each: at.offset for each, at in admin.group_offsets(name).items()} == dict.fromkeys(
        places(topic), 10
    )
    fill(face, topic, range(30, 36))
    with face.consumer(group_id=name, topics=[topic], enable_auto_commit=False, **early) as consumer:
        assert values(read(consumer, 6)) == list(range(30, 36))
    with face.consumer(group_id=name, topics=[topic], enable_auto_commit=False, **early) as consumer:
        assert values(read(consumer, 6)) == list(range(30, 36)), "nothing was committed"
        consumer.commit()
        assert consumer.committed() == dict.fromkeys(places(topic), 12)
    with face.consumer(group_id=name, enable_auto_commit=False) as consumer:
        consumer.assign(places(topic))
        consumer.commit({TopicPartition(topic, 1): 3})
        assert consumer.committed([TopicPartition(topic, 1)]) == {TopicPartition(topic, 1): 3}
        assert consumer.position(TopicPartition(topic, 1)) == 3


@pytest.mark.parametrize("assignor", list(ASSIGNORS))
def test_members_share_the_partitions(face: Face, topic: str, name: str, assignor: str) -> None:
    protocol = "consumer" if assignor == "uniform" else "classic"
    settings = {**PROTOCOLS[protocol], **ASSIGNORS[assignor]}
    first = face.consumer(group_id=name, topics=[topic], **settings)
    second = face.consumer(group_id=name, topics=[topic], **settings)

    def both() -> None:
        first.poll(50)
        second.poll(50)

    with second:
        with first:
            until(lambda: first.assignment == places(topic), lambda: first.poll(100))
            fill(face, topic, range(9))
            assert values(read(first, 9)) == list(range(9))
            until(lambda: sorted(map(len, (first.assignment, second.assignment))) == [1, 2], both)
            assert first.assignment | second.assignment == places(topic)
        fill(face, topic, range(9, 18))
        assert values(read(second, 9)) == list(range(9, 18)), "what the first had read is not read again"
        assert second.assignment == places(topic)


def test_callbacks_tell_what_comes_and_goes(face: Face, topic: str, name: str, early: dict[str, Any]) -> None:
    told: list[tuple[str, list[TopicPartition]]] = []

    def telling(what: str) -> Any:
        def tell(partitions: Collection[TopicPartition]) -> None:
            told.append((what, sorted(partitions)))

        return tell

    with face.consumer(group_id=name, **early) as consumer:
        consumer.subscribe([topic], on_assigned=telling("assigned"), on_revoked=telling("revoked"))
        until(lambda: bool(consumer.assignment), lambda: consumer.poll(100))
    assert told == [("assigned", sorted(places(topic))), ("revoked", sorted(places(topic)))]


def test_a_pattern_finds_its_topics(face: Face, topic: str, name: str, early: dict[str, Any]) -> None:
    with face.consumer(group_id=name, **early) as consumer:
        consumer.subscribe(pattern=f"{topic[:-3]}...")
        until(lambda: consumer.assignment == places(topic), lambda: consumer.poll(100))


def test_a_static_member_comes_back_to_what_it_had(
    face: Face, topic: str, name: str, admin: Admin, early: dict[str, Any]
) -> None:
    for _ in range(2):
        member = face.consumer(group_id=name, group_instance_id="one", topics=[topic], **early)
        until(lambda: member.assignment == places(topic), lambda: member.poll(100))  # noqa: B023
        member.close()
        (described,) = admin.describe_group(name).members
        assert described.instance_id == "one", "it is expected back"


def test_what_is_not_one_s_own_cannot_be_committed(
    face: Face, topic: str, name: str, early: dict[str, Any]
) -> None:
    with face.consumer(group_id=name, topics=[topic], **early) as consumer:
        until(lambda: bool(consumer.assignment), lambda: consumer.poll(100))
        with pytest.raises(GroupRebalancedError):
            consumer.commit({TopicPartition("another", 0): 1})


def test_groups_are_listed_moved_and_deleted(
    face: Face, topic: str, name: str, early: dict[str, Any]
) -> None:
    with face.admin() as admin:
        with face.consumer(group_id=name, topics=[topic], **early) as consumer:
            until(lambda: consumer.assignment == places(topic), lambda: consumer.poll(100))
            assert name in {each.group_id for each in admin.list_groups()}
            (member,) = admin.describe_group(name).members
            assert set(member.partitions) == places(topic)
            assert isinstance(admin.delete_groups([name])[name], NonEmptyGroupError)
        admin.alter_group_offsets(name, {TopicPartition(topic, 0): 5})
        assert admin.group_offsets(name)[TopicPartition(topic, 0)].offset == 5
        assert admin.delete_groups([name]) == {name: None}
        assert isinstance(admin.delete_groups([name])[name], GroupNotFoundError)
