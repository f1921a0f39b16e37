"""Requests that wait are released by signals and deadlines, once, and never forgotten."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.broker.replicas.delayed import AwaitedData, Purgatory
from distributedlog.broker.replicas.partitions import SYNC_PAUSE_MS, PartitionSet
from distributedlog.model.error_codes import ErrorCode
from distributedlog.replication.contract import Isolation
from distributedlog.replication.partition import Partition
from distributedlog.storage.append import Origin
from tests.unit.broker.partition_stage import ME, OTHER, Stage
from tests.unit.replication.support import produce, produce_data
from tests.unit.storage.support import batch_of, marker_of, value_of

SIZE = len(batch_of([value_of(1)]))
NONE, TIMED_OUT = ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT


class DelayedStage(Stage):
    """Three topics a, b and c, of one partition each, and what became of the requests."""

    def __init__(
        self, *, replicas: tuple[int, ...] = (ME,), delayed_max: int = 1000, awaited_max: int = 1000
    ) -> None:
        super().__init__(start=False)
        for number, name in enumerate("abc", start=1):
            self.metadata.create(name, number, replicas=replicas)
        self.apply()
        self.purgatory = Purgatory(
            self.partitions.signals,
            clock=self.clock,
            scheduler=self.scheduler,
            delayed_max=delayed_max,
            awaited_max=awaited_max,
        )
        self.codes: list[list[ErrorCode]] = []
        self.woken: list[str] = []

    def add_produce(self, *names: str, timeout_ms: int = 1_000) -> None:
        awaited = [(self[name], produce(self[name], 1).last_offset + 1) for name in names]
        self.purgatory.add_produce(awaited, timeout_ms, self.codes.append)
        self.scheduler.run_posted()

    def add_fetch(
        self,
        names: str,
        bytes_wanted: int = 1,
        *,
        max_wait_ms: int = 500,
        isolation: int = Isolation.READ_UNCOMMITTED,
        is_follower: bool = False,
    ) -> None:
        awaited = [AwaitedData(self[name], isolation, is_follower) for name in names]
        self.purgatory.add_fetch(awaited, bytes_wanted, max_wait_ms, lambda: self.woken.append(names))


# --- produce -----------------------------------------------------------------------------------


def test_a_produce_is_answered_when_all_its_partitions_have_committed() -> None:
    stage = DelayedStage()
    stage.add_produce("a", "b")
    assert stage.executor.run_one()
    assert stage.codes == []
    assert stage.executor.run_one()
    assert stage.codes == [[NONE, NONE]]
    assert stage.purgatory.delayed_count == 0


def test_what_is_committed_already_is_answered_at_once() -> None:
    stage = DelayedStage()
    produce(stage["a"], 1)
    stage.settle()
    assert stage.purgatory.add_produce([(stage["a"], 1)], 1_000, stage.codes.append) is None
    assert stage.codes == [[NONE]]


def test_a_timeout_tells_which_partitions_are_open() -> None:
    stage = DelayedStage()
    stage.add_produce("a", "b")
    stage.executor.run_one()
    stage.scheduler.advance(999)
    assert stage.codes == []
    stage.scheduler.advance(5)
    assert stage.codes == [[NONE, TIMED_OUT]]
    stage.settle()
    assert stage.codes == [[NONE, TIMED_OUT]], "nobody is answered twice"


def test_lost_leadership_is_told_for_that_partition_and_the_others_go_on() -> None:
    stage = DelayedStage()
    stage.add_produce("a", "b")
    stage.apply(stage.metadata.change(1, leader=OTHER, replicas=[ME, OTHER], isr=[OTHER]))
    assert stage.codes == []
    stage.settle()
    assert stage.codes == [[ErrorCode.NOT_LEADER_OR_FOLLOWER, NONE]]


def test_a_deleted_topic_answers_its_waiters() -> None:
    stage = DelayedStage()
    stage.add_produce("a")
    stage.apply(stage.metadata.remove(1))
    assert stage.codes == [[ErrorCode.NOT_LEADER_OR_FOLLOWER]]


def test_an_isr_that_shrinks_below_the_minimum_is_told() -> None:
    stage = DelayedStage(replicas=(ME, OTHER))
    for name in "abc":
        stage[name].reconfigure(stage[name].log.config, 2)
    stage.add_produce("a")
    stage.settle()
    assert stage.codes == []
    stage.apply(stage.metadata.change(1, isr=[ME]))
    assert stage.codes == [[ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]]


def test_a_failed_disk_answers_everybody() -> None:
    stage = DelayedStage()
    stage.add_produce("a", "b")
    stage.add_fetch("c")
    stage.sim.inject("sync", "*a-0/*.log")
    stage.settle()
    assert stage.codes == [[ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR]]
    assert stage.woken == ["c"]


def test_one_partition_twice_in_a_request_is_answered_twice() -> None:
    stage = DelayedStage()
    stage.add_produce("a", "a")
    stage.settle()
    assert stage.codes == [[NONE, NONE]]


def test_without_time_or_room_a_produce_is_not_delayed() -> None:
    stage = DelayedStage(delayed_max=1)
    stage.add_produce("a", timeout_ms=0)
    assert stage.codes == [[TIMED_OUT]]
    stage.add_produce("a")
    stage.add_produce("b")
    assert stage.codes == [[TIMED_OUT], [TIMED_OUT]]
    stage.settle()
    assert stage.codes == [[TIMED_OUT], [TIMED_OUT], [NONE]]


# --- fetch -------------------------------------------------------------------------------------


def test_a_fetch_waits_until_there_is_something_to_read() -> None:
    stage = DelayedStage()
    stage.add_fetch("ab")
    produce(stage["b"], 1)
    assert stage.woken == [], "what is not committed is nothing to read"
    stage.settle()
    assert stage.woken == ["ab"]
    assert stage.purgatory.delayed_count == 0


def test_a_fetch_that_wants_more_waits_for_more_of_all_its_partitions() -> None:
    stage = DelayedStage()
    stage.add_fetch("ab", 3 * SIZE)
    for name in "aba":
        assert stage.woken == []
        produce(stage[name], 1)
        stage.settle()
    assert stage.woken == ["ab"]


def test_a_fetch_is_answered_empty_when_its_time_is_over() -> None:
    stage = DelayedStage()
    stage.add_fetch("a")
    stage.add_fetch("b", max_wait_ms=300)
    stage.scheduler.advance(304)
    assert stage.woken == ["b"]
    stage.scheduler.advance(200)
    assert stage.woken == ["b", "a"]


def test_a_fetch_without_a_wait_or_room_is_answered_at_once() -> None:
    stage = DelayedStage(delayed_max=1)
    stage.add_fetch("a", max_wait_ms=0)
    stage.add_fetch("b", bytes_wanted=0)
    stage.add_fetch("a")
    stage.add_fetch("c")
    assert stage.woken == ["a", "b", "c"]


def test_readers_who_wait_for_ever_leave_room_for_writers() -> None:
    stage = DelayedStage(delayed_max=2)
    for _ in range(3):
        stage.add_fetch("c", bytes_wanted=10**9, max_wait_ms=10**9)
    assert stage.woken == ["c"], "the third found no room"
    stage.add_produce("a")
    stage.settle()
    assert stage.codes == [[NONE]]


def test_fetches_are_delayed_for_a_bounded_number_of_partitions_in_all() -> None:
    stage = DelayedStage(awaited_max=4)
    stage.add_fetch("abc")
    stage.add_fetch("ab")
    assert stage.woken == ["ab"]
    stage.scheduler.advance(504)
    assert stage.woken == ["ab", "abc"]
    stage.add_fetch("ab")
    stage.add_fetch("bc")
    assert stage.woken == ["ab", "abc"], "room was given back"
    assert stage.purgatory.delayed_count == 2


def test_a_follower_is_woken_by_the_logs_end_and_by_what_is_committed() -> None:
    stage = DelayedStage()
    stage.add_fetch("a", is_follower=True)
    produce(stage["a"], 1)
    assert stage.woken == ["a"]
    stage.add_fetch("a", is_follower=True, bytes_wanted=10_000)
    stage.settle()
    assert stage.woken == ["a", "a"], "it must hear of the high watermark"


def test_a_reader_of_committed_records_is_not_woken_by_an_open_transaction() -> None:
    stage = DelayedStage()
    stage.add_fetch("a", isolation=Isolation.READ_COMMITTED)
    produce_data(
        stage["a"],
        batch_of([b"x"], producer_id=4, producer_epoch=0, base_sequence=0, is_transactional=True),
    )
    stage.settle()
    assert stage.woken == []
    produce_data(stage["a"], marker_of(4, commit=True), Origin.COORDINATOR)
    stage.settle()
    assert stage.woken == ["a"]


def test_who_changes_its_role_wakes_the_readers() -> None:
    stage = DelayedStage()
    stage.add_fetch("a")
    stage.apply(stage.metadata.change(1, leader=OTHER, replicas=[ME, OTHER], isr=[OTHER]))
    assert stage.woken == ["a"]


def test_who_is_cancelled_hears_nothing() -> None:
    stage = DelayedStage()
    delayed = stage.purgatory.add_fetch([AwaitedData(stage["a"])], 1, 500, lambda: stage.woken.append("a"))
    assert delayed is not None
    stage.purgatory.cancel(delayed)
    stage.purgatory.cancel(delayed)
    produce(stage["a"], 1)
    stage.settle()
    stage.scheduler.advance(1_000)
    assert stage.woken == []
    assert stage.purgatory.delayed_count == 0


def test_who_parks_again_while_it_is_released_is_not_lost() -> None:
    stage = DelayedStage()

    def again() -> None:
        stage.woken.append("again")
        stage.add_fetch("b", max_wait_ms=60_000)

    stage.purgatory.add_fetch([AwaitedData(stage["a"])], 1, 100, again)
    stage.add_fetch("c", max_wait_ms=200)
    stage.scheduler.advance(300)
    assert stage.woken == ["again", "c"], "the later one did not put the timer off"
    produce(stage["b"], 1)
    stage.settle()
    assert stage.woken == ["again", "c", "b"]


# --- deadlines ---------------------------------------------------------------------------------


def test_a_callback_that_fails_does_not_stop_the_clock_for_the_others() -> None:
    stage = DelayedStage()

    def fail() -> None:
        raise ValueError("nobody is there")

    awaited = [AwaitedData(stage["a"])]
    stage.add_fetch("a", max_wait_ms=100)
    stage.purgatory.add_fetch(awaited, 1, 100, fail)
    stage.add_fetch("b", max_wait_ms=100)
    stage.add_fetch("c", max_wait_ms=300)
    with pytest.raises(ValueError, match="nobody"):
        stage.scheduler.advance(200)
    stage.scheduler.advance(1_000)
    assert sorted(stage.woken) == ["a", "b", "c"]
    assert stage.purgatory.delayed_count == 0


def test_many_requests_that_are_answered_in_time_leave_no_timers_behind() -> None:
    stage = DelayedStage()
    for round_ in range(300):
        stage.clock.advance(10)
        stage.add_produce("a", timeout_ms=30_000 + 50 * round_)
        stage.settle()
    assert len(stage.codes) == 300
    assert stage.purgatory.delayed_count == 0
    assert stage.scheduler.timer_count <= 2
    assert len(stage.purgatory._bucket_order) <= 70
    assert stage.purgatory._buckets == {}


def _signal(stage: DelayedStage, kind: str, name: str) -> None:
    if kind == "append":
        produce(stage[name], 1)
    elif kind == "sync":
        stage.executor.run_one()
    else:
        stage.scheduler.advance(40)


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
    stage = DelayedStage()
    open_until: dict[int, int] = {}
    answered: list[int] = []

    def park(number: int, kind: str, names: str, timeout_ms: int) -> None:
        open_until[number] = stage.clock.monotonic_ms() + timeout_ms + 4
        if kind == "fetch":
            awaited = [AwaitedData(stage[name]) for name in names]
            stage.purgatory.add_fetch(awaited, 1, timeout_ms, lambda: answered.append(number))
        else:
            offsets = [(stage[name], produce(stage[name], 1).last_offset + 1) for name in names]
            stage.purgatory.add_produce(offsets, timeout_ms, lambda codes: answered.append(number))

    for number, (kind, names, timeout_ms) in enumerate(steps):
        if kind in ("produce", "fetch"):
            park(number, kind, names, timeout_ms)
        else:
            _signal(stage, kind, names)
        late = [each for each, due in open_until.items() if due < stage.clock.monotonic_ms()]
        assert set(late) <= set(answered)
        assert stage.purgatory.delayed_count == len(open_until) - len(answered)
    stage.scheduler.advance(1_000)
    assert sorted(answered) == sorted(open_until)


def test_a_partition_that_nobody_waits_for_costs_nothing() -> None:
    stage = DelayedStage()
    stage.add_produce("a")
    stage.settle()
    partitions: PartitionSet = stage.partitions
    waiting: list[Partition] = [*stage.purgatory._produces, *stage.purgatory._fetches]
    assert waiting == []
    assert len(partitions) == 3


@pytest.mark.parametrize("timeout_ms", [2**31 - 1, 2**62])
def test_an_absurd_timeout_is_bounded(timeout_ms: int) -> None:
    stage = DelayedStage()
    stage.add_fetch("a", max_wait_ms=timeout_ms)
    stage.scheduler.advance(24 * 60 * 60 * 1000 + 4)
    assert stage.woken == ["a"]


# --- syncs that rest ---------------------------------------------------------------------------


def a_resting_log(stage: DelayedStage) -> None:
    """The topic `a`, of which one record is synced and another one's sync rests."""
    for number in (1, 2):
        produce(stage["a"], number, acks=1)
        stage.scheduler.run_posted()
    stage.settle()
    assert (stage["a"].log_end_offset, stage["a"].high_watermark) == (2, 1)


def test_a_sync_that_nobody_waits_for_rests() -> None:
    stage = DelayedStage()
    a_resting_log(stage)
    stage.scheduler.advance(SYNC_PAUSE_MS)
    stage.settle()
    assert stage["a"].high_watermark == 2


def test_whoever_begins_to_wait_ends_the_rest() -> None:
    stage = DelayedStage()
    a_resting_log(stage)
    stage.add_fetch("a")
    stage.settle()
    assert stage.woken == ["a"]


def test_no_sync_rests_while_someone_waits() -> None:
    stage = DelayedStage()
    stage.add_fetch("a", bytes_wanted=3 * SIZE)
    for number in (1, 2, 3):
        produce(stage["a"], number, acks=1)
    stage.settle()
    assert stage.woken == ["a"]
    stage = DelayedStage()
    a_resting_log(stage)
    stage.add_produce("a")
    stage.settle()
    assert stage.codes == [[NONE]]
