"""Several batches of a partition under way, in lock-step with a leader that checks sequences as Kafka does.

Requests are answered in any order, lost before or after they were appended, delivered twice, refused by a
leader that moved, before it appended them or after, refused for good, or given up.  Whatever happens, what
was acknowledged is there once, in order; what was refused for good is not there; what was given up is there
once at most.  A leader that does not know the producer takes any sequence, as Kafka's do.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distributedlog.client.accumulator import Accumulator, Batch, Identity
from distributedlog.model.ids import TopicPartition
from distributedlog.records.batch import read_header
from distributedlog.records.record import Record, decode_batch

HERE = TopicPartition("t", 0)
REMEMBERED = 5
UNKNOWN = -1

Answer = Literal["ok", "out of order", "old epoch"]
Outcome = Literal[
    "answered", "lost before", "lost after", "not leader", "leader no more", "refused", "given up", "twice"
]  # fmt: skip


@dataclass
class Partition:
    """A leader's log, and what it knows of the one producer."""

    log: list[bytes] = field(default_factory=list)
    epoch: int = UNKNOWN
    next_sequence: int = 0
    last: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def append(self, encoded: bytes) -> Answer:
        header = read_header(encoded)
        if header.producer_epoch < self.epoch:
            return "old epoch"
        if header.producer_epoch > self.epoch:
            if header.base_sequence != 0 and self.epoch != UNKNOWN:
                return "out of order"
            self.epoch, self.next_sequence = header.producer_epoch, header.base_sequence
            self.last.clear()
        if (header.base_sequence, header.last_sequence) in self.last:
            return "ok"
        if header.base_sequence != self.next_sequence:
            return "out of order"
        self.log += [record.value or b"" for record in decode_batch(encoded)]
        self.next_sequence = header.last_sequence + 1
        self.last.append((header.base_sequence, header.last_sequence))
        return "ok"


@dataclass
class World:
    into: Accumulator = field(
        default_factory=lambda: Accumulator(
            batch_bytes_max=200,
            linger_ms=0,
            request_bytes_max=1000,
            identity=Identity(1, 0),
            in_flight_max=REMEMBERED,
        )
    )
    there: Partition = field(default_factory=Partition)
    under_way: list[Batch] = field(default_factory=list)
    late: list[tuple[Batch, bytes]] = field(default_factory=list)
    """Requests that the producer believes to be lost, and that arrive after all."""
    sent: int = 0
    acknowledged: list[bytes] = field(default_factory=list)
    refused: list[bytes] = field(default_factory=list)
    most: int = 0

    def send(self, size: int) -> None:
        self.into.add(HERE, Record(b"%04d" % self.sent + b"x" * size), 0, 0)
        self.sent += 1

    def introduce(self) -> None:
        """Has the leader know the producer: from then on several may be under way."""
        self.send(0)
        self.take()
        self.answer(0, "answered")

    def take(self) -> None:
        while ready := self.into.ready(0, flushing=True):
            self.under_way += self.into.take(ready)
        self.most = max(self.most, len(self.under_way))
        assert len(self.under_way) <= REMEMBERED

    def answer(self, at: int, outcome: Outcome) -> None:
        batch = self.under_way.pop(at % len(self.under_way))
        assert batch.encoded is not None
        encoded = bytes(batch.encoded)
        if outcome in ("not leader", "leader no more"):
            if outcome == "leader no more":
                self.there.append(encoded)
            self.into.retry(batch, 0)
        elif outcome in ("lost before", "lost after"):
            batch.is_doubtful = True
            if outcome == "lost after":
                self.there.append(encoded)
            else:
                self.late.append((batch, encoded))
            self.into.retry(batch, 0)
        elif outcome == "refused":
            if not batch.is_doubtful and batch.attempts == 1:
                self.refused += _values(batch)
            self.end(batch)
        elif outcome == "given up":
            batch.is_doubtful = True
            self.end(batch)
        else:
            answer = self.there.append(encoded)
            if outcome == "twice":
                assert self.there.append(encoded) == answer
            self.judge(batch, answer)

    def judge(self, batch: Batch, answer: Answer) -> None:
        if answer == "ok":
            self.into.succeed(batch)
            self.acknowledged += _values(batch)
            self.forget(batch)
        elif self.into.is_after_others(batch):
            self.into.retry(batch, 0)
        else:
            self.forget(batch)
            if self.into.rewrite(batch, 0):
                self.next_epoch()

    def end(self, batch: Batch) -> None:
        self.forget(batch)
        if self.into.fail(batch):
            self.next_epoch()

    def forget(self, batch: Batch) -> None:
        """Copies of what has ended, or has other sequences by now, do not arrive any more."""
        self.late = [each for each in self.late if each[0] is not batch]

    def next_epoch(self) -> None:
        self.into.change_identity(Identity(1, self.into.identity.epoch + 1))

    def arrive(self, at: int) -> None:
        if self.late:
            self.there.append(self.late.pop(at % len(self.late))[1])


def _values(batch: Batch) -> list[bytes]:
    assert batch.encoded is not None
    return [record.value or b"" for record in decode_batch(batch.encoded)]


OUTCOMES: list[Outcome] = [
    "answered", "answered", "answered", "lost before", "lost after", "not leader",
    "leader no more", "refused", "given up", "twice",
]  # fmt: skip
STEP = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 150), st.just("answered")),
    st.tuples(st.just("take"), st.just(0), st.just("answered")),
    st.tuples(st.just("answer"), st.integers(0, 4), st.sampled_from(OUTCOMES)),
    st.tuples(st.just("arrive"), st.integers(0, 4), st.just("answered")),
)


SEND: tuple[str, int, Outcome] = ("send", 0, "answered")
TAKE: tuple[str, int, Outcome] = ("take", 0, "answered")
OVERTAKEN: list[tuple[str, int, Outcome]] = [
    SEND, TAKE, *[SEND] * 7, ("answer", 0, "answered"), TAKE, SEND, ("answer", 0, "refused"),
]  # fmt: skip
"""The last batch was sent beside one that was sent again in an earlier epoch, and refused."""


@settings(max_examples=300, deadline=None)
@given(st.lists(STEP, max_size=120))
@example(OVERTAKEN)
def test_what_is_acknowledged_is_there_once_and_in_order(steps: list[tuple[str, int, Outcome]]) -> None:
    world = World()
    for step, number, outcome in steps:
        if step == "send":
            world.send(number)
        elif step == "take":
            world.take()
        elif step == "arrive":
            world.arrive(number)
        elif world.under_way:
            world.answer(number, outcome)
    rounds = 0
    while not world.into.is_empty:
        world.take()
        while world.under_way:
            world.answer(0, "answered")
        rounds += 1
        assert rounds < 1000, "it goes round and round"
    log = world.there.log
    assert len(log) == len(set(log)), "something is there twice"
    assert log == sorted(log), "something is out of order"
    assert set(world.acknowledged) <= set(log), "something acknowledged is not there"
    assert not set(world.refused) & set(log)
    assert world.into.buffered_bytes == 0


def test_five_are_under_way_at_once_and_none_behind_one_that_came_back() -> None:
    world = World()
    world.introduce()
    for _ in range(9):
        world.send(150)
    world.take()
    assert world.most == REMEMBERED
    world.answer(0, "not leader")
    world.take()
    assert len(world.under_way) == 4
    for _ in range(4):
        world.answer(0, "answered")  # out of order, all of them
    world.take()
    assert len(world.under_way) == 1
    assert world.under_way[0].base_sequence == 1
    for _ in range(5):
        world.answer(0, "answered")
        world.take()
    assert len(world.acknowledged) == 6
    assert world.into.identity.epoch == 0
    assert len(world.under_way) == 4


def test_after_a_sure_failure_those_behind_it_are_written_under_another_epoch() -> None:
    world = World()
    world.introduce()
    for _ in range(3):
        world.send(150)
    world.take()
    world.answer(0, "refused")
    while not world.into.is_empty:
        world.take()
        world.answer(0, "answered")
    assert [each[:4] for each in world.there.log] == [b"0000", b"0002", b"0003"]
    assert (world.there.epoch, world.there.next_sequence) == (1, 2)


def test_what_was_given_up_and_is_there_all_the_same_takes_no_place_of_another() -> None:
    world = World()
    world.send(0)
    world.take()
    world.answer(0, "lost after")
    world.take()
    world.answer(0, "given up")
    world.send(0)
    world.take()
    world.answer(0, "answered")
    assert world.there.log == [b"0000", b"0001"]


def test_the_first_batch_of_a_producer_is_not_overtaken_where_a_leader_does_not_know_it() -> None:
    world = World()
    for _ in range(3):
        world.send(150)
    world.take()
    assert len(world.under_way) == 1
    world.answer(0, "not leader")
    while not world.into.is_empty:
        world.take()
        world.answer(0, "answered")
    assert [each[:4] for each in world.there.log] == [b"0000", b"0001", b"0002"]


def test_what_a_leader_appended_before_it_was_one_no_more_takes_no_place_of_another() -> None:
    world = World()
    world.send(0)
    world.take()
    world.answer(0, "leader no more")
    world.take()
    world.answer(0, "refused")
    world.send(0)
    world.take()
    world.answer(0, "answered")
    assert world.there.log == [b"0000", b"0001"]


def test_a_partition_begins_an_epoch_when_nothing_of_the_last_one_is_under_way() -> None:
    world = World()
    world.introduce()
    world.send(150)
    world.take()
    world.next_epoch()
    world.send(150)
    world.take()
    assert len(world.under_way) == 1
    world.answer(0, "answered")
    world.take()
    (batch,) = world.under_way
    assert (batch.identity.epoch, batch.base_sequence) == (1, 0)


def test_without_an_identity_one_is_under_way() -> None:
    world = World()
    world.into.change_identity(Accumulator(batch_bytes_max=1, linger_ms=0, request_bytes_max=1).identity)
    for _ in range(3):
        world.send(150)
    world.take()
    assert len(world.under_way) == 1


@pytest.mark.parametrize("broken", ["sequences", "order"])
def test_the_partition_of_these_tests_would_notice(broken: str) -> None:
    world = World()
    world.introduce()
    for _ in range(3):
        world.send(150)
    world.take()
    if broken == "sequences":
        encoded = bytes(world.under_way[1].encoded or b"")
        assert world.there.append(encoded) == "out of order"
    else:
        world.answer(0, "answered")
        world.answer(0, "lost after")
        world.there.log.append(world.there.log[-1])
        assert len(world.there.log) != len(set(world.there.log))
