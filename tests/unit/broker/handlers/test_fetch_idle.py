"""A session that rests partitions answers as one that reads all of them each time; and it reads less."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.broker.handlers import _fetch_reading
from distributedlog.broker.net.pending import PendingResponse
from distributedlog.broker.replicas.fetch_sessions import PAUSE_MS, FetchSessionCache
from distributedlog.broker.replicas.idle_partitions import PartitionKey
from distributedlog.broker.replicas.partitions import SYNC_PAUSE_MS
from distributedlog.broker.services import Services
from distributedlog.controller.image import ResourceType
from distributedlog.protocol.messages.fetch import FetchRequest, FetchResponse, FetchTopic, ReplicaState
from distributedlog.replication.contract import ACKS_ALL
from distributedlog.replication.partition import Partition
from tests.simulation.clock import SeededRandomness
from tests.simulation.disk import SimDisk
from tests.unit.broker.handlers.data_requests import fetch_request, wanted
from tests.unit.broker.handlers.data_stage import LARGE, DataBroker, data_broker
from tests.unit.broker.handlers.test_sasl_handshake import OTHERS_EPOCH, prove
from tests.unit.broker.partition_stage import ME, OTHER, topic_id
from tests.unit.storage.support import batch_of, value_of

VERSION = 18
NUMBERS = (11, 12, 13)
MUCH = 1 << 20


def name_of(number: int) -> str:
    return f"t{number}"


class Reader:
    """A client with a session: a follower, which has up to two requests in flight, or a consumer."""

    def __init__(self, broker: DataBroker, is_follower: bool) -> None:
        self.broker = broker
        self.is_follower = is_follower
        self.session, self.epoch = 0, 0
        self.offsets = dict.fromkeys(NUMBERS, 0)
        self.named: dict[int, int] = {}
        self.pending: list[PendingResponse] = []
        self.heard: list[Any] = []

    def fetch(self, max_wait_ms: int, max_bytes: int) -> None:
        if self.pending and (self.session == 0 or not self.is_follower):
            return
        named = self.named if self.session else self.offsets
        state = ReplicaState(replica_id=OTHER, replica_epoch=OTHERS_EPOCH) if self.is_follower else None
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=self.session,
            session_epoch=self.epoch,
            topics=[
                FetchTopic(topic_id=topic_id(number), partitions=[wanted(offset, max_bytes=max_bytes)])
                for number, offset in named.items()
            ],
            replica_state=state,
        )
        self.named = {}
        self.epoch += self.session > 0
        answer = self.broker.begin(request, VERSION)
        if isinstance(answer, PendingResponse):
            self.pending.append(answer)
        else:
            self.take()
            self._note(self.broker.finish(answer, VERSION, FetchResponse))

    def take(self) -> None:
        """Takes the responses that have come."""
        while self.pending and self.pending[0].is_decided:
            self._note(self.broker.finish(self.pending.pop(0), VERSION, FetchResponse))

    def _note(self, response: FetchResponse) -> None:
        parts = []
        for topic in response.responses:
            number = int.from_bytes(topic.topic_id.bytes16, "big")
            for data in topic.partitions:
                length = len(data.records or b"")
                parts.append((number, data.error_code, data.high_watermark, data.log_start_offset, length))
                if data.error_code:
                    self.offsets[number] = self.broker.stage[name_of(number)].log_start_offset
                if data.error_code or length >= BATCH_BYTES:
                    self.offsets[number] += length // BATCH_BYTES
                    self.named[number] = self.offsets[number]
        self.heard.append((response.error_code, response.session_id, parts))
        if response.error_code:
            self.session, self.epoch = 0, 0
        elif self.session == 0:
            self.session, self.epoch = response.session_id, 1


BATCH_BYTES = len(batch_of([value_of(1)]))
FETCHES = st.tuples(
    st.just("fetch"), st.integers(0, 1), st.sampled_from((0, 300)), st.sampled_from((90, MUCH, MUCH))
)
PRODUCES = st.tuples(st.just("produce"), st.sampled_from(NUMBERS), st.sampled_from((1, ACKS_ALL)))
OPENING = [("fetch", 0, 0, MUCH), ("fetch", 1, 0, MUCH), ("produce", NUMBERS[0], 1), ("settle",)]
CATCHING_UP = [("fetch", 0, 0, MUCH), ("fetch", 0, 0, MUCH), ("fetch", 1, 0, MUCH), ("fetch", 1, 0, MUCH)]
STEPS = st.one_of(
    FETCHES,
    FETCHES,
    FETCHES,
    PRODUCES,
    PRODUCES,
    st.tuples(st.just("settle")),
    st.tuples(st.just("pass"), st.sampled_from((10, 400, 40_000))),
    st.tuples(st.just("delete"), st.sampled_from(NUMBERS), st.integers(0, 6)),
    st.tuples(st.just("isr"), st.sampled_from(NUMBERS), st.booleans()),
    st.tuples(st.just("epoch"), st.sampled_from(NUMBERS)),
    st.tuples(st.just("lose"), st.sampled_from(NUMBERS)),
    st.tuples(st.just("retain"), st.sampled_from(NUMBERS)),
    st.tuples(st.just("configure"), st.sampled_from(NUMBERS), st.sampled_from(("producer", "zstd"))),
)


class Twin:
    """A broker with three topics that two brokers have, a follower and a consumer of it."""

    def __init__(self, rests: bool) -> None:
        self.broker = broker = DataBroker(Path("/"), log=LARGE, disk=SimDisk())
        if not rests:
            broker.services.fetch_sessions = FetchSessionCache(8, randomness=SeededRandomness(1))
        broker.register(OTHER, 9_002)
        for number in NUMBERS:
            broker.metadata.create(name_of(number), number, replicas=(ME, OTHER))
        broker.follow()
        prove(broker)
        self.identity = broker.session.broker
        self.readers = Reader(broker, True), Reader(broker, False)

    def do(self, step: tuple[Any, ...]) -> None:
        kind, *arguments = step
        getattr(self, f"do_{kind}")(*arguments)
        self.broker.stage.scheduler.run_posted()
        for reader in self.readers:
            reader.take()

    def do_fetch(self, who: int, max_wait_ms: int, max_bytes: int) -> None:
        reader = self.readers[who]
        self.broker.session.broker = self.identity if reader.is_follower else None
        reader.fetch(max_wait_ms, max_bytes)

    def do_produce(self, number: int, acks: int) -> None:
        partition = self.broker.stage[name_of(number)]
        if partition.is_leader:
            partition.append(batch_of([value_of(number)]), acks, self.broker.clock.wall_ms())

    def do_settle(self) -> None:
        self.broker.settle()

    def do_pass(self, duration_ms: int) -> None:
        self.broker.stage.scheduler.advance(duration_ms)

    def do_delete(self, number: int, offset: int) -> None:
        partition = self.broker.stage[name_of(number)]
        if partition.is_leader:
            partition.delete_records(min(offset, partition.high_watermark), self.broker.clock.wall_ms())

    def do_isr(self, number: int, has_other: bool) -> None:
        self.broker.metadata.change(number, isr=[ME, OTHER] if has_other else [ME])
        self.broker.follow()

    def do_epoch(self, number: int) -> None:
        self.broker.metadata.change(number, leader=ME)
        self.broker.follow()

    def do_lose(self, number: int) -> None:
        self.broker.metadata.change(number, leader=OTHER)
        self.broker.follow()

    def do_retain(self, number: int) -> None:
        log = self.broker.stage[name_of(number)].log
        log.roll(self.broker.clock.wall_ms())
        log.delete_segments_below(log.high_watermark, self.broker.clock.wall_ms())

    def do_configure(self, number: int, codec: str) -> None:
        self.broker.metadata.configure(ResourceType.TOPIC, name_of(number), "compression.type", codec)
        self.broker.follow()

    def observe(self) -> list[Any]:
        """What clients heard, and what the leader thinks of its follower."""
        broker, now_ms = self.broker, self.broker.clock.monotonic_ms()
        seen: list[Any] = [reader.heard for reader in self.readers]
        seen.append([len(reader.pending) for reader in self.readers])
        for number in NUMBERS:
            partition = broker.stage[name_of(number)]
            follower = partition.view.followers.get(OTHER) if partition.view is not None else None
            seen.append((partition.high_watermark, partition.log_start_offset, partition.log_end_offset))
            if follower is not None:
                seen.append(follower.is_lagging(partition.log_end_offset, now_ms, 30_000))
                seen.append(follower.log_end_offset)
        return seen

    def close(self) -> None:
        self.broker.close()


@settings(max_examples=int(os.environ.get("DLOG_SOAK", "0")) * 2000 or 60, deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_a_session_that_rests_partitions_answers_as_one_that_reads_all(steps: list[tuple[Any, ...]]) -> None:
    with ExitStack() as stack:
        twins = Twin(rests=True), Twin(rests=False)
        for twin in twins:
            stack.callback(twin.close)
        ending = [("pass", 400), ("fetch", 0, 0, MUCH), ("fetch", 1, 0, MUCH)]
        for number, step in enumerate([*OPENING, *CATCHING_UP, *steps, *ending]):
            for twin in twins:
                twin.do(step)
            rested, walked = (twin.observe() for twin in twins)
            assert rested == walked, (number, step)


@contextmanager
def resting(who: int) -> Iterator[Twin]:
    """Yields a broker whose follower, or consumer, has read all and waits."""
    twin = Twin(rests=True)
    try:
        for step in (*OPENING, *CATCHING_UP, *CATCHING_UP, ("pass", PAUSE_MS), ("fetch", who, 300, MUCH)):
            twin.do(step)
        assert len(twin.readers[who].pending) == 1
        assert len(twin.broker.services.purgatory.idle) == 2 * len(NUMBERS)
        twin.readers[who].heard.clear()
        yield twin
    finally:
        twin.close()


def test_a_follower_hears_of_an_append_to_an_idle_partition() -> None:
    with resting(0) as twin:
        twin.do(("produce", NUMBERS[1], 1))
        (((_, _, parts),),) = [twin.readers[0].heard]
        assert parts == [(NUMBERS[1], 0, 0, 0, BATCH_BYTES)]


def test_a_follower_hears_in_one_response_of_all_that_is_committed_in_a_turn() -> None:
    with resting(0) as twin:
        follower, stage = twin.readers[0], twin.broker.stage
        for number in NUMBERS:
            twin.do(("produce", number, 1))
        while not follower.pending:
            twin.do(("pass", PAUSE_MS))
            twin.do(("fetch", 0, 300, MUCH))
        twin.do(("pass", PAUSE_MS))
        follower.heard.clear()
        stage.scheduler.advance(SYNC_PAUSE_MS)
        while stage.executor.run_all():  # the leader has stored what the follower has
            assert not follower.pending[0].is_decided, "not in the same turn"
        twin.do(("fetch", 1, 0, MUCH))
        (((_, _, parts),),) = [follower.heard]
        assert sorted((number, high_watermark) for number, _, high_watermark, _, _ in parts) == [
            (NUMBERS[0], 2),
            (NUMBERS[1], 1),
            (NUMBERS[2], 1),
        ]


@pytest.mark.parametrize("who", [0, 1])
def test_a_reader_hears_what_retention_did_to_an_idle_partition(who: int) -> None:
    with resting(who) as twin:
        twin.do(("retain", NUMBERS[0]))
        twin.do(("pass", 400))
        (((_, _, parts),),) = [twin.readers[who].heard]
        assert parts == [(NUMBERS[0], 0, 1, 1, 0)]


def test_a_follower_that_has_nothing_to_fetch_stays_in_sync() -> None:
    with resting(0) as twin:
        for _ in range(100):
            twin.do(("pass", 400))
            twin.do(("fetch", 0, 300, MUCH))
        twin.do(("produce", NUMBERS[0], 1))
        partition = twin.broker.stage[name_of(NUMBERS[0])]
        assert partition.view is not None
        now_ms = twin.broker.clock.monotonic_ms()
        assert not partition.view.followers[OTHER].is_lagging(partition.log_end_offset, now_ms, 30_000)
        assert partition.view.followers[OTHER].is_lagging(partition.log_end_offset, now_ms + 30_500, 30_000)


def test_an_idle_partition_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with data_broker(tmp_path) as broker:
        broker.metadata.create("many", 2, 50)
        broker.follow()
        every = [wanted(0, partition=each) for each in range(50)]
        opened = broker.ask(
            fetch_request(*every, topic="many", number=2, session=(0, 0)), VERSION, FetchResponse
        )
        found: list[Any] = []
        find = _fetch_reading._find

        def find_and_note(services: Services, key: PartitionKey) -> Partition:
            found.append(key)
            return find(services, key)

        monkeypatch.setattr(_fetch_reading, "_find", find_and_note)
        for epoch in (1, 2):
            request = fetch_request(session=(opened.session_id, epoch))
            assert broker.ask(request, VERSION, FetchResponse).responses == []
        assert found == []
        waiting = broker.begin(fetch_request(session=(opened.session_id, 3), max_wait_ms=300), VERSION)
        assert broker.delayed_count == 1
        partition = broker.stage.partitions.require("many", 7)
        partition.append(batch_of([value_of(1)]), 1, broker.clock.wall_ms())
        broker.settle()
        (topic,) = broker.finish(waiting, VERSION, FetchResponse).responses
        assert [each.partition_index for each in topic.partitions] == [7]
        assert found == [(topic_id(2), 7)]
        assert len(broker.services.purgatory.idle) == 49
        broker.ask(fetch_request(session=(opened.session_id, -1)), VERSION, FetchResponse)
        assert len(broker.services.purgatory.idle) == 0, "nothing is left of a session that has ended"
