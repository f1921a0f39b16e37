"""Requests that wait are released by signals and deadlines, once, and never forgotten."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.broker.delayed import AwaitedData, Delayed
from distributedlog.broker.partitions import SYNC_REST_MS, PartitionSet
from distributedlog.model.error_codes import ErrorCode
from distributedlog.replication.contract import Isolation
from distributedlog.replication.partition import Partition
from distributedlog.storage.append import Origin
from tests.unit.broker.partition_stage import ME, OTHER, Stage
from tests.unit.replication.support import produce, produce_data
from tests.unit.storage.support import batch_of, marker_of, value_of

SIZE = len(batch_of([value_of(1)]))
NONE, TIMED_OUT = ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT


class Parking(Stage):
    """Three topics a, b and c, of one partition each, and what became of the requests."""

    def __init__(
        self, *, replicas: tuple[int, ...] = (ME,), parked_max: int = 1000, awaited_max: int = 1000
    ) -> None:
        super().__init__(start=False)
        for number, name in enumerate("abc", start=1):
            self.metadata.create(name, number, replicas=replicas)
        self.apply()
        self.delayed = Delayed(
            self.partitions.signals,
            clock=self.clock,
            scheduler=self.scheduler,
            parked_max=parked_max,
            awaited_max=awaited_max,
        )
        self.codes: list[list[ErrorCode]] = []
        self.woken: list[str] = []

    def produce(self, *names: str, timeout_ms: int = 1_000) -> None:
        awaited = [(self[name], produce(self[name], 1).last_offset + 1) for name in names]
        self.delayed.produce(awaited, timeout_ms, self.codes.append)

    def fetch(
        self,
        names: str,
        bytes_wanted: int = 1,
        *,
        max_wait_ms: int = 500,
        isolation: int = Isolation.READ_UNCOMMITTED,
        is_follower: bool = False,
    ) -> None:
        awaited = [AwaitedData(self[name], isolation, is_follower) for name in names]
        self.delayed.fetch(awaited, bytes_wanted, max_wait_ms, lambda: self.woken.append(names))


# --- produce -----------------------------------------------------------------------------------


def test_a_produce_is_answered_when_all_its_partitions_have_committed() -> None:
    parking = Parking()
    parking.produce("a", "b")
    assert parking.executor.run_one()
    assert parking.codes == []
    assert parking.executor.run_one()
    assert parking.codes == [[NONE, NONE]]
    assert parking.delayed.parked_count == 0


def test_what_is_committed_already_is_answered_at_once() -> None:
    parking = Parking()
    produce(parking["a"], 1)
    parking.settle()
    assert parking.delayed.produce([(parking["a"], 1)], 1_000, parking.codes.append) is None
    assert parking.codes == [[NONE]]


def test_a_timeout_tells_which_partitions_are_open() -> None:
    parking = Parking()
    parking.produce("a", "b")
    parking.executor.run_one()
    parking.scheduler.advance(999)
    assert parking.codes == []
    parking.scheduler.advance(5)
    assert parking.codes == [[NONE, TIMED_OUT]]
    parking.settle()
    assert parking.codes == [[NONE, TIMED_OUT]], "nobody is answered twice"


def test_lost_leadership_is_told_for_that_partition_and_the_others_go_on() -> None:
    parking = Parking()
    parking.produce("a", "b")
    parking.apply(parking.metadata.change(1, leader=OTHER, replicas=[ME, OTHER], isr=[OTHER]))
    assert parking.codes == []
    parking.settle()
    assert parking.codes == [[ErrorCode.NOT_LEADER_OR_FOLLOWER, NONE]]


def test_a_deleted_topic_answers_its_waiters() -> None:
    parking = Parking()
    parking.produce("a")
    parking.apply(parking.metadata.remove(1))
    assert parking.codes == [[ErrorCode.NOT_LEADER_OR_FOLLOWER]]


def test_an_isr_that_shrinks_below_the_minimum_is_told() -> None:
    parking = Parking(replicas=(ME, OTHER))
    for name in "abc":
        parking[name].reconfigure(parking[name].log.config, 2)
    parking.produce("a")
    parking.settle()
    assert parking.codes == []
    parking.apply(parking.metadata.change(1, isr=[ME]))
    assert parking.codes == [[ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]]


def test_a_failed_disk_answers_everybody() -> None:
    parking = Parking()
    parking.produce("a", "b")
    parking.fetch("c")
    parking.sim.inject("sync", "*a-0/*.log")
    parking.settle()
    assert parking.codes == [[ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR]]
    assert parking.woken == ["c"]


def test_one_partition_twice_in_a_request_is_answered_twice() -> None:
    parking = Parking()
    parking.produce("a", "a")
    parking.settle()
    assert parking.codes == [[NONE, NONE]]


def test_without_patience_or_room_a_produce_is_not_parked() -> None:
    parking = Parking(parked_max=1)
    parking.produce("a", timeout_ms=0)
    assert parking.codes == [[TIMED_OUT]]
    parking.produce("a")
    parking.produce("b")
    assert parking.codes == [[TIMED_OUT], [TIMED_OUT]]
    parking.settle()
    assert parking.codes == [[TIMED_OUT], [TIMED_OUT], [NONE]]


# --- fetch -------------------------------------------------------------------------------------


def test_a_fetch_waits_until_there_is_something_to_read() -> None:
    parking = Parking()
    parking.fetch("ab")
    produce(parking["b"], 1)
    assert parking.woken == [], "what is not committed is nothing to read"
    parking.settle()
    assert parking.woken == ["ab"]
    assert parking.delayed.parked_count == 0


def test_a_fetch_that_wants_more_waits_for_more_of_all_its_partitions() -> None:
    parking = Parking()
    parking.fetch("ab", 3 * SIZE)
    for name in "aba":
        assert parking.woken == []
        produce(parking[name], 1)
        parking.settle()
    assert parking.woken == ["ab"]


def test_a_fetch_is_answered_empty_when_its_time_is_over() -> None:
    parking = Parking()
    parking.fetch("a")
    parking.fetch("b", max_wait_ms=300)
    parking.scheduler.advance(304)
    assert parking.woken == ["b"]
    parking.scheduler.advance(200)
    assert parking.woken == ["b", "a"]


def test_a_fetch_without_patience_or_room_is_answered_at_once() -> None:
    parking = Parking(parked_max=1)
    parking.fetch("a", max_wait_ms=0)
    parking.fetch("b", bytes_wanted=0)
    parking.fetch("a")
    parking.fetch("c")
    assert parking.woken == ["a", "b", "c"]


def test_readers_who_wait_for_ever_leave_room_for_writers() -> None:
    parking = Parking(parked_max=2)
    for _ in range(3):
        parking.fetch("c", bytes_wanted=10**9, max_wait_ms=10**9)
    assert parking.woken == ["c"], "the third found no room"
    parking.produce("a")
    parking.settle()
    assert parking.codes == [[NONE]]


def test_fetches_are_parked_for_a_bounded_number_of_partitions_in_all() -> None:
    parking = Parking(awaited_max=4)
    parking.fetch("abc")
    parking.fetch("ab")
    assert parking.woken == ["ab"]
    parking.scheduler.advance(504)
    assert parking.woken == ["ab", "abc"]
    parking.fetch("ab")
    parking.fetch("bc")
    assert parking.woken == ["ab", "abc"], "room was given back"
    assert parking.delayed.parked_count == 2


def test_a_follower_is_woken_by_the_logs_end_and_by_what_is_committed() -> None:
    parking = Parking()
    parking.fetch("a", is_follower=True)
    produce(parking["a"], 1)
    assert parking.woken == ["a"]
    parking.fetch("a", is_follower=True, bytes_wanted=10_000)
    parking.settle()
    assert parking.woken == ["a", "a"], "it must hear of the high watermark"


def test_a_reader_of_committed_records_is_not_woken_by_an_open_transaction() -> None:
    parking = Parking()
    parking.fetch("a", isolation=Isolation.READ_COMMITTED)
    produce_data(
        parking["a"],
        batch_of([b"x"], producer_id=4, producer_epoch=0, base_sequence=0, is_transactional=True),
    )
    parking.settle()
    assert parking.woken == []
    produce_data(parking["a"], marker_of(4, commit=True), Origin.COORDINATOR)
    parking.settle()
    assert parking.woken == ["a"]


def test_who_changes_its_role_wakes_the_readers() -> None:
    parking = Parking()
    parking.fetch("a")
    parking.apply(parking.metadata.change(1, leader=OTHER, replicas=[ME, OTHER], isr=[OTHER]))
    assert parking.woken == ["a"]


def test_who_is_cancelled_hears_nothing() -> None:
    parking = Parking()
    parked = parking.delayed.fetch([AwaitedData(parking["a"])], 1, 500, lambda: parking.woken.append("a"))
    assert parked is not None
    parking.delayed.cancel(parked)
    parking.delayed.cancel(parked)
    produce(parking["a"], 1)
    parking.settle()
    parking.scheduler.advance(1_000)
    assert parking.woken == []
    assert parking.delayed.parked_count == 0


def test_who_parks_again_while_it_is_released_is_not_lost() -> None:
    parking = Parking()

    def again() -> None:
        parking.woken.append("again")
        parking.fetch("b", max_wait_ms=60_000)

    parking.delayed.fetch([AwaitedData(parking["a"])], 1, 100, again)
    parking.fetch("c", max_wait_ms=200)
    parking.scheduler.advance(300)
    assert parking.woken == ["again", "c"], "the later one did not put the timer off"
    produce(parking["b"], 1)
    parking.settle()
    assert parking.woken == ["again", "c", "b"]


# --- deadlines ---------------------------------------------------------------------------------


def test_a_callback_that_fails_does_not_stop_the_clock_for_the_others() -> None:
    stage = Parking()

    def fail() -> None:
        raise ValueError("nobody is there")

    awaited = [AwaitedData(stage["a"])]
    stage.fetch("a", max_wait_ms=100)
    stage.delayed.fetch(awaited, 1, 100, fail)
    stage.fetch("b", max_wait_ms=100)
    stage.fetch("c", max_wait_ms=300)
    with pytest.raises(ValueError, match="nobody"):
        stage.scheduler.advance(200)
    stage.scheduler.advance(1_000)
    assert sorted(stage.woken) == ["a", "b", "c"]
    assert stage.delayed.parked_count == 0


def test_many_requests_that_are_answered_in_time_leave_no_timers_behind() -> None:
    parking = Parking()
    for round_ in range(300):
        parking.clock.advance(10)
        parking.produce("a", timeout_ms=30_000 + 50 * round_)
        parking.settle()
    assert len(parking.codes) == 300
    assert parking.delayed.parked_count == 0
    assert parking.scheduler.timer_count <= 2
    assert len(parking.delayed._bucket_order) <= 70
    assert parking.delayed._buckets == {}


def _signal(parking: Parking, kind: str, name: str) -> None:
    if kind == "append":
        produce(parking[name], 1)
    elif kind == "sync":
        parking.executor.run_one()
    else:
        parking.scheduler.advance(40)


@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("produce"), st.sampled_from(("a", "ab", "abc")), st.integers(1, 200)),
            st.tuples(st.just("fetch"), st.sampled_from(("a", "bc")), st.integers(1, 200)),
            st.tuples(st.sampled_from(("append", "sync", "time")), st.sampled_from("abc"), st.just(0)),
        ),
        max_size=40,
    )
)
def test_every_request_is_answered_exactly_once_and_not_long_after_its_deadline(
    steps: list[tuple[str, str, int]],
) -> None:
    parking = Parking()
    open_until: dict[int, int] = {}
    answered: list[int] = []

    def park(number: int, kind: str, names: str, timeout_ms: int) -> None:
        open_until[number] = parking.clock.monotonic_ms() + timeout_ms + 4
        if kind == "fetch":
            awaited = [AwaitedData(parking[name]) for name in names]
            parking.delayed.fetch(awaited, 1, timeout_ms, lambda: answered.append(number))
        else:
            offsets = [(parking[name], produce(parking[name], 1).last_offset + 1) for name in names]
            parking.delayed.produce(offsets, timeout_ms, lambda codes: answered.append(number))

    for number, (kind, names, timeout_ms) in enumerate(steps):
        if kind in ("produce", "fetch"):
            park(number, kind, names, timeout_ms)
        else:
            _signal(parking, kind, names)
        late = [each for each, due in open_until.items() if due < parking.clock.monotonic_ms()]
        assert set(late) <= set(answered)
        assert parking.delayed.parked_count == len(open_until) - len(answered)
    parking.scheduler.advance(1_000)
    assert sorted(answered) == sorted(open_until)


# --- on an asyncio loop ------------------------------------------------------------------------


def test_futures_stand_for_parked_requests() -> None:
    parking = Parking()

    async def run() -> list[ErrorCode]:
        produced = parking.delayed.produced([(parking["a"], produce(parking["a"], 1).last_offset + 1)], 1_000)
        fetchable = parking.delayed.fetchable([AwaitedData(parking["a"])], 1, 500)
        given_up = parking.delayed.fetchable([AwaitedData(parking["a"])], 1, 500)
        given_up.cancel()
        assert not produced.done()
        parking.settle()
        await fetchable
        return await produced

    assert asyncio.run(run()) == [NONE]


def test_a_partition_that_nobody_waits_for_costs_nothing() -> None:
    parking = Parking()
    parking.produce("a")
    parking.settle()
    partitions: PartitionSet = parking.partitions
    waiting: list[Partition] = [*parking.delayed._produces, *parking.delayed._fetches]
    assert waiting == []
    assert len(partitions) == 3


@pytest.mark.parametrize("timeout_ms", [2**31 - 1, 2**62])
def test_an_absurd_timeout_is_bounded(timeout_ms: int) -> None:
    parking = Parking()
    parking.fetch("a", max_wait_ms=timeout_ms)
    parking.scheduler.advance(24 * 60 * 60 * 1000 + 4)
    assert parking.woken == ["a"]


# --- syncs that rest ---------------------------------------------------------------------------


def a_resting_log(parking: Parking) -> None:
    """The topic `a`, of which one record is synced and another one's sync rests."""
    for number in (1, 2):
        produce(parking["a"], number, acks=1)
    parking.settle()
    assert (parking["a"].log_end_offset, parking["a"].high_watermark) == (2, 1)


def test_a_sync_that_nobody_waits_for_rests() -> None:
    parking = Parking()
    a_resting_log(parking)
    parking.scheduler.advance(SYNC_REST_MS)
    parking.settle()
    assert parking["a"].high_watermark == 2


def test_whoever_begins_to_wait_ends_the_rest() -> None:
    parking = Parking()
    a_resting_log(parking)
    parking.fetch("a")
    parking.settle()
    assert parking.woken == ["a"]


def test_no_sync_rests_while_someone_waits() -> None:
    parking = Parking()
    parking.fetch("a", bytes_wanted=3 * SIZE)
    for number in (1, 2, 3):
        produce(parking["a"], number, acks=1)
    parking.settle()
    assert parking.woken == ["a"]
    parking = Parking()
    a_resting_log(parking)
    parking.produce("a")
    parking.settle()
    assert parking.codes == [[NONE]]
