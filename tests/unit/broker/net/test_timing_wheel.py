"""Coarse timers: never too early, hardly late, and free while they are only moved ahead."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.broker.net.timing_wheel import TimingWheel
from distributedlog.ports.clock import SystemClock
from tests.simulation.clock import ManualClock
from tests.unit.broker.server_stage import run

TICK_MS = 10


class Item:
    def __init__(self, *next_ms: int | None) -> None:
        self.due_ms = 0
        self.looked: list[int] = []
        self._next_ms = list(next_ms)

    def look(self, now_ms: int) -> int | None:
        self.looked.append(now_ms)
        return self._next_ms.pop(0) if self._next_ms else None


class Bench:
    """A wheel that is turned by hand.  Its loop never runs."""

    def __init__(self) -> None:
        self.clock = ManualClock(monotonic_ms=1_000)
        self.loop = asyncio.new_event_loop()
        self.wheel: TimingWheel[Item] = TimingWheel(self.loop, self.clock, TICK_MS)

    def turn(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)
        self.wheel.advance(self.clock.monotonic_ms())

    def close(self) -> None:
        self.wheel.close()
        self.loop.close()


def test_an_item_is_looked_at_when_its_time_has_come_and_again_when_it_says() -> None:
    bench = Bench()
    item = Item(1_500)
    bench.wheel.add(item, 1_200)
    bench.turn(199)
    assert item.looked == []
    bench.turn(2 * TICK_MS)
    assert item.looked == [1_219]
    bench.turn(1_000)
    assert len(item.looked) == 2
    assert len(bench.wheel) == 0
    bench.close()


def test_only_an_earlier_time_moves_an_item() -> None:
    bench = Bench()
    item = Item()
    bench.wheel.add(item, 5_000)
    bench.wheel.hurry(item, 9_000)
    assert item.due_ms == 5_000
    bench.wheel.hurry(item, 1_100)
    bench.turn(100 + 2 * TICK_MS)
    assert len(item.looked) == 1
    bench.close()


def test_an_item_that_is_removed_is_looked_at_no_more() -> None:
    bench = Bench()
    gone, stays = Item(), Item()
    bench.wheel.add(gone, 1_100)
    bench.wheel.add(stays, 1_100)
    bench.wheel.remove(gone)
    bench.wheel.remove(gone)
    bench.turn(1_000)
    assert (gone.looked, len(stays.looked)) == ([], 1)
    bench.close()


def test_looking_at_one_may_remove_another_of_the_same_tick() -> None:
    bench = Bench()
    items: list[Item] = []

    class Killer(Item):
        def look(self, now_ms: int) -> int | None:
            for other in items:
                bench.wheel.remove(other)
            return super().look(now_ms)

    items += [Killer(), Killer(), Killer()]
    for item in items:
        bench.wheel.add(item, 1_100)
    bench.turn(1_000)
    assert sum(len(item.looked) for item in items) == 1
    bench.close()


def test_a_time_that_has_passed_is_looked_at_with_the_next_tick() -> None:
    bench = Bench()
    item = Item(0, 0)
    bench.wheel.add(item, 5)
    for _ in range(3):
        bench.turn(2 * TICK_MS)
    assert len(item.looked) == 3
    bench.close()


@given(
    st.lists(st.tuples(st.integers(0, 400), st.one_of(st.none(), st.integers(0, 400))), max_size=20),
    st.lists(st.integers(0, 90), max_size=20),
)
@settings(max_examples=80, deadline=None)
def test_nothing_is_early_and_nothing_more_than_two_ticks_late(
    times: list[tuple[int, int | None]], turns: list[int]
) -> None:
    bench = Bench()
    due: dict[Item, int] = {}
    for due_ms, hurried_ms in times:
        item = Item()
        bench.wheel.add(item, 1_000 + due_ms)
        due[item] = 1_000 + due_ms
        if hurried_ms is not None:
            bench.wheel.hurry(item, 1_000 + hurried_ms)
            due[item] = min(due[item], 1_000 + hurried_ms)
    for duration_ms in turns:
        bench.turn(duration_ms)
        now_ms = bench.clock.monotonic_ms()
        for item, due_ms in due.items():
            if due_ms + 2 * TICK_MS <= now_ms:
                assert len(item.looked) == 1
            assert all(due_ms <= looked_ms for looked_ms in item.looked)
    bench.close()


def test_one_timer_of_the_loop_turns_it_and_only_while_something_is_in_it() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        looked = asyncio.Event()

        class Last(Item):
            def look(self, now_ms: int) -> int | None:
                looked.set()
                return super().look(now_ms)

        clock = SystemClock()
        wheel: TimingWheel[Item] = TimingWheel(loop, clock, 1)
        assert wheel._timer is None
        wheel.add(Item(), clock.monotonic_ms())
        wheel.add(Last(), clock.monotonic_ms() + 20)
        await looked.wait()
        await asyncio.sleep(0)
        assert wheel._timer is None

    run(story())


class Failing(Item):
    def look(self, now_ms: int) -> int | None:
        raise ValueError("it cannot be looked at")


def test_an_item_that_fails_does_not_stop_the_clock_for_the_others() -> None:
    bench = Bench()
    others = [Item() for _ in range(20)]
    for number, item in enumerate([*others[:10], Failing(), *others[10:]]):
        bench.wheel.add(item, 1_000 + number % 3 * TICK_MS)
    with pytest.raises(ValueError, match="cannot"):
        bench.turn(100)
    bench.turn(100)
    assert all(len(item.looked) == 1 for item in others)
    assert len(bench.wheel) == 0
    bench.close()
