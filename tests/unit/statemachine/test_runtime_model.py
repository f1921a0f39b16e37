"""Any order of requests, commits, failed appends and lost leaderships, against a log that is plain to see."""

import os

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from distributedlog.model.errors import (
    DlogError,
    InvalidRequestError,
    LeadershipLostError,
    OverloadedError,
    RequestTimedOutError,
)
from distributedlog.statemachine import Phase, Runtime, RuntimeLimits
from tests.unit.statemachine.ledger import Add, Ledger, Read, Refuse, Request, Seen, StageLog

FAILURES = ["nothing written", "written all the same", "behind another entry"]


class RuntimeModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.log = StageLog()
        self.committed = -1
        self.runtime: Runtime[Request, int, Seen, int] = Runtime(
            Ledger, self.log, RuntimeLimits(delayed_max=6)
        )
        self.open: set[int] = set()
        self.announced: list[int] = []
        self.value = 0
        self.now_ms = 0

    # --- what happens ----------------------------------------------------------------------------

    @precondition(lambda self: self.runtime.phase is Phase.ACTIVE)
    @rule(kind=st.sampled_from(["add", "announce", "read", "refuse"]), wait_ms=st.integers(1, 50))
    def ask(self, kind: str, wait_ms: int) -> None:
        self.value += 1
        asked: dict[str, Request] = {
            "add": Add(self.value),
            "announce": Add(self.value, announce=True),
            "read": Read(),
            "refuse": Refuse(),
        }
        try:
            ticket = self.runtime.submit(asked[kind], self.now_ms, self.now_ms + wait_ms)
        except OverloadedError:
            return
        assert ticket not in self.open
        self.open.add(ticket)
        self._drive()

    @precondition(lambda self: self.runtime.phase is Phase.ACTIVE)
    @rule(failing=st.sampled_from(FAILURES))
    def ask_while_the_log_fails(self, failing: str) -> None:
        self.log.failing = failing
        self.ask("announce", 50)
        self.log.failing = None

    @rule(ahead=st.integers(-3, 4))
    def commit(self, ahead: int) -> None:
        """Sometimes told late, and then not again."""
        told = min(self.committed + ahead, len(self.log.entries) - 1)
        if told >= 0:
            self.committed = max(self.committed, told)
            if self.runtime.phase is Phase.FOLLOWING:
                self._replay(self.committed)
            self.runtime.committed(told)
            self._drive()

    @precondition(lambda self: self.runtime.phase is Phase.FOLLOWING)
    @rule(by_another=st.integers(0, 2))
    def lead(self, by_another: int) -> None:
        for _ in range(by_another):
            self.value += 1
            self.log.entries.append((self.value,))
        self.runtime.elected(1)
        self._replay(len(self.log.entries) - 1)
        self.runtime.loaded(self.now_ms)

    @precondition(lambda self: self.runtime.phase is not Phase.FOLLOWING)
    @rule(lost=st.integers(0, 4))
    def lose_leadership(self, lost: int) -> None:
        """Another leader overwrites some of what was not committed."""
        keep = max(self.committed + 1, len(self.log.entries) - lost)
        del self.log.entries[keep:]
        self.runtime.leadership_lost()
        self._drive()

    @rule(pass_ms=st.integers(1, 30))
    def time_passes(self, pass_ms: int) -> None:
        self.now_ms += pass_ms
        self.runtime.tick(self.now_ms)
        self._drive()

    # --- what the driver does ----------------------------------------------------------------------

    def _replay(self, until_offset: int) -> None:
        for offset in range(self.runtime.replayed_offset + 1, until_offset + 1):
            self.runtime.replay(self.log.entries[offset], offset)

    def _drive(self) -> None:
        outbox = self.runtime.take()
        committed = self.log.values(self.committed)
        for answer in outbox.replies:
            assert answer.ticket in self.open, "answered twice, or never asked"
            self.open.discard(answer.ticket)
            self._check_answer(answer.response, answer.error, committed)
        for effect in outbox.effects:
            assert effect in committed, "an effect before its commit"
            assert effect not in self.announced, "an effect twice"
            self.announced.append(effect)
        if outbox.reload:
            whole = self.runtime.phase is Phase.LOADING
            self._replay(len(self.log.entries) - 1 if whole else self.committed)
            if whole:
                self.runtime.loaded(self.now_ms)

    def _check_answer(self, response: Seen | None, error: DlogError | None, committed: Seen) -> None:
        if error is None:
            assert response is not None
            assert committed[: len(response)] == response, "answered from what is not committed"
        elif isinstance(error, InvalidRequestError):
            assert str(list(committed))[1:-1].startswith(str(error)[1:-1]), (
                "refused from what is not committed"
            )
        else:
            assert isinstance(error, LeadershipLostError | RequestTimedOutError)

    # --- what always holds ---------------------------------------------------------------------------

    @invariant()
    def the_machine_is_the_replay_of_the_log(self) -> None:
        assert isinstance(self.runtime.machine, Ledger)
        assert tuple(self.runtime.machine.values) == self.log.values(self.runtime.replayed_offset)
        if self.runtime.phase is Phase.ACTIVE:
            assert self.runtime.replayed_offset == len(self.log.entries) - 1

    @invariant()
    def nobody_is_forgotten(self) -> None:
        assert self.runtime.delayed_count == len(self.open)

    def teardown(self) -> None:
        if self.runtime.phase is Phase.ACTIVE:
            self.commit(len(self.log.entries))
        assert not self.open


RuntimeModel.TestCase.settings = settings(
    max_examples=1000 if os.environ.get("DLOG_SOAK") else 80, stateful_step_count=40, deadline=None
)
test_a_runtime_keeps_its_promises_whatever_happens = RuntimeModel.TestCase
