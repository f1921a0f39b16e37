"""Hypothesis drives three pure nodes by hand: any message may be lost, doubled or late, any write slow.

No time, no network, no disk model: every interleaving of steps is a legal history, so the safety
properties must hold in all of them.  `DLOG_SOAK=1` tries many more.
"""

import os
from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from distributedlog.model.errors import DlogError
from distributedlog.raft import (
    AddObserver,
    Change,
    Entry,
    Membership,
    Message,
    Persist,
    Promote,
    RaftConfig,
    RaftNode,
    Remove,
    Role,
)
from tests.unit.raft.stage import Stored

SOAK = os.environ.get("DLOG_SOAK") == "1"
CONFIG = RaftConfig(
    append_entries_max=2,
    inflight_appends_max=2,
    entries_kept_behind_snapshot=0,
    snapshot_chunk_bytes=3,
    promote_lag_entries_max=5,
)
BOOTSTRAP = Membership.of_voters(1, 2, 3)
NODES = (1, 2, 3, 4)

node_ids = st.sampled_from(NODES)


class RaftModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.draws = 0
        self.stored = {node_id: Stored() for node_id in NODES}
        self.writing: dict[int, Persist | None] = dict.fromkeys(NODES)
        self.nodes = {node_id: self.make(node_id) for node_id in NODES}
        self.messages: list[Message] = []
        self.leaders: dict[int, int] = {}
        self.decided: dict[int, Entry] = {}
        self.committed = (0, 0)

    def make(self, node_id: int) -> RaftNode:
        recovered = self.stored[node_id].recovered()
        return RaftNode(node_id, CONFIG, self.draw_timeout, BOOTSTRAP, recovered, self.now_ms)

    def draw_timeout(self, low: int, high: int) -> int:
        self.draws += 1
        return low + self.draws * 37 % (high - low)

    # --- steps ---------------------------------------------------------------------------------

    @precondition(lambda self: self.messages)
    @rule(place=st.integers(0, 1000), keep=st.booleans())
    def deliver(self, place: int, keep: bool) -> None:
        position = place % len(self.messages)
        message = self.messages[position] if keep else self.messages.pop(position)
        self.nodes[message.to].step(message, self.now_ms)
        self.settle(message.to)

    @precondition(lambda self: self.messages)
    @rule(count=st.integers(1, 30))
    def deliver_many_in_order(self, count: int) -> None:
        for _ in range(min(count, len(self.messages))):
            message = self.messages.pop(0)
            self.nodes[message.to].step(message, self.now_ms)
            self.settle(message.to)

    @precondition(lambda self: self.messages)
    @rule(place=st.integers(0, 1000))
    def lose(self, place: int) -> None:
        self.messages.pop(place % len(self.messages))

    @rule(node_id=node_ids)
    def pass_time_until_it_is_tired(self, node_id: int) -> None:
        deadline_ms = self.nodes[node_id].next_deadline_ms()
        if deadline_ms is not None:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.nodes[node_id].tick(self.now_ms)
            self.settle(node_id)

    @rule(node_id=node_ids)
    def finish_write(self, node_id: int) -> None:
        persist = self.writing[node_id]
        if persist is not None:
            self.stored[node_id].write(persist)
            self.writing[node_id] = None
            self.nodes[node_id].advance(persist)
            self.settle(node_id)

    @rule()
    def finish_all_writes(self) -> None:
        for node_id in NODES:
            while self.writing[node_id] is not None:
                self.finish_write(node_id)

    @rule(node_id=node_ids, cut_off=st.sets(node_ids, max_size=2))
    def run_well_but_for_some(self, node_id: int, cut_off: set[int]) -> None:
        """Otherwise chance would hardly ever elect anyone."""
        self.pass_time_until_it_is_tired(node_id)
        for _ in range(200):
            self.finish_all_writes()
            if not self.messages:
                break
            message = self.messages.pop(0)
            if not {message.sender, message.to} & cut_off:
                self.nodes[message.to].step(message, self.now_ms)
                self.settle(message.to)

    @rule(node_id=node_ids)
    def crash(self, node_id: int) -> None:
        self.writing[node_id] = None
        self.nodes[node_id] = self.make(node_id)

    @rule(node_id=node_ids, payload=st.binary(min_size=1, max_size=3))
    def propose(self, node_id: int, payload: bytes) -> None:
        if self.nodes[node_id].status.role is Role.LEADER:
            self.attempt(node_id, lambda node: node.propose([payload]))

    @rule(
        node_id=node_ids,
        change=st.sampled_from([AddObserver(4), Promote(4), Remove(4), Remove(1), Remove(2)]),
    )
    def change_members(self, node_id: int, change: Change) -> None:
        if self.nodes[node_id].status.role is Role.LEADER:
            self.attempt(node_id, lambda node: node.change_membership(change))

    @rule(node_id=node_ids, heir=node_ids)
    def transfer(self, node_id: int, heir: int) -> None:
        if self.nodes[node_id].status.role is Role.LEADER:
            self.attempt(node_id, lambda node: node.transfer_leadership(heir, self.now_ms))

    @rule(node_id=node_ids)
    def snapshot(self, node_id: int) -> None:
        index = self.nodes[node_id].status.applied_index
        if index:
            self.nodes[node_id].take_snapshot(index, str(index).encode() * 3)
            self.settle(node_id)

    def attempt(self, node_id: int, request: Callable[[RaftNode], object]) -> None:
        try:
            request(self.nodes[node_id])
        except DlogError:
            return
        self.settle(node_id)

    def settle(self, node_id: int) -> None:
        node = self.nodes[node_id]
        while node.has_ready:
            ready = node.ready()
            self.messages.extend(ready.messages)
            if ready.persist is not None:
                assert self.writing[node_id] is None, "two writes at a time"
                self.writing[node_id] = ready.persist
            if ready.restore is not None:
                assert ready.restore.index in self.decided, "a snapshot of what was not decided"
            for entry in ready.committed:
                assert self.decided.setdefault(entry.index, entry) == entry, (
                    "two entries decided in one place"
                )
        del self.messages[:-200]

    # --- what must hold ------------------------------------------------------------------------

    @invariant()
    def a_term_has_one_leader(self) -> None:
        for node_id, node in self.nodes.items():
            status = node.status
            if status.role is Role.LEADER:
                assert self.leaders.setdefault(status.term, node_id) == node_id

    @invariant()
    def a_commit_is_durable_on_a_majority_and_later_leaders_have_it(self) -> None:
        for node in self.nodes.values():
            core = node.core
            term = core.log.term_at(core.commit_index)
            if core.commit_index > self.committed[0] and term is not None:
                self.committed = (core.commit_index, term)
                holders = [n for n in core.membership.voters if self.on_disk(n, core.commit_index) == term]
                assert len(holders) >= core.membership.majority
        index, term = self.committed
        for node in self.nodes.values():
            core = node.core
            if core.role is Role.LEADER and core.term >= term and core.log.base_index < index:
                assert core.term < term or core.log.matches(index, term)

    def on_disk(self, node_id: int, index: int) -> int | None:
        stored = self.stored[node_id]
        if stored.snapshot is not None and index == stored.snapshot.index:
            return stored.snapshot.term
        return next((entry.term for entry in stored.entries if entry.index == index), None)

    @invariant()
    def marks_are_in_order(self) -> None:
        for node in self.nodes.values():
            status = node.status
            assert status.applied_index <= status.commit_index <= status.last_index
            assert status.stable_index <= status.last_index
            for follower in node.core.progress.values():
                assert follower.match_index < follower.next_index


TestRaftModel = RaftModel.TestCase
TestRaftModel.settings = settings(
    max_examples=2000 if SOAK else 60, stateful_step_count=150 if SOAK else 60, deadline=None
)
