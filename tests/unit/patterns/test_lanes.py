"""Lanes against a plain list: order per key, room, times, and what may be committed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from distributedlog import ConsumerRecord, TopicPartition
from distributedlog.model.errors import ConfigError
from distributedlog.patterns.lanes import Lanes, Ticket

CONCURRENCY = 3
KEYS = [b"a", b"b", b"c", None]


def record(offset: int, key: bytes | None = None, partition: int = 0) -> ConsumerRecord:
    return ConsumerRecord("t", partition, offset, 0, key, b"")


class AnyOrder(RuleBasedStateMachine):
    """Records come, begin and end in any order; partitions go and come back."""

    def __init__(self) -> None:
        super().__init__()
        self.lanes = Lanes(CONCURRENCY)
        self.now_ms = 0
        self.next_offset = {0: 0, 1: 0}
        self.open: dict[int, list[int]] = {0: [], 1: []}
        """The offsets that are not done, of each partition since it was assigned last."""
        self.begun: list[Ticket] = []
        self.live: list[Ticket] = []
        self.waiting: list[tuple[ConsumerRecord, int]] = []

    @rule(
        key=st.sampled_from(KEYS), partition=st.integers(0, 1), gap=st.integers(0, 2), delay=st.integers(0, 5)
    )
    def add(self, key: bytes | None, partition: int, gap: int, delay: int) -> None:
        offset = self.next_offset[partition] + gap
        self.next_offset[partition] = offset + 1
        made = record(offset, key, partition)
        self.lanes.add(made, self.now_ms + delay)
        self.open[partition].append(offset)
        self.waiting.append((made, self.now_ms + delay))

    @rule(step=st.integers(0, 6))
    def start(self, step: int) -> None:
        self.now_ms += step
        for ticket in self.lanes.start(self.now_ms):
            found = ticket.record
            assert ticket.ready_ms <= self.now_ms
            if found.key is not None:
                lane = (found.partition, found.key)
                assert all((each.record.partition, each.record.key) != lane for each in self.begun)
                first = next(each for each, _ in self.waiting if (each.partition, each.key) == lane)
                assert first == found, "in the order of the key"
            self.waiting.remove((found, ticket.ready_ms))
            self.begun.append(ticket)
            self.live.append(ticket)
        assert len(self.begun) <= CONCURRENCY
        if len(self.begun) < CONCURRENCY:
            busy = {(each.record.partition, each.record.key) for each in self.begun}
            for each, ready_ms in self.waiting:
                is_first = each.key is None or not any(
                    (other.partition, other.key) == (each.partition, each.key) and other.offset < each.offset
                    for other, _ in self.waiting
                )
                is_busy = each.key is not None and (each.partition, each.key) in busy
                assert not is_first or is_busy or ready_ms > self.now_ms, "whoever may begin has begun"

    @precondition(lambda self: self.begun)
    @rule(at=st.integers(0, CONCURRENCY))
    def finish(self, at: int) -> None:
        ticket = self.begun.pop(at % len(self.begun))
        self.lanes.finish(ticket)
        if ticket in self.live:
            self.live.remove(ticket)
            self.open[ticket.record.partition].remove(ticket.record.offset)

    @rule(partition=st.integers(0, 1), forgets=st.booleans())
    def give_up(self, partition: int, forgets: bool) -> None:
        """The partition goes; it comes back from the first offset that is not done."""
        place = TopicPartition("t", partition)
        (self.lanes.drop if forgets else self.lanes.retire)([place])
        self.waiting = [each for each in self.waiting if each[0].partition != partition]
        if not forgets:
            under_way = [each.record.offset for each in self.live if each.record.partition == partition]
            assert self.lanes.under_way_of([place]) == len(under_way)
            self.lanes.drop([place])
        self.live = [each for each in self.live if each.record.partition != partition]
        if self.open[partition]:
            self.next_offset[partition] = self.open[partition][0]
        self.open[partition] = []

    @invariant()
    def nothing_is_committed_that_is_not_done(self) -> None:
        for place, safe in self.lanes.safe_offsets().items():
            still_open = self.open[place.partition]
            assert not still_open or safe <= still_open[0]

    @invariant()
    def what_is_in_hand_is_counted(self) -> None:
        assert self.lanes.in_hand == len(self.waiting) + len(self.begun)
        assert self.lanes.under_way == len(self.begun)


TestAnyOrder = AnyOrder.TestCase


@given(st.lists(st.sampled_from(KEYS), min_size=1, max_size=40), st.integers(1, 5), st.randoms())
def test_everything_is_handled_and_then_all_may_be_committed(
    keys: list[bytes | None], concurrency: int, chance: object
) -> None:
    lanes = Lanes(concurrency)
    for offset, key in enumerate(keys):
        lanes.add(record(offset, key))
    seen: list[ConsumerRecord] = []
    begun = list(lanes.start(0))
    while begun:
        ticket = begun.pop(chance.randrange(len(begun)))  # type: ignore[attr-defined]
        seen.append(ticket.record)
        lanes.finish(ticket)
        begun += lanes.start(0)
    assert sorted(each.offset for each in seen) == list(range(len(keys)))
    for key in KEYS[:-1]:
        offsets = [each.offset for each in seen if each.key == key]
        assert offsets == sorted(offsets)
    assert lanes.safe_offsets() == {TopicPartition("t", 0): len(keys)}


def test_by_partition_one_record_follows_the_other() -> None:
    lanes = Lanes(9, "partition")
    for offset in range(3):
        lanes.add(record(offset, b"%d" % offset))
        lanes.add(record(offset, b"%d" % offset, partition=1))
    first, other = lanes.start(0)
    assert (first.record.offset, other.record.offset) == (0, 0)
    lanes.finish(first)
    assert [each.record.offset for each in lanes.start(0)] == [1]


def test_a_record_that_is_not_due_holds_its_partition_and_tells_when() -> None:
    lanes = Lanes(2)
    lanes.add(record(0, b"k"), ready_ms=100)
    assert list(lanes.start(99)) == []
    assert lanes.next_ready_ms == 100
    assert lanes.unready(99) == {TopicPartition("t", 0)}
    assert lanes.unready(100) == set()
    assert len(list(lanes.start(100))) == 1
    assert lanes.next_ready_ms is None


def test_wrong_settings_are_told() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        Lanes(0)
    with pytest.raises(ConfigError, match="key or partition"):
        Lanes(1, "chance")  # type: ignore[arg-type]
