"""Batches that a leader finds too large, with others under way behind them: halves stand where the whole did.

The same leader as in `test_in_flight`, which checks sequences as Kafka does, but takes only so many records
at a time.  A producer that writes under a lease, or in a transaction, has one epoch and no other: nothing of
it may be rewritten.
"""

import asyncio
from dataclasses import dataclass, field
from typing import cast

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distributedlog.client.accumulator import Accumulator, Batch, Identity
from distributedlog.client.reports import BatchEnd, BatchReport
from distributedlog.model.errors import DlogError
from distributedlog.records.arrow_write import cut_rows
from distributedlog.records.batch import read_header
from distributedlog.records.layout import INT32_MAX
from distributedlog.records.record import Record
from tests.unit.client.test_in_flight import HERE, OUTCOMES, Answer, Outcome, Partition, World

LOSSLESS: list[Outcome] = ["answered", "answered", "not leader", "twice"]


@dataclass
class SmallPartition(Partition):
    records_max: int = 2

    def takes(self, encoded: bytes | bytearray) -> bool:
        return read_header(encoded).record_count <= self.records_max

    def append(self, encoded: bytes) -> Answer:
        """What is too large is told in `SplittingWorld.answer`; here are requests whose answers are lost."""
        return super().append(encoded) if self.takes(encoded) else "out of order"


@dataclass
class SplittingWorld(World):
    small: SmallPartition = field(default_factory=SmallPartition)
    must_keep_epoch: bool = False
    is_of_rows: bool = True
    """Whether batches are sent as rows that were cut, or as records."""

    def __post_init__(self) -> None:
        self.there = self.small

    def send(self, size: int) -> None:
        """Sends a batch of so many records, at least one."""
        values = [b"%04d" % number for number in range(self.sent, self.sent + max(1, size))]
        self.sent += len(values)
        if not self.is_of_rows:
            self.into.add_batch(HERE, [Record(each, timestamp_ms=1) for each in values], 0)
            return
        (cut,) = cut_rows(pa.record_batch({"value": pa.array(values, pa.binary())}), batch_bytes_max=10_000)
        self.into.add_cut(HERE, cut, 0)

    def answer(self, at: int, outcome: Outcome) -> None:
        batch = self.under_way[at % len(self.under_way)]
        assert batch.encoded is not None
        if outcome in ("answered", "twice") and not self.small.takes(batch.encoded):
            self.under_way.remove(batch)
            self.forget(batch)
            if not self.into.split(batch, 0):
                self.end(batch)
        else:
            super().answer(at, outcome)

    def judge(self, batch: Batch, answer: Answer) -> None:
        rewritten = answer != "ok" and not self.into.is_after_others(batch)
        assert not (rewritten and self.must_keep_epoch), "its sequences were changed"
        super().judge(batch, answer)

    def finish(self) -> None:
        rounds = 0
        while not self.into.is_empty:
            self.take()
            while self.under_way:
                self.answer(0, "answered")
            rounds += 1
            assert rounds < 1000, "it goes round and round"


STEP = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 9)),
    st.tuples(st.just("take"), st.just(0)),
    st.tuples(st.sampled_from(OUTCOMES), st.integers(0, 4)),
)
Steps = list[tuple[str, int]]
FOLLOWED: Steps = [
    ("send", 1),
    ("take", 0),
    ("answered", 0),
    ("send", 5),
    ("send", 2),
    ("send", 3),
    ("take", 0),
]
"""Two of three that are under way are too large."""


def _play(world: SplittingWorld, steps: Steps) -> None:
    for step, number in steps:
        if step == "send":
            world.send(number)
        elif step == "take":
            world.take()
        elif world.under_way:
            world.answer(number, cast("Outcome", step))
    world.finish()


def _lossless(steps: Steps) -> Steps:
    return [each for each in steps if each[0] in ("send", "take", *LOSSLESS)]


@settings(max_examples=200, deadline=None)
@given(st.lists(STEP, max_size=80).map(_lossless), st.integers(1, 4), st.booleans())
@example(FOLLOWED, 1, True)
@example([*FOLLOWED, ("answered", 2), ("answered", 1), ("answered", 0)], 2, False)
def test_of_a_producer_that_keeps_its_epoch_everything_is_written_under_its_first_sequences(
    steps: Steps, records_max: int, is_of_rows: bool
) -> None:
    small = SmallPartition(records_max=records_max)
    world = SplittingWorld(small=small, must_keep_epoch=True, is_of_rows=is_of_rows)
    _play(world, steps)
    assert world.there.log == sorted(world.acknowledged) == [b"%04d" % each for each in range(world.sent)]
    assert (world.into.identity.epoch, world.into.buffered_bytes) == (0, 0)


@settings(max_examples=200, deadline=None)
@given(st.lists(STEP, max_size=80), st.integers(1, 4), st.booleans())
def test_whatever_happens_nothing_is_there_twice_or_out_of_order(
    steps: Steps, records_max: int, is_of_rows: bool
) -> None:
    world = SplittingWorld(small=SmallPartition(records_max=records_max), is_of_rows=is_of_rows)
    _play(world, steps)
    log = world.there.log
    assert log == sorted(set(log))
    assert set(world.acknowledged) <= set(log)
    assert not set(world.refused) & set(log)
    assert world.into.buffered_bytes == 0


def test_halves_have_the_sequences_of_the_whole_also_where_they_wrap() -> None:
    world = SplittingWorld()
    world.introduce()
    (queue,) = world.into._queues.values()
    queue.next_sequence = INT32_MAX - 1
    for count in (5, 1):
        world.send(count)
    world.take()
    whole, follower = world.under_way
    assert (whole.base_sequence, follower.base_sequence) == (INT32_MAX - 1, 3)
    assert world.into.split(whole, 0)
    world.into.retry(follower, 0)
    taken = []
    while not world.into.is_empty:
        (batch,) = world.into.take([HERE])
        assert batch.encoded is not None
        taken.append((read_header(batch.encoded).base_sequence, batch.record_count, batch.identity.epoch))
        world.into.succeed(batch)
    assert taken == [(INT32_MAX - 1, 2, 0), (0, 3, 0), (3, 1, 0)]


def test_halves_stay_in_the_transaction_of_the_whole() -> None:
    world = SplittingWorld()
    world.into.take_lease(Identity(1, 0))
    world.introduce()
    world.send(4)
    world.take()
    world.answer(0, "answered")
    world.take()
    (half,) = world.under_way
    assert half.encoded is not None
    assert (half.record_count, read_header(half.encoded).is_transactional) == (2, True)


def test_the_sequences_of_a_half_that_failed_for_sure_are_free_again_where_none_follows() -> None:
    world = SplittingWorld()
    world.introduce()
    world.send(4)
    world.take()
    world.answer(0, "answered")
    world.take()
    world.answer(0, "answered")
    world.take()
    world.answer(0, "refused")
    world.send(1)
    world.finish()
    assert world.there.log == [b"0000", b"0001", b"0002", b"0005"]
    assert (world.there.epoch, world.there.next_sequence) == (0, 4)


def test_a_record_that_alone_is_too_large_fails_and_those_behind_it_have_another_epoch() -> None:
    world = SplittingWorld()
    world.introduce()
    world.small.records_max = 0
    world.send(2)
    world.take()
    world.answer(0, "answered")
    world.take()
    world.answer(0, "answered")
    assert world.into.identity.epoch == 1
    world.small.records_max = 1
    world.finish()
    assert world.there.log == [b"0000", b"0002"]
    assert (world.there.epoch, world.there.next_sequence) == (1, 1)


def test_no_record_joins_a_half() -> None:
    world = SplittingWorld(is_of_rows=False)
    world.introduce()
    world.send(4)
    world.take()
    world.answer(0, "answered")
    batch, index = world.into.add(HERE, Record(b"new", timestamp_ms=1), 0, 0)
    assert (index, batch.record_count, batch.whole_count) == (0, 1, None)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 40), st.data())
def test_the_halves_of_a_batch_tell_of_each_record_what_became_of_it(count: int, data: st.DataObject) -> None:
    """Parts are split again, and end in any order."""

    async def story() -> None:
        into = Accumulator(batch_bytes_max=10_000, linger_ms=0, request_bytes_max=10_000)
        whole = into.add_batch(HERE, [Record(b"%d" % each, timestamp_ms=1) for each in range(count)], 0)
        whole.token = end = BatchEnd()
        parts = [whole]
        expected: dict[int, int | None] = {}
        while parts:
            part = parts.pop(data.draw(st.integers(0, len(parts) - 1)))
            if part.record_count > 1 and data.draw(st.booleans()):
                halves = part.halves(0)
                assert [each for half in halves for each in half.records] == part.records
                parts += halves
                continue
            assert not end.reported.done()
            error = data.draw(st.sampled_from([None, DlogError("no")]))
            base_offset = -1 if error is not None else 100 + 2 * part.first_index
            for at, record in enumerate(part.records):
                expected[int(record.value or b"")] = None if error is not None else base_offset + at
            report = BatchReport(HERE, part.record_count, base_offset, error=error)
            cast(BatchEnd, part.token).take(report, part.first_index, part.whole_count)
        found = end.reported.result()
        assert (found.record_count, found.error is None) == (count, None not in expected.values())
        for index in range(count):
            if expected[index] is None:
                with pytest.raises(DlogError):
                    found.offset_of(index)
            else:
                assert found.offset_of(index) == expected[index]

    asyncio.run(story())
