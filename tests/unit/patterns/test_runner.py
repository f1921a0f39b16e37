"""Handlers against a real broker: order, retries, dead letters, ends, replies."""

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from distributedlog import Admin, Consumer, ConsumerRecord, NewTopic, Producer, TopicPartition
from distributedlog.model.errors import ConfigError, RequestTimedOutError
from distributedlog.patterns import DeadLetterError, RemoteError, Requester, RetryPolicy, Runner, aio
from distributedlog.patterns.correlation import CORRELATION_ID, REPLY_PARTITION, REPLY_TOPIC
from distributedlog.patterns.retries import PREFIX, TIMESTAMP
from tests.unit.client.faces.stage import running_broker

WAIT_S = 60.0
_numbers = count()
QUICK: dict[str, Any] = {"consumer": {"heartbeat_interval_ms": 100, "retry_backoff_ms": 10}}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker(tmp_path_factory.mktemp("broker")) as address:
        yield address


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"r{next(_numbers)}"
    with Admin(bootstrap) as admin:
        admin.create_topic(NewTopic(name, 3))
    return name


def fill(bootstrap: str, topic: str, numbers: range, keys: int = 7) -> None:
    with Producer(bootstrap) as producer:
        for number in numbers:
            producer.send(topic, str(number), key=str(number % keys), headers={"own": "1"})


def read(bootstrap: str, topic: str, wanted: int) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    deadline = time.monotonic() + 2 * WAIT_S
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer, Admin(bootstrap) as admin:
        while topic not in {each.name for each in admin.list_topics()}:
            assert time.monotonic() < deadline, "the topic is not made"
            time.sleep(0.05)
        (described,) = admin.describe_topics([topic])
        consumer.assign(TopicPartition(topic, each.index) for each in described.partitions)
        while len(found) < wanted:
            assert time.monotonic() < deadline, f"{len(found)} of {wanted} came"
            found += consumer.poll(500)
    return found


def committed(bootstrap: str, group: str, topic: str) -> int:
    with Admin(bootstrap) as admin:
        found = admin.group_offsets(group)
    return sum(at.offset for each, at in found.items() if each.topic == topic)


def test_keys_stay_in_order_while_others_go_on(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, range(200))
    runner = aio.Runner(bootstrap, group_id=topic, concurrency=8, **QUICK)
    seen: dict[bytes, list[int]] = {}
    most = under_way = 0

    @runner.handler(topic, value_deserializer=int)
    async def handle(record: ConsumerRecord) -> None:
        nonlocal most, under_way
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001)
        seen.setdefault(record.key, []).append(record.value)
        under_way -= 1
        if sum(map(len, seen.values())) == 200:
            runner.stop()

    asyncio.run(asyncio.wait_for(runner.run(), WAIT_S))
    assert sorted(seen) == [b"%d" % key for key in range(7)]
    for key, numbers in seen.items():
        assert numbers == list(range(int(key), 200, 7))
    assert 1 < most <= 7
    assert committed(bootstrap, topic, topic) == 200
    assert runner.metrics()["handled"] == 200


def test_failures_are_tried_again_later_and_end_as_dead_letters(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, range(10))
    policy = RetryPolicy(in_place_ms=(1,), delays_ms=(50, 100))
    runner = Runner(bootstrap, group_id=topic, retries=policy, **QUICK)
    calls: list[tuple[str, int]] = []

    @runner.handler(topic, value_deserializer=lambda value: 10 // (int(value) - 8) and int(value))
    def handle(record: ConsumerRecord) -> None:
        calls.append((record.topic, record.value))
        if record.value == 3:
            raise ValueError("three")
        if record.value == 4 and len([each for each in calls if each[1] == 4]) < 4:
            raise ValueError("not yet")
        if record.value == 5:
            raise DeadLetterError("five")

    running = threading.Thread(target=runner.run)
    running.start()
    dead = {int(each.value): each for each in read(bootstrap, f"{topic}.{topic}.dead-letters", 3)}
    runner.stop()
    running.join(WAIT_S)
    assert not running.is_alive()
    assert sorted(dead) == [3, 5, 8]
    told = {each.key.removeprefix(PREFIX): each.value for each in dead[3].headers}
    assert (told["own"], told["topic"], told["attempts"]) == (b"1", topic.encode(), b"6")
    assert (told["exception"], told["message"]) == (b"ValueError", b"three")
    assert b"deserialized" in (dead[8].headers[-1].value or b"")
    retry = f"{topic}.{topic}.retry-"
    assert [each for each in calls if each[1] == 3] == [
        (topic, 3), (topic, 3), (retry + "1", 3), (retry + "1", 3), (retry + "2", 3), (retry + "2", 3)
    ]  # fmt: skip
    assert [each[0] for each in calls if each[1] == 4] == [topic, topic, retry + "1", retry + "1"]
    assert [each for each in calls if each[1] == 5] == [(topic, 5)]
    assert committed(bootstrap, topic, topic) == 10
    assert runner.metrics()["dead_letters"] == 3


def test_an_old_record_that_failed_is_kept_as_long_as_a_new_one(bootstrap: str, topic: str) -> None:
    """Retention goes by timestamps: with its old one a record would be deleted as soon as it is retried."""
    old_ms = 1_000_000_000_000
    begun_ms = time.time_ns() // 1_000_000
    with Producer(bootstrap) as producer:
        producer.send(topic, "3", timestamp_ms=old_ms).result(WAIT_S)
    runner = Runner(bootstrap, group_id=topic, retries=RetryPolicy(delays_ms=(1,)), **QUICK)
    handled: list[int] = []

    @runner.handler(topic)
    def handle(record: ConsumerRecord) -> None:
        handled.append(record.timestamp_ms)
        raise ValueError("three")

    running = threading.Thread(target=runner.run)
    running.start()
    try:
        (dead,) = read(bootstrap, f"{topic}.{topic}.dead-letters", 1)
        (retried,) = read(bootstrap, f"{topic}.{topic}.retry-1", 1)
    finally:
        runner.stop()
        running.join(WAIT_S)
    assert handled[0] == old_ms
    for each in (retried, dead):
        assert each.timestamp_ms >= begun_ms
        assert {header.key: header.value for header in each.headers}[TIMESTAMP] == str(old_ms).encode()


def test_without_retries_a_failure_ends_the_runner_and_the_record_comes_again(
    bootstrap: str, topic: str
) -> None:
    fill(bootstrap, topic, range(20), keys=1)
    seen: list[int] = []

    def make(fails: bool) -> Runner:
        runner = Runner(bootstrap, group_id=topic, **QUICK)

        @runner.handler(topic)
        def handle(record: ConsumerRecord) -> None:
            if fails and record.value == b"7":
                raise ZeroDivisionError
            seen.append(int(record.value))
            if record.value == b"19":
                runner.stop()

        return runner

    with pytest.raises(ZeroDivisionError):
        make(fails=True).run()
    assert seen == list(range(7))
    assert committed(bootstrap, topic, topic) == 7
    make(fails=False).run()
    assert seen == list(range(20))


def test_a_signal_ends_it_after_what_is_under_way(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, range(5))
    runner = Runner(bootstrap, group_id=topic, concurrency=1, **QUICK)
    ended: list[int] = []

    @runner.handler(topic)
    def handle(record: ConsumerRecord) -> None:
        if not ended:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.3)
        ended.append(int(record.value))

    runner.run()
    assert len(ended) < 5, "nothing was begun after the signal"
    assert committed(bootstrap, topic, topic) == len(ended)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_partitions_that_move_lose_nothing(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, range(100), keys=50)
    seen: list[int] = []
    runners = [aio.Runner(bootstrap, group_id=topic, commit_interval_ms=50, **QUICK) for _ in range(2)]

    async def handle(record: ConsumerRecord) -> None:
        await asyncio.sleep(0.01)
        seen.append(int(record.value))

    async def story() -> None:
        async with asyncio.timeout(2 * WAIT_S):
            first = asyncio.create_task(runners[0].run())
            while not seen:
                await asyncio.sleep(0.01)
            second = asyncio.create_task(runners[1].run())
            while set(seen) != set(range(100)) or not runners[1].metrics()["handled"]:
                await asyncio.to_thread(fill, bootstrap, topic, range(100), 50)
            for runner in runners:
                runner.stop()
            await asyncio.gather(first, second)

    for runner in runners:
        runner.handler(topic)(handle)
    asyncio.run(story())
    with Admin(bootstrap) as admin, Consumer(bootstrap) as consumer:
        places = [TopicPartition(topic, each) for each in range(3)]
        ends = sum(consumer.end_offsets(places).values())
        assert committed(bootstrap, topic, topic) <= ends
        assert admin.describe_group(topic).members == ()
    assert len(seen) >= committed(bootstrap, topic, topic)


def test_a_request_is_replied_to_or_times_out(bootstrap: str, topic: str) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topic(NewTopic(f"{topic}-replies", 2))
    runner = Runner(bootstrap, group_id=topic, **QUICK)

    @runner.responder(topic, value_deserializer=bytes.decode)
    def answer(record: ConsumerRecord) -> str:
        if record.value == "bad":
            raise ValueError("no such thing")
        return f"{record.value}: 3 EUR"

    running = threading.Thread(target=runner.run)
    with Requester(
        bootstrap, topic=topic, reply_topic=f"{topic}-replies", value_deserializer=bytes.decode
    ) as prices:
        with pytest.raises(RequestTimedOutError, match="nobody has replied"):
            prices.ask("too early", timeout_ms=100)
        running.start()
        assert prices.ask("coffee", timeout_ms=60_000) == "coffee: 3 EUR"
        with pytest.raises(RemoteError, match="no such thing") as failed:
            prices.ask("bad", timeout_ms=60_000)
        assert failed.value.exception == "ValueError"
        with Producer(bootstrap) as producer:
            producer.send(topic, "without an address").result(WAIT_S)
        assert prices.ask_record("tea", timeout_ms=60_000).value == b"tea: 3 EUR"
        runner.stop()
        running.join(WAIT_S)
    assert not [each for each in threading.enumerate() if each.name.startswith("dlog-requester")]


def test_a_request_with_a_wrong_reply_address_holds_up_nobody(bootstrap: str, topic: str) -> None:
    replies = f"{topic}-replies"
    with Admin(bootstrap) as admin:
        admin.create_topic(NewTopic(replies, 1))
    runner = Runner(bootstrap, group_id=topic, producer={"allow_auto_create_topics": False}, **QUICK)
    runner.responder(topic)(lambda record: record.value)
    asked: dict[str, bytes | None] = {CORRELATION_ID: b"c", REPLY_TOPIC: replies.encode()}
    wrong: list[dict[str, bytes | None]] = [
        {REPLY_TOPIC: b"there-is-none"},
        {REPLY_TOPIC: b".."},
        {REPLY_TOPIC: b"\xff\x00"},
        {REPLY_TOPIC: None},
        {REPLY_PARTITION: (99).to_bytes(4, "big")},
        {REPLY_PARTITION: b"\xff\xff\xff\xff"},
        {CORRELATION_ID: None},
    ]
    running = threading.Thread(target=runner.run)
    running.start()
    with Producer(bootstrap) as producer:
        for each in wrong:
            producer.send(topic, "lost", partition=0, headers={**asked, **each})
        producer.send(topic, "found", partition=0, headers=asked)
    try:
        (found,) = read(bootstrap, replies, 1)
    finally:
        runner.stop()
        running.join(WAIT_S)
    assert found.value == b"found"
    assert runner.metrics()["unreplied"] == len(wrong)
    assert committed(bootstrap, topic, topic) == len(wrong) + 1


def test_a_reply_that_cannot_be_sent_is_an_error_to_whoever_asked(bootstrap: str, topic: str) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topic(NewTopic(f"{topic}-replies", 1, configs={"max.message.bytes": "10000"}))
    as_json: Any = {"value_serializer": lambda value: json.dumps(value).encode()}
    runner = Runner(bootstrap, group_id=topic, producer=as_json, **QUICK)
    outcomes: dict[bytes, Any] = {b"whole": [1], b"no JSON": {2}, b"large": os.urandom(20_000).hex()}
    runner.responder(topic)(lambda record: outcomes[record.value])
    running = threading.Thread(target=runner.run)
    running.start()
    with Requester(bootstrap, topic=topic, reply_topic=f"{topic}-replies") as requester:
        for value, exception in [
            ("no JSON", "TypeError"), ("large", "RecordTooLargeError"), ("strange", "KeyError")
        ]:  # fmt: skip
            with pytest.raises(RemoteError) as failed:
                requester.ask(value, timeout_ms=60_000)
            assert failed.value.exception.endswith(exception)
        assert requester.ask("whole", timeout_ms=60_000) == b"[1]"
    runner.stop()
    running.join(WAIT_S)


def test_serializers_change_nothing_of_a_dead_letter(bootstrap: str, topic: str) -> None:
    def serialize(value: Any) -> bytes:
        return json.dumps(value).encode()

    settings: Any = {"key_serializer": serialize, "value_serializer": serialize}
    runner = aio.Runner(bootstrap, group_id=topic, retries=RetryPolicy(), producer=settings, **QUICK)

    @runner.handler(topic)
    async def handle(record: ConsumerRecord) -> None:
        runner.stop()
        await runner.producer.send_and_wait(topic + "-sent", {"a": 1}, "key")
        raise DeadLetterError

    fill(bootstrap, topic, range(1))
    asyncio.run(asyncio.wait_for(runner.run(), WAIT_S))
    (dead,) = read(bootstrap, f"{topic}.{topic}.dead-letters", 1)
    assert (dead.key, dead.value) == (b"0", b"0")
    (sent,) = read(bootstrap, topic + "-sent", 1)
    assert (sent.key, sent.value) == (b'"key"', b'{"a": 1}')


def test_wrong_use_is_told(bootstrap: str) -> None:
    runner = aio.Runner(bootstrap, group_id="g")
    with pytest.raises(ConfigError, match="no handler"):
        asyncio.run(runner.run())
    with pytest.raises(ConfigError, match="at least one"):
        runner.handler()
    runner.handler("t")(print)
    with pytest.raises(ConfigError, match="already"):
        runner.handler("t")(print)
