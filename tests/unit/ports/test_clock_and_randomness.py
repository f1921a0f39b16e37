import time

import pytest

from distributedlog.model.ids import ZERO_UUID, Uuid
from distributedlog.ports.clock import Clock, SystemClock
from distributedlog.ports.randomness import Randomness, SystemRandomness, uuid_from
from tests.simulation.clock import SeededRandomness


def test_the_wall_clock_is_the_systems_in_milliseconds() -> None:
    clock: Clock = SystemClock()
    before = int(time.time() * 1000)
    now = clock.wall_ms()
    assert before <= now <= int(time.time() * 1000) + 1


def test_the_monotonic_clock_never_goes_back() -> None:
    clock = SystemClock()
    readings = [clock.monotonic_ms() for _ in range(1000)]
    assert readings == sorted(readings)


@pytest.mark.parametrize("randomness", [SystemRandomness(), SeededRandomness(1)], ids=["system", "seeded"])
def test_draws_lie_between_the_bounds_and_reach_both(randomness: Randomness) -> None:
    assert {randomness.between(3, 5) for _ in range(200)} == {3, 4, 5}


@pytest.mark.parametrize("randomness", [SystemRandomness(), SeededRandomness(1)], ids=["system", "seeded"])
def test_new_ids_are_unlike_each_other_and_safe_on_a_command_line(randomness: Randomness) -> None:
    ids = [randomness.new_uuid() for _ in range(500)]
    assert len(set(ids)) == 500
    assert not any(str(new).startswith("-") for new in ids)
    assert all(len(new.bytes16) == 16 for new in ids)


def test_a_seed_repeats_its_draws() -> None:
    one, two, other = SeededRandomness(7), SeededRandomness(7), SeededRandomness(8)
    first = [one.between(0, 10**9) for _ in range(5)] + [one.new_uuid().bytes16[0]]
    assert first == [two.between(0, 10**9) for _ in range(5)] + [two.new_uuid().bytes16[0]]
    assert first[:5] != [other.between(0, 10**9) for _ in range(5)]


def test_ids_that_would_be_zero_or_begin_with_a_dash_are_drawn_again() -> None:
    draws = iter([ZERO_UUID.bytes16, b"\xf8" + bytes(15), b"\x01" * 16])
    assert str(Uuid(b"\xf8" + bytes(15))).startswith("-")
    assert uuid_from(lambda _count: next(draws)) == Uuid(b"\x01" * 16)
