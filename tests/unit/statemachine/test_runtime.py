import pytest

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    InvalidRequestError,
    LeadershipLostError,
    LoadInProgressError,
    NotLeaderError,
    OverloadedError,
    RequestTimedOutError,
)
from distributedlog.statemachine import Outbox, Phase, Runtime, RuntimeLimits, TicketReply
from tests.unit.statemachine.ledger import Add, Ledger, Read, Refuse, Request, Seen, StageLog

LATER_MS = 1_000


def active(log: StageLog, limits: RuntimeLimits | None = None) -> Runtime[Request, int, Seen, int]:
    runtime: Runtime[Request, int, Seen, int] = Runtime(Ledger, log, limits)
    runtime.elected(1)
    runtime.loaded(0)
    return runtime


def only(outbox: Outbox[Seen, int]) -> TicketReply[Seen]:
    (answer,) = outbox.replies
    return answer


def test_a_response_waits_for_its_own_commit() -> None:
    runtime = active(StageLog())
    ticket = runtime.submit(Add(7), 0, LATER_MS)
    assert runtime.take().replies == []
    runtime.committed(0)
    assert only(runtime.take()) == TicketReply(ticket, (7,), None, False)


def test_a_read_waits_for_the_commit_of_what_it_saw() -> None:
    runtime = active(StageLog())
    runtime.submit(Add(7), 0, LATER_MS)
    ticket = runtime.submit(Read(), 0, LATER_MS)
    assert runtime.take().replies == []
    runtime.committed(0)
    assert runtime.take().replies[1] == TicketReply(ticket, (7,), None, True)


def test_a_read_waits_also_when_nobody_waits_before_it() -> None:
    runtime = active(StageLog())
    runtime.event(Add(7), 0)
    runtime.submit(Read(), 0, LATER_MS)
    assert runtime.take().replies == []
    runtime.committed(0)
    assert only(runtime.take()).response == (7,)


def test_a_full_log_refuses_a_request_and_nothing_is_discarded() -> None:
    log = StageLog()
    runtime = active(log)
    first = runtime.submit(Add(1), 0, LATER_MS)
    log.failing = "full"
    with pytest.raises(OverloadedError):
        runtime.submit(Add(2), 0, LATER_MS)
    with pytest.raises(OverloadedError):
        runtime.event(Add(2), 0)
    assert runtime.phase is Phase.ACTIVE
    runtime.committed(0)
    assert only(runtime.take()) == TicketReply(first, (1,), None, False)


def test_a_timer_that_a_full_log_refuses_is_found_again_by_a_new_machine() -> None:
    log = StageLog()
    runtime = active(log)
    assert isinstance(runtime.machine, Ledger)
    runtime.machine.deadline_ms = 300
    log.failing = "full"
    runtime.tick(300)
    assert runtime.take().reload
    assert runtime.phase is Phase.LOADING


def test_a_read_of_what_is_committed_is_answered_at_once_and_only_by_a_sure_leader() -> None:
    runtime = active(StageLog())
    runtime.submit(Read(), 0, LATER_MS)
    answer = only(runtime.take())
    assert answer.response == ()
    assert answer.needs_leadership


def test_even_a_refusal_waits_for_the_state_it_was_made_from() -> None:
    runtime = active(StageLog())
    runtime.submit(Add(7), 0, LATER_MS)
    runtime.submit(Refuse(), 0, LATER_MS)
    assert runtime.take().replies == []
    runtime.committed(0)
    assert isinstance(runtime.take().replies[1].error, InvalidRequestError)


def test_an_effect_runs_after_the_commit_even_if_nobody_waits_for_the_answer_any_more() -> None:
    runtime = active(StageLog())
    runtime.submit(Add(7, announce=True), 0, LATER_MS)
    runtime.tick(LATER_MS)
    timed_out = runtime.take()
    assert isinstance(only(timed_out).error, RequestTimedOutError)
    assert timed_out.effects == []
    runtime.committed(0)
    assert runtime.take() == Outbox([], [7], False)


def test_an_event_that_comes_back_is_handled_and_nobody_is_answered() -> None:
    log = StageLog()
    runtime = active(log)
    runtime.event(Add(8), 0)
    runtime.event(Refuse(), 0)
    runtime.committed(0)
    assert log.entries == [(8,)]
    assert runtime.take() == Outbox([], [], False)


def test_commits_told_out_of_order_release_nothing_twice() -> None:
    runtime = active(StageLog())
    for value in (1, 2, 3):
        runtime.submit(Add(value), 0, LATER_MS)
    runtime.committed(1)
    assert len(runtime.take().replies) == 2
    runtime.committed(0)
    assert runtime.take().replies == []
    runtime.committed(2)
    assert len(runtime.take().replies) == 1


def test_lost_leadership_fails_who_waits_and_discards_what_may_vanish() -> None:
    runtime = active(StageLog())
    runtime.submit(Add(7, announce=True), 0, LATER_MS)
    runtime.leadership_lost()
    outbox = runtime.take()
    assert isinstance(only(outbox).error, LeadershipLostError)
    assert outbox.reload
    assert outbox.effects == []
    assert runtime.machine.snapshot() == b"[]"
    runtime.committed(0)
    assert runtime.take() == Outbox([], [], False)


def test_lost_leadership_with_all_committed_keeps_the_machine() -> None:
    runtime = active(StageLog())
    runtime.submit(Add(7), 0, LATER_MS)
    runtime.committed(0)
    runtime.leadership_lost()
    assert not runtime.take().reload
    assert runtime.machine.snapshot() == b"[7]"


def test_a_leader_lost_while_loading_uncommitted_entries_discards_them() -> None:
    runtime: Runtime[Request, int, Seen, int] = Runtime(Ledger, StageLog())
    runtime.elected(1)
    runtime.replay([5], 0)
    runtime.leadership_lost()
    assert runtime.take().reload


@pytest.mark.parametrize("failing", ["nothing written", "written all the same", "behind another entry"])
def test_a_failed_append_discards_the_machine_and_answers_that_nobody_knows(failing: str) -> None:
    log = StageLog()
    runtime = active(log)
    first = runtime.submit(Add(1), 0, LATER_MS)
    log.failing = failing
    second = runtime.submit(Add(2), 0, LATER_MS)
    outbox = runtime.take()
    assert [answer.ticket for answer in outbox.replies] == [first, second]
    assert all(isinstance(answer.error, LeadershipLostError) for answer in outbox.replies)
    assert outbox.reload
    assert runtime.phase is Phase.LOADING
    for offset, entry in enumerate(log.entries):
        runtime.replay(entry, offset)
    runtime.loaded(0)
    assert runtime.machine.snapshot() == repr(list(log.values(99))).encode()


def test_who_does_not_lead_or_still_loads_says_so() -> None:
    runtime: Runtime[Request, int, Seen, int] = Runtime(Ledger, StageLog())
    with pytest.raises(NotLeaderError):
        runtime.submit(Read(), 0, LATER_MS)
    runtime.elected(1)
    with pytest.raises(LoadInProgressError) as refused:
        runtime.submit(Read(), 0, LATER_MS)
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(LoadInProgressError):
        runtime.event(Add(1), 0)


def test_parked_requests_are_bounded_also_when_those_who_asked_have_given_up() -> None:
    runtime = active(StageLog(), RuntimeLimits(delayed_max=3))
    runtime.submit(Add(1), 0, LATER_MS)
    runtime.submit(Read(), 0, LATER_MS)
    runtime.submit(Read(), 0, LATER_MS)
    runtime.tick(LATER_MS)
    assert runtime.delayed_count == 0
    with pytest.raises(OverloadedError):
        runtime.submit(Read(), 0, LATER_MS)
    runtime.committed(0)
    runtime.submit(Read(), 0, LATER_MS)


def test_the_deadlines_of_the_answered_do_not_pile_up() -> None:
    runtime = active(StageLog(), RuntimeLimits(delayed_max=4))
    for _ in range(100):
        runtime.submit(Read(), 0, LATER_MS)
    assert runtime.next_deadline_ms() is None


def test_the_next_deadline_is_the_nearest_of_waiters_and_machine() -> None:
    runtime = active(StageLog())
    assert isinstance(runtime.machine, Ledger)
    assert runtime.next_deadline_ms() is None
    runtime.submit(Add(1), 0, 500)
    assert runtime.next_deadline_ms() == 500
    runtime.machine.deadline_ms = 300
    assert runtime.next_deadline_ms() == 300
    runtime.tick(300)
    assert runtime.machine.values == [1, -300]
    assert runtime.next_deadline_ms() == 500
    runtime.committed(1)
    assert runtime.take().effects == [-300]
    assert runtime.next_deadline_ms() is None


def test_a_machine_that_does_not_lead_has_no_timers() -> None:
    runtime = active(StageLog())
    assert isinstance(runtime.machine, Ledger)
    runtime.machine.deadline_ms = 300
    runtime.leadership_lost()
    assert runtime.next_deadline_ms() is None
    runtime.tick(1_000)
    assert runtime.machine.values == []


def test_a_snapshot_and_the_entries_behind_it_are_the_whole_log() -> None:
    runtime: Runtime[Request, int, Seen, int] = Runtime(Ledger, StageLog())
    restored = Ledger()
    restored.restore(b"[1, 2]", 1)
    runtime.adopt(restored, 1)
    runtime.replay([2], 1)
    runtime.replay([3], 2)
    assert runtime.machine.snapshot() == b"[1, 2, 3]"
    runtime.elected(1)
    runtime.loaded(0)
    with pytest.raises(AssertionError):
        runtime.replay([4], 3)
    with pytest.raises(AssertionError):
        runtime.adopt(Ledger(), 0)
