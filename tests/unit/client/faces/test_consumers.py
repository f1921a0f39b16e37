"""Both consumers against a real broker: groups, offsets, positions, and what is left after the end."""

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
    ClientClosedError,
    ConfigError,
    GroupRebalancedError,
    InvalidRecordError,
    InvalidRegularExpressionError,
    InvalidRequestError,
    NoOffsetError,
)
from tests.ports import free_port
from tests.unit.client.faces.stage import running_broker

_numbers = count()
QUICK: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "heartbeat_interval_ms": 100,
    "retry_backoff_ms": 10,
}
WAIT_S = 60.0


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker(tmp_path_factory.mktemp("broker")) as address:
        yield address


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"c{next(_numbers)}"
    with Admin(bootstrap) as admin:
        admin.create_topic(NewTopic(name, 4))
    return name


@pytest.fixture
def group() -> str:
    return f"g{next(_numbers)}"


def fill(bootstrap: str, topic: str, values: Collection[Any], **where: Any) -> None:
    with Producer(bootstrap, linger_ms=1) as producer:
        for each in values:
            producer.send(topic, str(each), key=str(each), **where)


def turns() -> Iterator[None]:
    """One turn after another, until that has taken far too long."""
    deadline = time.monotonic() + 2 * WAIT_S
    while time.monotonic() < deadline:
        yield
    raise TimeoutError(f"it did not happen within {2 * WAIT_S} s")


def read(consumer: Consumer, wanted: int) -> list[int]:
    found: list[int] = []
    for _ in turns():
        if len(found) >= wanted:
            break
        found += (int(each.value) for each in consumer.poll(1000))
    return found


def until(consumers: Collection[Consumer], is_so: Callable[[], bool]) -> None:
    """Polls in turn until it is so."""
    for _ in turns():
        if is_so():
            break
        for each in consumers:
            each.poll(50)


def test_a_group_reads_everything_once_and_the_next_one_goes_on_behind_it(
    bootstrap: str, topic: str, group: str
) -> None:
    fill(bootstrap, topic, range(100))
    with Consumer(bootstrap, group_id=group, topics=[topic], **QUICK) as consumer:
        assert sorted(read(consumer, 100)) == list(range(100))
        assert consumer.lag() == {TopicPartition(topic, each): 0 for each in range(4)}
        assert consumer.metrics()["records"] == 100
    fill(bootstrap, topic, range(100, 120))
    with Consumer(bootstrap, group_id=group, topics=[topic], **QUICK) as consumer:
        assert sorted(read(consumer, 20)) == list(range(100, 120))


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_members_share_partitions_and_take_over_from_each_other(
    bootstrap: str, topic: str, group: str, assignor: str
) -> None:
    told: list[tuple[str, str, tuple[TopicPartition, ...]]] = []

    def member(name: str) -> Consumer:
        consumer = Consumer(bootstrap, group_id=group, assignor=assignor, **QUICK)
        consumer.subscribe(
            [topic],
            on_assigned=lambda found: told.append((name, "assigned", tuple(found))),
            on_revoked=lambda found: told.append((name, "revoked", tuple(found))),
        )
        return consumer

    everything = {TopicPartition(topic, each) for each in range(4)}
    first, second = member("first"), member("second")
    until([first], lambda: first.assignment == everything)
    fill(bootstrap, topic, range(50))
    assert sorted(read(first, 50)) == list(range(50))
    until([first, second], lambda: len(first.assignment) == len(second.assignment) == 2)
    assert first.assignment | second.assignment == everything
    given_up = {each for name, what, found in told if (name, what) == ("first", "revoked") for each in found}
    assert given_up == (second.assignment if assignor == "cooperative-sticky" else everything)
    fill(bootstrap, topic, range(50, 100))
    found: list[int] = []
    for _ in turns():
        if len(found) >= 50:
            break
        found += (int(each.value) for consumer in (first, second) for each in consumer.poll(50))
    assert sorted(found) == list(range(50, 100)), (
        "what the first had read was committed before it was given up"
    )
    first.close()
    until([second], lambda: second.assignment == everything)
    second.close()


def test_a_callback_may_commit_and_seek_on_the_thread_that_polls(
    bootstrap: str, topic: str, group: str
) -> None:
    fill(bootstrap, topic, range(10), partition=0)
    here = threading.get_ident()
    called: list[object] = []
    consumer = Consumer(bootstrap, group_id=group, enable_auto_commit=False, **QUICK)

    def on_assigned(partitions: Collection[TopicPartition]) -> None:
        called.append(threading.get_ident())
        consumer.seek(TopicPartition(topic, 0), 7)

    def on_revoked(partitions: Collection[TopicPartition]) -> None:
        consumer.commit({TopicPartition(topic, 0): 8})
        called.append(sorted(partitions))

    with consumer:
        consumer.subscribe([topic], on_assigned=on_assigned, on_revoked=on_revoked)
        assert read(consumer, 3) == [7, 8, 9]
    assert called == [here, [TopicPartition(topic, each) for each in range(4)]]
    with Admin(bootstrap) as admin:
        assert admin.group_offsets(group)[TopicPartition(topic, 0)].offset == 8


def test_a_callback_that_fails_is_told_by_poll(bootstrap: str, topic: str, group: str) -> None:
    def fail(partitions: object) -> None:
        raise ZeroDivisionError

    with Consumer(bootstrap, group_id=group, **QUICK) as consumer:
        consumer.subscribe([topic], on_assigned=fail)
        with pytest.raises(ZeroDivisionError):
            consumer.poll(60_000)


def test_a_consumer_can_be_closed_after_an_interrupt(bootstrap: str, topic: str, group: str) -> None:
    revoked: list[TopicPartition] = []

    def interrupt(partitions: object) -> None:
        raise KeyboardInterrupt

    consumer = Consumer(bootstrap, group_id=group, **QUICK)
    consumer.subscribe([topic], on_assigned=interrupt, on_revoked=revoked.extend)
    with pytest.raises(KeyboardInterrupt):
        consumer.poll(60_000)
    closing = threading.Thread(target=consumer.close, daemon=True)
    closing.start()
    closing.join(WAIT_S)
    assert not closing.is_alive()
    assert len(revoked) == 4


def test_iteration_commits_what_was_dealt_with_and_not_what_failed(
    bootstrap: str, topic: str, group: str
) -> None:
    fill(bootstrap, topic, range(10), partition=1)
    seen: list[int] = []
    failed: list[bool] = []

    def work() -> None:
        with Consumer(bootstrap, group_id=group, topics=[topic], **QUICK) as consumer:
            for record in consumer:
                if record.offset == 4 and not failed:
                    failed.append(True)
                    raise ZeroDivisionError
                seen.append(record.offset)
                if record.offset == 9:
                    break

    with pytest.raises(ZeroDivisionError):
        work()
    work()
    assert seen == list(range(10))
    with Admin(bootstrap) as admin:
        assert admin.group_offsets(group)[TopicPartition(topic, 1)].offset == 10


def test_partitions_are_assigned_sought_paused_and_resumed(bootstrap: str, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    fill(bootstrap, topic, range(5), partition=0, timestamp_ms=1000)
    fill(bootstrap, topic, range(5, 10), partition=0, timestamp_ms=2000)
    fill(bootstrap, topic, range(10, 15), partition=1)
    with Consumer(bootstrap, auto_offset_reset="earliest", max_poll_records=4) as consumer:
        consumer.assign([first, second])
        consumer.pause(second)
        assert read(consumer, 4) == [0, 1, 2, 3]
        assert consumer.position(first) == 4
        consumer.seek(first, 8)
        assert read(consumer, 2) == [8, 9]
        consumer.seek_to_time(1500, first)
        assert read(consumer, 1)[0] == 5
        consumer.seek_to_end(first)
        consumer.resume(second)
        assert consumer.paused == frozenset()
        assert read(consumer, 5) == [10, 11, 12, 13, 14]
        consumer.seek_to_beginning(first)
        assert read(consumer, 1)[0] == 0
        assert consumer.end_offsets([first]) == {first: 10}
        assert consumer.beginning_offsets([first]) == {first: 0}
        consumer.assign([second])
        assert consumer.assignment == {second}
        with pytest.raises(InvalidRequestError, match="not assigned"):
            consumer.seek(first, 1)
        with pytest.raises(ConfigError, match="group_id"):
            consumer.commit()
        with pytest.raises(ConfigError, match="group_id"):
            consumer.subscribe([topic])


def test_a_pattern_finds_topics_and_partitions_that_come_later(bootstrap: str, group: str) -> None:
    prefix = f"p{next(_numbers)}"
    with Admin(bootstrap) as admin:
        admin.create_topic(NewTopic(f"{prefix}-a", 1))
        with Consumer(bootstrap, group_id=group, metadata_max_age_ms=100, **QUICK) as consumer:
            consumer.subscribe(pattern=f"{prefix}-.*")
            until([consumer], lambda: len(consumer.assignment) == 1)
            admin.create_topic(NewTopic(f"{prefix}-b", 2))
            until([consumer], lambda: len(consumer.assignment) == 3)
            admin.create_partitions({f"{prefix}-a": 3})
            until([consumer], lambda: len(consumer.assignment) == 5)


def test_a_pattern_that_is_none_is_refused_and_the_subscription_stays(
    bootstrap: str, topic: str, group: str
) -> None:
    with Consumer(bootstrap, group_id=group, topics=[topic], **QUICK) as consumer:
        with pytest.raises(InvalidRegularExpressionError, match=r"'\(' is no regular expression: missing \)"):
            consumer.subscribe(pattern="(")
        until([consumer], lambda: {each.topic for each in consumer.assignment} == {topic})


def test_a_topic_that_is_created_after_the_subscription_is_found(bootstrap: str, group: str) -> None:
    name = f"c{next(_numbers)}"
    with (
        Admin(bootstrap) as admin,
        Consumer(bootstrap, group_id=group, topics=[name], metadata_max_age_ms=100, **QUICK) as consumer,
    ):
        until([consumer], lambda: consumer.metrics()["rebalances"] == 1)
        assert consumer.assignment == frozenset()
        admin.create_topic(NewTopic(name, 2))
        until([consumer], lambda: len(consumer.assignment) == 2)


def test_where_to_begin_without_an_offset(bootstrap: str, topic: str, group: str) -> None:
    fill(bootstrap, topic, range(3), partition=0)
    at = TopicPartition(topic, 0)
    with Consumer(bootstrap, group_id=group, topics=[topic], auto_offset_reset="none") as consumer:
        with pytest.raises(NoOffsetError, match="seek, or commit"):
            consumer.poll(60_000)
        with pytest.raises(GroupRebalancedError):
            consumer.commit({TopicPartition("another", 0): 1})
    with Consumer(bootstrap, group_id=group, auto_offset_reset="latest") as consumer:
        consumer.assign([at])
        assert consumer.position(at) == 3
        consumer.commit({at: 1})
        consumer.commit_async({at: 2}).result(WAIT_S)
        assert consumer.committed([at]) == {at: 2}


def test_a_static_member_is_away_for_a_while_without_a_rebalance(
    bootstrap: str, topic: str, group: str
) -> None:
    def member(name: str) -> Consumer:
        return Consumer(bootstrap, group_id=group, group_instance_id=name, topics=[topic], **QUICK)

    stays, goes = member("stays"), member("goes")
    until([stays, goes], lambda: len(stays.assignment) == len(goes.assignment) == 2)
    had, rebalances = goes.assignment, stays.metrics()["rebalances"]
    goes.close()
    back = member("goes")
    until([back], lambda: len(back.assignment) == 2)
    assert back.assignment == had
    stays.poll(300)
    assert stays.metrics()["rebalances"] == rebalances
    stays.close()
    back.close()


def test_a_member_that_does_not_poll_loses_its_partitions_and_is_told(
    bootstrap: str, topic: str, group: str
) -> None:
    lost: list[int] = []
    slow = Consumer(bootstrap, group_id=group, max_poll_interval_ms=1500, session_timeout_ms=6000, **QUICK)
    slow.subscribe([topic], on_lost=lambda found: lost.append(len(found)))
    until([slow], lambda: len(slow.assignment) == 4)
    with Consumer(bootstrap, group_id=group, topics=[topic], **QUICK) as other:
        until([other], lambda: len(other.assignment) == 4)
        until([slow, other], lambda: len(slow.assignment) == 2)
        assert lost[0] == 4
        slow.close()


def test_a_record_that_cannot_be_deserialized_is_told_and_can_be_passed(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, ["1", "x", "3"], partition=0)
    at = TopicPartition(topic, 0)
    with Consumer(bootstrap, auto_offset_reset="earliest", value_deserializer=int) as consumer:
        consumer.assign([at])
        assert [each.value for each in consumer.poll(60_000)] == [1]
        with pytest.raises(InvalidRecordError, match="offset 1"):
            consumer.poll(60_000)
        consumer.seek(at, 2)
        assert read(consumer, 1) == [3]


def test_the_asyncio_face_iterates_and_survives_being_cancelled(
    bootstrap: str, topic: str, group: str
) -> None:
    async def story() -> list[int]:
        found: list[int] = []
        async with asyncio.timeout(WAIT_S), aio.Consumer(bootstrap, group_id=group, **QUICK) as consumer:
            consumer.subscribe([topic])
            for _ in range(20):
                try:
                    async with asyncio.timeout(0.01):
                        found += (int(each.value) for each in await consumer.poll(1000))
                except TimeoutError:
                    continue
            while len(found) < 100:
                async for record in consumer:
                    found.append(int(record.value))
                    if len(found) % 7 == 0:
                        break
                found += (int(each.value) for each in await consumer.poll(100, max_records=3))
        return found

    fill(bootstrap, topic, range(100))
    found = asyncio.run(story())
    assert sorted(found) == list(range(100))


def test_a_child_process_reads_with_a_membership_of_its_own(bootstrap: str, topic: str, group: str) -> None:
    fill(bootstrap, topic, range(10))
    consumer = Consumer(bootstrap, group_id=group, topics=[topic], **QUICK)
    assert len(read(consumer, 10)) == 10
    consumer.commit()
    child = os.fork()
    if child == 0:  # nothing of pytest runs here: the process ends by itself
        status = 1
        try:
            until([consumer], lambda: bool(consumer.assignment))
            status = 0 if consumer.metrics()["records"] == 0 else 2
            consumer.close()
        finally:
            os._exit(status)
    ended: list[int] = []
    waiting = threading.Thread(target=lambda: ended.append(os.waitpid(child, 0)[1]))
    waiting.start()
    for _ in turns():
        if ended:
            break
        assert consumer.poll(50) == []
    waiting.join()
    assert os.waitstatus_to_exitcode(ended[0]) == 0
    consumer.close()


def test_a_consumer_that_is_closed_while_it_joins_leaves_the_group(
    bootstrap: str, topic: str, group: str
) -> None:
    """The other member does not poll, so that the join stays open."""

    def members() -> int:
        return len(admin.describe_group(group).members)

    first = Consumer(bootstrap, group_id=group, topics=[topic], **QUICK)
    second = Consumer(bootstrap, group_id=group, topics=[topic], **QUICK)
    with Admin(bootstrap) as admin:
        until([first], lambda: len(first.assignment) == 4)
        until([second], lambda: members() == 2)
        second.close()
        assert members() == 1
        first.close()


def test_nothing_is_left_of_a_closed_consumer(bootstrap: str, topic: str, group: str) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with Consumer(bootstrap, group_id=group, topics=[topic], **QUICK) as consumer:
        until([consumer], lambda: bool(consumer.assignment))
    consumer.close()
    assert not [each for each in threading.enumerate() if each.name.startswith("dlog")]
    assert set(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ClientClosedError):
        consumer.poll()
    with Admin(bootstrap) as admin:
        assert admin.describe_group(group).members == ()

    async def story() -> set["asyncio.Task[object]"]:
        async with aio.Consumer(bootstrap, group_id=group, topics=[topic], **QUICK) as consumer:
            await consumer.poll(10)
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(story()) == set()


def test_a_cluster_that_is_not_there_is_told_at_once() -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    with Consumer(nowhere, group_id="g", topics=["t"]) as consumer, pytest.raises(BrokerUnreachableError):
        consumer.poll()
    with Consumer(nowhere) as consumer, pytest.raises(InvalidRequestError, match="subscribe"):
        consumer.poll()
