"""A coordinator that starts at any point of the log has what was there, and what it promised holds.

A walk asks for anything, from anybody, with lost and repeated requests, timeouts and new coordinators in
between.  After each step the promises are checked that need no history: of one decision, of epochs that rise,
of markers that say what was decided.
"""

import os

from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.model.errors import DlogError
from distributedlog.statemachine import Producer
from distributedlog.transactions.requests import (
    AddRequest,
    EndRequest,
    InitRequest,
    MarkersWrittenRequest,
    ProducerReply,
    Reply,
)
from distributedlog.transactions.transaction import (
    COMPLETE,
    PREPARED,
    TRANSITIONS,
    Transaction,
    TransactionState,
)
from tests.unit.transactions.stage import TIMEOUT_MS, Stage, decoded, partitions

SOAK = os.environ.get("DLOG_SOAK") == "1"
IDS = ("a", "b")
STEPS = st.lists(st.tuples(st.sampled_from(range(11)), st.integers(0, 1_000)), max_size=60)


class Walk:
    """Clients that may be zombies: each step is taken by one of all the producers that there ever were."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.known: list[tuple[str, Producer]] = []
        self.given: dict[tuple[str, int], int] = {}
        """The highest epoch that was given of each producer id."""
        self.late: list[MarkersWrittenRequest] = []

    def step(self, kind: int, choice: int) -> None:
        transactional_id = IDS[choice % 2]
        before = dict(self.stage.machine.transactions)
        if kind <= 1:
            self._init(transactional_id, None)
        elif kind == 10:
            self.stage.take_over()
        elif kind == 9:
            self.stage.advance(choice * 200)
        elif kind == 8:
            self._write_markers(choice)
        elif self.known:
            self._ask(kind, choice, *self.known[-1 - choice % min(len(self.known), 4)])
        self._check(before)

    def _ask(self, kind: int, choice: int, transactional_id: str, producer: Producer) -> None:
        version = 2 if choice % 3 else 0
        if kind == 2:
            self._init(transactional_id, producer)
        elif kind <= 5:
            names = partitions(f"t-{choice % 4}")
            self.stage.ask(AddRequest(transactional_id, producer, names, version))
        else:
            reply = self.stage.ask(EndRequest(transactional_id, producer, choice % 2 == 0, version))
            self._note(transactional_id, reply)

    def _init(self, transactional_id: str, expected: Producer | None) -> None:
        self._note(transactional_id, self.stage.ask(InitRequest(transactional_id, TIMEOUT_MS, expected)))

    def _note(self, transactional_id: str, reply: Reply | DlogError) -> None:
        if isinstance(reply, ProducerReply):
            producer_id, epoch = reply.producer
            self.known.append((transactional_id, reply.producer))
            key = (transactional_id, producer_id)
            assert epoch >= self.given.get(key, 0), "an epoch is never given back"
            self.given[key] = epoch

    def _write_markers(self, choice: int) -> None:
        """Written now, or lost and said late: then they belong to a transaction that is over."""
        if choice % 4 == 0 and self.late:
            self.stage.ask(self.late.pop())
            return
        for each in self.stage.sent:
            self.late.append(MarkersWrittenRequest(each.transactional_id, each.producer))
        self.stage.write_markers()

    # --- promises ------------------------------------------------------------------------------

    def _check(self, before: dict[str, Transaction]) -> None:
        now = self.stage.machine.transactions
        for transactional_id, was in before.items():
            found = now[transactional_id]
            assert found == was or _may_follow(was, found), (was, found)
            if was.state in PREPARED and found.state in COMPLETE:
                kept = was.state is TransactionState.PREPARE_COMMIT
                assert (found.state is TransactionState.COMPLETE_COMMIT) is kept, "decided once"
            if found.producer_id == was.producer_id:
                assert found.producer_epoch >= was.producer_epoch
        for transactional_id, found in now.items():
            sent = [each for each in self.stage.sent if each.transactional_id == transactional_id]
            assert bool(sent) == (found.state in PREPARED), "markers are under way while it is prepared"
            for each in sent:
                assert each.is_commit is (found.state is TransactionState.PREPARE_COMMIT)
                assert each.producer == found.producer
                assert each.partitions == found.partitions
            if found.state is not TransactionState.ONGOING and found.state not in PREPARED:
                assert not found.partitions


def _may_follow(was: Transaction, found: Transaction) -> bool:
    """Whether one step, or a timeout and the steps behind it, lead from the one to the other."""
    direct = {after for (before, _), after in TRANSITIONS.items() if before is was.state}
    return found.state in direct


@settings(max_examples=1_000 if SOAK else 60, deadline=None)
@given(STEPS)
def test_whatever_is_asked_promises_hold_and_any_prefix_of_the_log_gives_the_state(
    steps: list[tuple[int, int]],
) -> None:
    walk = Walk()
    known = {0: dict(walk.stage.machine.transactions)}
    for kind, choice in steps:
        walk.step(kind, choice)
        known[walk.stage.log.next_offset()] = dict(walk.stage.machine.transactions)
    machine = walk.stage.new_machine()
    for offset, entry in enumerate(walk.stage.log.entries):
        if offset in known:
            assert machine.transactions == known[offset]
        machine.replay(decoded(entry), offset)
    assert machine.transactions == known[walk.stage.log.next_offset()]


@settings(max_examples=200 if SOAK else 30, deadline=None)
@given(STEPS)
def test_a_compacted_log_gives_the_same_state(steps: list[tuple[int, int]]) -> None:
    walk = Walk()
    for kind, choice in steps:
        walk.step(kind, choice)
    last = {key: value for entry in walk.stage.log.entries for key, value in entry}
    machine = walk.stage.new_machine()
    for offset, (key, value) in enumerate(last.items()):
        machine.replay(decoded([(key, value)]), offset)
    assert machine.transactions == walk.stage.machine.transactions
