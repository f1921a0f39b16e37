"""Turns of the loop: every address is heard in each, and nobody is forgotten."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.broker.net.turns import SLICE_MS, Turns, name_turns
from tests.unit.broker.server_stage import HurriedClock, run


class Flood:
    """A connection with requests of a certain length, all of which are here."""

    def __init__(
        self, host: str, requests: int, each_ms: int, turns: "Turns[Flood]", clock: HurriedClock
    ) -> None:
        self.turn_name = host
        self.left = requests
        self.begun: list[str] = []
        self._each_ms = each_ms
        self._turns = turns
        self._clock = clock

    def take_turn(self) -> None:
        while self.left and self._turns.try_begin(self.turn_name, self._clock.monotonic_ms()):
            self.left -= 1
            self.begun.append(self.turn_name)
            self._clock.ahead_ms += self._each_ms
        if self.left:
            self._turns.defer(self)


async def until_done(floods: list[Flood]) -> None:
    while any(flood.left for flood in floods):
        await asyncio.sleep(0)


def test_an_address_with_a_hundred_connections_gets_no_more_turns_than_one_with_one() -> None:
    async def story() -> None:
        clock = HurriedClock()
        turns: Turns[Flood] = Turns(asyncio.get_running_loop(), clock)
        begun: list[str] = []
        many = [Flood("many", 5, 100, turns, clock) for _ in range(100)]
        single = Flood("single", 5, 100, turns, clock)
        for flood in [*many, single]:
            flood.begun = begun
            flood.take_turn()
        await until_done([*many, single])
        assert len(begun) == 505
        last = max(at for at, host in enumerate(begun) if host == "single")
        assert begun[: last + 1].count("many") <= 2 * 5 + 1

    run(story())


def test_a_follower_beside_many_clients_of_its_address_has_turns_of_its_own() -> None:
    async def story() -> None:
        clock = HurriedClock()
        turns: Turns[Flood] = Turns(asyncio.get_running_loop(), clock)
        begun: list[str] = []
        clients = [Flood(name_turns("here", None), 5, 100, turns, clock) for _ in range(100)]
        follower = Flood(name_turns("here", 2), 50, 100, turns, clock)
        for flood in [*clients, follower]:
            flood.begun = begun
            flood.take_turn()
        await until_done([*clients, follower])
        assert begun.count("here") == 500
        mine = [at for at, name in enumerate(begun) if name == follower.turn_name]
        assert max(mine) <= 2 * len(mine) + 1, "it waits for one request of the others each time"
        assert mine[9] >= 10, "nor do the others wait for more than one of it"

    run(story())


def test_short_requests_share_a_slice() -> None:
    async def story() -> None:
        clock = HurriedClock()
        turns: Turns[Flood] = Turns(asyncio.get_running_loop(), clock)
        flood = Flood("one", 1_000, 0, turns, clock)
        clock.monotonic_ms = lambda: 7 + clock.ahead_ms  # type: ignore[method-assign]
        flood.take_turn()
        assert flood.left == 0, "no time has passed: nobody waits for a turn"
        longer = Flood("one", 2 * SLICE_MS, 1, turns, clock)
        longer.take_turn()
        assert longer.left == SLICE_MS
        await until_done([longer])

    run(story())


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 6), st.sampled_from((0, 1, 5, 50))), max_size=12
    )
)
def test_whatever_is_deferred_is_begun_in_the_end(floods: list[tuple[str, int, int]]) -> None:
    async def story() -> None:
        clock = HurriedClock()
        turns: Turns[Flood] = Turns(asyncio.get_running_loop(), clock)
        takers = [Flood(*flood, turns, clock) for flood in floods]
        for taker in takers:
            taker.take_turn()
        await until_done(takers)

    run(story())
