"""Both consumers in groups of the new protocol (KIP-848), against a real broker."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator
from itertools import count
from typing import Any

import pytest

from distributedlog import Admin, Consumer, NewTopic, Producer, TopicPartition, aio
from distributedlog.model.errors import (
    BrokerUnreachableError,
    GroupRebalancedError,
    InvalidRegularExpressionError,
    UnreleasedInstanceError,
    UnsupportedAssignorError,
)
from tests.ports import free_port
from tests.system.server_process import ServerProcess

_numbers = count()
WAIT_S = 120.0
SETTINGS = {
    "offsets.topic.num.partitions": 4,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.heartbeat.interval.ms": 100,
    "group.consumer.session.timeout.ms": 6_000,
    "group.min.session.timeout.ms": 1_000,
}
NEW: dict[str, Any] = {
    "group_protocol": "consumer",
    "auto_offset_reset": "earliest",
    "retry_backoff_ms": 10,
}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ServerProcess(tmp_path_factory.mktemp("broker"), SETTINGS) as server:
        yield server.facts["client"]


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"n{next(_numbers)}"
    with Admin(bootstrap) as admin:
        admin.create_topic(NewTopic(name, 4))
    return name


@pytest.fixture
def group() -> str:
    return f"ng{next(_numbers)}"


def fill(bootstrap: str, topic: str, values: Collection[int]) -> None:
    with Producer(bootstrap, linger_ms=1) as producer:
        for each in values:
            producer.send(topic, str(each), key=str(each))


def until(consumers: Collection[Consumer], is_so: Callable[[], bool]) -> list[int]:
    """Polls in turn until it is so; what was read."""
    found: list[int] = []
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, [each.assignment for each in consumers]
        found += (int(record.value) for each in consumers for record in each.poll(50))
    return found


def read(consumers: Collection[Consumer], wanted: int) -> list[int]:
    found: list[int] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < wanted:
        assert time.monotonic() < deadline, found
        found += (int(record.value) for each in consumers for record in each.poll(50))
    return sorted(found)


def test_members_share_partitions_and_only_what_moves_is_given_up(
    bootstrap: str, topic: str, group: str
) -> None:
    told: list[tuple[str, str, int]] = []

    def member(name: str) -> Consumer:
        consumer = Consumer(bootstrap, group_id=group, **NEW)
        consumer.subscribe(
            [topic],
            on_assigned=lambda found: told.append((name, "assigned", len(found))),
            on_revoked=lambda found: told.append((name, "revoked", len(found))),
        )
        return consumer

    fill(bootstrap, topic, range(50))
    first, second = member("first"), member("second")
    assert read([first], 50) == list(range(50))
    until([first, second], lambda: len(first.assignment) == len(second.assignment) == 2)
    assert not first.assignment & second.assignment
    assert told == [("first", "assigned", 4), ("first", "revoked", 2), ("second", "assigned", 2)]
    fill(bootstrap, topic, range(50, 100))
    assert read([first, second], 50) == list(range(50, 100)), "what moved was committed before"
    first.commit()
    first.close()
    until([second], lambda: len(second.assignment) == 4)
    second.commit()
    with Admin(bootstrap) as admin:
        committed = admin.group_offsets(group).values()
        assert sum(each.offset for each in committed) == 100
        assert min(each.leader_epoch for each in committed) >= 0, "they tell the epoch of what was read"
    second.close()


def test_a_pattern_is_looked_up_by_the_coordinator(bootstrap: str, group: str) -> None:
    prefix = f"np{next(_numbers)}"
    with Admin(bootstrap) as admin:
        admin.create_topic(NewTopic(f"{prefix}-a", 1))
        with Consumer(bootstrap, group_id=group, **NEW) as consumer:
            consumer.subscribe(pattern=rf"{prefix}-\pL")  # RE2: Python's own has no such class
            until([consumer], lambda: len(consumer.assignment) == 1)
            admin.create_topic(NewTopic(f"{prefix}-b", 2))
            until([consumer], lambda: len(consumer.assignment) == 3)
            consumer.subscribe([f"{prefix}-a"])
            until([consumer], lambda: consumer.assignment == {TopicPartition(f"{prefix}-a", 0)})


def test_what_the_coordinator_refuses_is_told(bootstrap: str, topic: str, group: str) -> None:
    with Consumer(bootstrap, group_id=group, **NEW) as consumer:
        consumer.subscribe(pattern="(")
        with pytest.raises(InvalidRegularExpressionError):
            until([consumer], lambda: False)
        consumer.subscribe([topic])
        until([consumer], lambda: len(consumer.assignment) == 4)
    with (
        Consumer(bootstrap, group_id=group, topics=[topic], group_remote_assignor="x", **NEW) as consumer,
        pytest.raises(UnsupportedAssignorError, match="uniform"),
    ):
        until([consumer], lambda: False)


def test_a_static_member_keeps_its_place_and_nobody_takes_it(bootstrap: str, topic: str, group: str) -> None:
    def member(name: str) -> Consumer:
        return Consumer(bootstrap, group_id=group, group_instance_id=name, topics=[topic], **NEW)

    stays, goes = member("stays"), member("goes")
    until([stays, goes], lambda: len(stays.assignment) == len(goes.assignment) == 2)
    with member("goes") as twin, pytest.raises(UnreleasedInstanceError):
        until([twin], lambda: False)
    had, rebalances = goes.assignment, stays.metrics()["rebalances"]
    goes.close()
    back = member("goes")
    until([stays, back], lambda: len(back.assignment) == 2)
    assert (back.assignment, stays.metrics()["rebalances"]) == (had, rebalances)
    stays.close()
    back.close()


def test_a_member_that_does_not_poll_loses_its_partitions_and_is_told(
    bootstrap: str, topic: str, group: str
) -> None:
    lost: list[int] = []
    slow = Consumer(bootstrap, group_id=group, max_poll_interval_ms=1500, **NEW)
    slow.subscribe([topic], on_lost=lambda found: lost.append(len(found)))
    until([slow], lambda: len(slow.assignment) == 4)
    with Consumer(bootstrap, group_id=group, topics=[topic], **NEW) as other:
        until([other], lambda: len(other.assignment) == 4)
        with pytest.raises(GroupRebalancedError):
            slow.commit({TopicPartition(topic, 0): 0})
        until([slow, other], lambda: len(slow.assignment) == 2)
        assert lost[0] == 4
        slow.close()


def test_commits_outlive_the_epoch_in_which_they_began(bootstrap: str, topic: str, group: str) -> None:
    """Members come and go while one commits all the time: its epoch rises under its commits."""
    fill(bootstrap, topic, range(40))
    with Consumer(bootstrap, group_id=group, topics=[topic], enable_auto_commit=False, **NEW) as consumer:
        assert read([consumer], 40) == list(range(40))
        for _ in range(3):
            with Consumer(bootstrap, group_id=group, topics=[topic], **NEW) as guest:
                deadline = time.monotonic() + WAIT_S
                while len(guest.assignment) != 2:
                    assert time.monotonic() < deadline
                    consumer.poll(20)
                    consumer.commit_async().result(WAIT_S)
                    guest.poll(20)
            until([consumer], lambda: len(consumer.assignment) == 4)
        consumer.commit()
        assert sum(consumer.committed().values()) == 40


def test_members_of_both_protocols_are_one_group(bootstrap: str, topic: str, group: str) -> None:
    fill(bootstrap, topic, range(20))
    old = Consumer(bootstrap, group_id=group, topics=[topic], heartbeat_interval_ms=100,
                   auto_offset_reset="earliest", retry_backoff_ms=10)  # fmt: skip
    until([old], lambda: len(old.assignment) == 4)
    new = Consumer(bootstrap, group_id=group, topics=[topic], group_remote_assignor="range", **NEW)
    until([old, new], lambda: len(old.assignment) == len(new.assignment) == 2)
    assert not old.assignment & new.assignment
    old.close()
    until([new], lambda: len(new.assignment) == 4)
    new.close()


def test_the_asyncio_face_has_it_and_leaves_nothing_behind(bootstrap: str, topic: str, group: str) -> None:
    async def story() -> tuple[list[int], set["asyncio.Task[object]"]]:
        found: list[int] = []
        async with asyncio.timeout(WAIT_S), aio.Consumer(bootstrap, group_id=group, **NEW) as consumer:
            consumer.subscribe([topic])
            async for record in consumer:
                found.append(int(record.value))
                if len(found) == 30:
                    break
        return found, asyncio.all_tasks() - {asyncio.current_task()}

    fill(bootstrap, topic, range(30))
    before = set(os.listdir("/proc/self/fd"))
    found, left = asyncio.run(story())
    assert (sorted(found), left) == (list(range(30)), set())
    assert set(os.listdir("/proc/self/fd")) == before
    assert not [each for each in threading.enumerate() if each.name.startswith("dlog")]
    with Admin(bootstrap) as admin:
        assert admin.describe_group(group).members == ()


def test_a_cluster_that_is_not_there_is_told_at_once() -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    with (
        Consumer(nowhere, group_id="g", topics=["t"], **NEW) as consumer,
        pytest.raises(BrokerUnreachableError),
    ):
        until([consumer], lambda: False)
