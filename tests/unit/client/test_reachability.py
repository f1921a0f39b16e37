"""A broker that could not be reached: not tried while its breaker is open, and tried again when it is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.client.addresses import ADDRESSES_MAX, Address
from distributedlog.client.options import ClientOptions
from distributedlog.client.reachability import Reachability, all_failed
from distributedlog.model.errors import BrokerAvoidedError, BrokerUnreachableError

OPTIONS = ClientOptions(reconnect_pause_ms=50, reconnect_pause_ms_max=1000)
HERE, THERE = Address("a", 1), Address("b", 1)
REFUSED = BrokerUnreachableError("a:1 cannot be reached: Connection refused")


def middle(low: int, high: int) -> int:
    return (low + high) // 2


def again_in(breakers: Reachability, address: Address, now_ms: int) -> int:
    """0: it may be tried."""
    try:
        breakers.check(address, now_ms)
    except BrokerAvoidedError as error:
        return error.again_in_ms
    return 0


def test_each_failure_doubles_the_pause_and_a_success_ends_it() -> None:
    breakers, now_ms, pauses = Reachability(OPTIONS, middle), 7, []
    for _ in range(7):
        assert again_in(breakers, HERE, now_ms) == 0
        breakers.failed(HERE, REFUSED, now_ms)
        pauses.append(again_in(breakers, HERE, now_ms))
        assert again_in(breakers, HERE, now_ms + pauses[-1] - 1) == 1
        assert again_in(breakers, THERE, now_ms) == 0
        now_ms += pauses[-1]
    assert pauses == [50, 100, 200, 400, 800, 1000, 1000]
    breakers.succeeded(HERE)
    breakers.failed(HERE, REFUSED, now_ms)
    assert again_in(breakers, HERE, now_ms) == 50


def test_who_is_turned_away_is_told_why_and_until_when() -> None:
    breakers = Reachability(OPTIONS, middle)
    breakers.failed(HERE, REFUSED, 0)
    with pytest.raises(BrokerAvoidedError, match=r"Connection refused; it is tried again in 30 ms"):
        breakers.check(HERE, 20)


@given(
    st.lists(st.tuples(st.sampled_from([HERE, THERE]), st.booleans(), st.integers(0, 3000)), max_size=60),
    st.randoms(use_true_random=False),
)
def test_tries_of_a_dead_broker_are_as_far_apart_as_their_pauses(
    story: list[tuple[Address, bool, int]], chance: "object"
) -> None:
    breakers = Reachability(OPTIONS, chance.randint)  # type: ignore[attr-defined]
    now_ms, failures, last_ms = 0, dict.fromkeys([HERE, THERE], 0), dict.fromkeys([HERE, THERE], 0)
    for address, succeeds, passes_ms in story:
        now_ms += passes_ms
        if again_in(breakers, address, now_ms):
            assert failures[address]
            assert now_ms - last_ms[address] < 1.2 * min(50 * 2 ** (failures[address] - 1), 1000)
            continue
        if failures[address]:
            assert now_ms - last_ms[address] >= 0.8 * min(50 * 2 ** (failures[address] - 1), 1000)
        if succeeds:
            breakers.succeeded(address)
            failures[address] = 0
        else:
            breakers.failed(address, REFUSED, now_ms)
            failures[address] += 1
            last_ms[address] = now_ms


def test_no_more_is_remembered_than_a_list_may_be_long() -> None:
    breakers = Reachability(OPTIONS, middle)
    for number in range(ADDRESSES_MAX + 1):
        breakers.failed(Address("a", number), REFUSED, 0)
    assert again_in(breakers, Address("a", 0), 0) == 0
    assert again_in(breakers, Address("a", 1), 0) == 50


def test_of_several_that_all_wait_the_first_counts() -> None:
    waits = [BrokerAvoidedError("a", again_in_ms=30), BrokerAvoidedError("b", again_in_ms=20)]
    error = all_failed([*waits])
    assert isinstance(error, BrokerAvoidedError)
    assert (error.again_in_ms, str(error)) == (20, "a; b")
    assert not isinstance(all_failed([*waits, REFUSED]), BrokerAvoidedError)
