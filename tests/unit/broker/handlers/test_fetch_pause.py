"""A follower pauses where nobody waits: it is sent less often, and whoever waits is never held up by that."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.broker.replicas import delayed
from distributedlog.broker.replicas.fetch_sessions import PAUSE_MS
from distributedlog.model.error_codes import ErrorCode
from distributedlog.replication.contract import ACKS_ALL
from distributedlog.replication.partition import Partition
from tests.unit.broker.handlers.test_fetch_idle import (
    BATCH_BYTES,
    CATCHING_UP,
    MUCH,
    NUMBERS,
    OPENING,
    Twin,
    name_of,
)

FOLLOWER, CONSUMER = 0, 1
FETCH = ("fetch", FOLLOWER, 300, MUCH)
FIRST, SECOND, _ = NUMBERS


class PausingTwin(Twin):
    """A leader, its follower and a consumer; and whoever else waits until something is committed."""

    def __init__(self) -> None:
        super().__init__(rests=True)
        self._numbers = count()
        self.waiting: dict[int, tuple[int, int]] = {}
        """The partition, and the end that is to be committed, of each waiter."""

    @property
    def follower(self) -> Any:
        return self.readers[FOLLOWER]

    def partition(self, number: int) -> Partition:
        return self.broker.stage[name_of(number)]

    def do_wait(self, number: int) -> None:
        """Somebody waits for what others have appended."""
        partition, waiter = self.partition(number), next(self._numbers)
        self.waiting[waiter] = number, partition.log_end_offset

        def done(_: list[ErrorCode]) -> None:
            del self.waiting[waiter]

        awaited = [(partition, partition.log_end_offset)]
        self.broker.services.purgatory.add_produce(awaited, 60_000, done)

    def do_await(self, number: int) -> None:
        self.do_produce(number, ACKS_ALL)
        self.do_wait(number)

    def count_fetch_held_up(self) -> int:
        """Returns for how many waiters the follower lacks something that its delayed fetch could bring."""
        ends = list(self.waiting.values())
        if self.readers[CONSUMER].pending:
            ends += [(number, self.partition(number).log_end_offset) for number in NUMBERS]
        if not self.follower.pending:
            return 0
        return sum(
            self.partition(number).high_watermark < end and self.follower.offsets[number] < end
            for number, end in ends
        )


@contextmanager
def caught_up() -> Iterator[PausingTwin]:
    """Yields a leader whose follower has read all, pauses, and has a fetch delayed."""
    twin = PausingTwin()
    try:
        for step in (*OPENING, *CATCHING_UP, *CATCHING_UP, ("pass", 400), ("produce", FIRST, 1)):
            twin.do(step)
        twin.do(FETCH)
        twin.do(FETCH)
        assert len(twin.follower.pending) == 1
        twin.follower.heard.clear()
        yield twin
    finally:
        twin.close()


def sent_bytes(twin: PausingTwin) -> list[int]:
    return [sum(part[-1] for part in parts) for _, _, parts in twin.follower.heard]


def test_what_nobody_waits_for_is_sent_together_after_the_pause() -> None:
    with caught_up() as twin:
        for number in (FIRST, FIRST, SECOND):
            twin.do(("produce", number, 1))
            twin.do(("pass", 1))
        assert sent_bytes(twin) == []
        twin.do(("pass", PAUSE_MS + delayed.BUCKET_MS))
        assert sent_bytes(twin) == [3 * BATCH_BYTES]


def test_the_first_append_after_a_pause_is_sent_at_once() -> None:
    with caught_up() as twin:
        twin.do(("pass", PAUSE_MS))
        twin.do(("produce", FIRST, 1))
        assert sent_bytes(twin) == [BATCH_BYTES]


@pytest.mark.parametrize(
    "step",
    [("await", FIRST), ("await", SECOND), ("wait", FIRST), ("fetch", CONSUMER, 300, MUCH)],
    ids=["acks=all", "acks=all elsewhere", "waits for what came before", "a consumer waits"],
)
def test_whoever_begins_to_wait_ends_the_pause(step: tuple[Any, ...]) -> None:
    with caught_up() as twin:
        twin.do(("produce", FIRST, 1))
        assert sent_bytes(twin) == []
        twin.do(step)
        assert sent_bytes(twin) == [BATCH_BYTES * (1 + (step[0] == "await"))]


def test_the_news_of_a_commit_goes_with_the_next_records_or_after_the_pause() -> None:
    """The fetch that the next records are sent with is not ended by it."""
    with caught_up() as twin:
        for step in (("await", FIRST), FETCH, ("settle",)):
            twin.do(step)
        assert twin.waiting == {}, "the follower has stored it"
        assert sent_bytes(twin) == [BATCH_BYTES], "and still waits with its next fetch"
        twin.do(("await", FIRST))
        assert sent_bytes(twin) == [BATCH_BYTES] * 2
        for step in (FETCH, ("settle",), ("pass", PAUSE_MS + delayed.BUCKET_MS)):
            twin.do(step)
        assert sent_bytes(twin) == [BATCH_BYTES, BATCH_BYTES, 0]


def test_much_is_sent_whether_the_follower_pauses_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed, "PAUSE_BYTES_MAX", 3 * BATCH_BYTES)
    with caught_up() as twin:
        for _ in range(4):
            assert sent_bytes(twin) == []
            twin.do(("produce", FIRST, 1))
        assert sent_bytes(twin) == [4 * BATCH_BYTES]


def test_a_fetch_that_is_overtaken_leaves_what_it_paused_with_to_the_next() -> None:
    with caught_up() as twin:
        twin.do(("produce", FIRST, 1))
        twin.do(FETCH)
        assert sent_bytes(twin) == [0], "the next one pauses with it"
        twin.do(("pass", PAUSE_MS + delayed.BUCKET_MS))
        assert sent_bytes(twin) == [0, BATCH_BYTES]


def test_a_deletion_does_not_pause() -> None:
    with caught_up() as twin:
        twin.do(("settle",))
        while twin.partition(FIRST).high_watermark < 2:
            twin.do(("pass", PAUSE_MS))
            twin.do(FETCH)
        twin.do(("produce", FIRST, 1))
        while not twin.follower.pending:
            twin.do(FETCH)
        twin.follower.heard.clear()
        twin.do(("produce", FIRST, 1))
        assert sent_bytes(twin) == []
        twin.do(("delete", FIRST, 1))
        assert sent_bytes(twin) == [BATCH_BYTES]


STEPS = st.one_of(
    st.just(FETCH),
    st.just(FETCH),
    st.tuples(st.just("produce"), st.sampled_from(NUMBERS), st.just(1)),
    st.tuples(st.just("produce"), st.sampled_from(NUMBERS), st.just(1)),
    st.tuples(st.just("await"), st.sampled_from(NUMBERS)),
    st.tuples(st.just("wait"), st.sampled_from(NUMBERS)),
    st.just(("fetch", CONSUMER, 300, MUCH)),
    st.tuples(st.just("pass"), st.sampled_from((1, PAUSE_MS, 40))),
    st.just(("settle",)),
)


@settings(max_examples=int(os.environ.get("DLOG_SOAK", "0")) * 2000 or 60, deadline=None)
@given(st.lists(STEPS, min_size=5, max_size=40))
def test_nobody_who_waits_is_held_up_by_a_pause(steps: list[tuple[Any, ...]]) -> None:
    with caught_up() as twin:
        for number, step in enumerate(steps):
            twin.do(step)
            assert twin.count_fetch_held_up() == 0, (number, step)
