"""Members that come, go, are late, and repeat themselves; coordinators that fail over and lose what was not
committed.  Checked all along:

    two owners            a partition is told to two members of one generation
    offset regression     a position that was acknowledged is not what is read, or a later one
    answered twice        checked by the stage
    drifted apart         a Stable or Empty group differs from what the log says of it
    replay                the durable state equals the replay of the log
    stuck rebalance       at the end everybody goes silent: every request is answered, every group Empty
"""

import os

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from distributedlog.groups.classic.group import GroupState, make_group_metadata_record
from distributedlog.groups.config import GroupConfig
from distributedlog.groups.requests import (
    CommitReply,
    CommitRequest,
    CommittedOffset,
    FetchOffsetsReply,
    FetchOffsetsRequest,
    SupportedProtocol,
    SyncReply,
)
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import TopicPartition
from tests.unit.groups.stage import GROUP, RANGE, REBALANCE_MS, Stage, Waiting, decoded, subscription

SOAK = os.environ.get("DLOG_SOAK") == "1"
OTHER = (SupportedProtocol("range", subscription("t", "u")), SupportedProtocol("sticky", b""))
INSTANCES = [None, None, "i0", "i1"]


class Client:
    """A member, as it knows itself."""

    def __init__(self, instance: str | None) -> None:
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.leads: tuple[str, ...] = ()
        self.pending: Waiting | None = None


class GroupModel(RuleBasedStateMachine):
    @initialize(delay_ms=st.sampled_from([0, 3_000]), commits=st.booleans())
    def begin(self, delay_ms: int, commits: bool) -> None:
        config = GroupConfig(initial_rebalance_delay_ms=delay_ms, new_member_timeout_ms=120_000)
        self.stage = Stage(config, commits=commits)
        self.clients: list[Client] = []
        self.owners: dict[tuple[int, int], str] = {}
        self.acknowledged = -1
        self.submitted = -1
        self.commits: dict[int, int] = {}
        """Positions that are not acknowledged yet, by the ticket of the request."""

    # --- members -------------------------------------------------------------------------------

    @rule(instance=st.sampled_from(INSTANCES), knows=st.booleans(), other=st.booleans())
    def come(self, instance: str | None, knows: bool, other: bool) -> None:
        if len(self.clients) >= 5:
            return
        client = Client(instance)
        self.clients.append(client)
        client.pending = self.stage.join(
            instance=instance, must_know_id=knows, protocols=OTHER if other else RANGE
        )
        self.hear()

    @precondition(lambda self: self.clients)
    @rule(at=st.integers(0, 4), other=st.booleans())
    def join_again(self, at: int, other: bool) -> None:
        client = self.clients[at % len(self.clients)]
        protocols = OTHER if other else RANGE
        client.pending = self.stage.join(client.member_id, instance=client.instance, protocols=protocols)
        self.hear()

    @precondition(lambda self: self.clients)
    @rule(at=st.integers(0, 4))
    def synchronize(self, at: int) -> None:
        client = self.clients[at % len(self.clients)]
        parts = {member_id: bytes([number]) for number, member_id in enumerate(client.leads)}
        client.pending = self.stage.sync(client.member_id, client.generation, parts, instance=client.instance)
        self.hear()

    @precondition(lambda self: self.clients)
    @rule(at=st.integers(0, 4))
    def beat(self, at: int) -> None:
        client = self.clients[at % len(self.clients)]
        self.stage.begin_quietly(client.member_id, client.generation, client.instance)

    @precondition(lambda self: self.clients)
    @rule(at=st.integers(0, 4), says_so=st.booleans())
    def go(self, at: int, says_so: bool) -> None:
        client = self.clients.pop(at % len(self.clients))
        if says_so and self.stage.commits:
            self.stage.leave(client.member_id)

    # --- positions -----------------------------------------------------------------------------

    @precondition(lambda self: self.clients)
    @rule(at=st.integers(0, 4), alone=st.booleans())
    def commit_position(self, at: int, alone: bool) -> None:
        client = self.clients[at % len(self.clients)]
        self.submitted += 1
        who = ("", None, -1) if alone else (client.member_id, client.instance, client.generation)
        position = CommittedOffset(TopicPartition("t", 0), self.submitted, 5, "why")
        self.commits[self.stage.begin(CommitRequest(GROUP, *who, (position,)))] = self.submitted
        self.hear()

    @rule()
    def read_position(self) -> None:
        """The answer waits for everything before it to be committed."""
        ticket = self.stage.begin(FetchOffsetsRequest(GROUP, None))
        self.commit()
        reply = self.stage.answers.pop(ticket)
        assert isinstance(reply, FetchOffsetsReply)
        found = next((each.offset for each in reply.offsets), -1)
        assert self.acknowledged <= found <= self.submitted

    # --- time and failure ----------------------------------------------------------------------

    @rule(ms=st.sampled_from([1, 1_000, 3_000, 9_999, REBALANCE_MS]))
    def wait(self, ms: int) -> None:
        self.stage.advance(ms)
        self.hear()

    @rule()
    def commit(self) -> None:
        self.stage.settle(commit=True)
        self.hear()

    @rule(lost=st.integers(0, 3))
    def fail_over(self, lost: int) -> None:
        committed = self.stage.committed_offset + 1
        keep = max(committed, len(self.stage.log.entries) - lost)
        self.commits.clear()
        for client in self.clients:
            client.pending = None
        self.stage.failover(keep=keep)

    # --- checking ------------------------------------------------------------------------------

    def hear(self) -> None:
        """Everybody looks at what was answered."""
        for ticket in [each for each in self.commits if each in self.stage.answers]:
            position, reply = self.commits.pop(ticket), self.stage.answers.pop(ticket)
            if isinstance(reply, CommitReply) and reply.errors == (ErrorCode.NONE,):
                self.acknowledged = position
        for client in self.clients:
            waiting = client.pending
            if waiting is None or not waiting.is_answered:
                continue
            client.pending = None
            if isinstance(waiting.reply, SyncReply):
                if waiting.code is ErrorCode.NONE:
                    self.own(client, waiting.assignment)
            elif waiting.reply is not None:
                client.member_id = waiting.joined.member_id
                if waiting.code is ErrorCode.NONE:
                    client.generation = waiting.joined.generation
                    client.leads = tuple(each.member_id for each in waiting.joined.members)
            elif waiting.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                client.member_id, client.generation = "", -1

    def own(self, client: Client, assignment: bytes) -> None:
        for part in assignment:
            owner = client.instance or client.member_id
            known = self.owners.setdefault((client.generation, part), owner)
            assert known == owner, f"two owners of {part} in generation {client.generation}"

    @invariant()
    def what_is_stored_is_what_lives(self) -> None:
        machine = self.stage.machine
        for group in machine.groups.values():
            if group.state is GroupState.STABLE or (group.state is GroupState.EMPTY and group.generation):
                assert make_group_metadata_record(group).value == machine.stored[group.group_id]

    @invariant()
    def the_durable_state_is_the_replay_of_the_log(self) -> None:
        replayed = self.stage.new_machine()
        for offset, entry in enumerate(self.stage.log.entries):
            replayed.replay(decoded(entry), offset)
        assert list(replayed.durable_records()) == list(self.stage.machine.durable_records())

    def teardown(self) -> None:
        if not hasattr(self, "stage"):
            return
        stage = self.stage
        stage.commits = True
        waiting = list(stage.waiting.values())
        stage.settle()
        stage.advance(10 * REBALANCE_MS)
        assert all(each.is_answered for each in waiting), "a rebalance is stuck"
        assert all(group.state is GroupState.EMPTY for group in stage.machine.groups.values())
        assert GROUP not in stage.machine.groups or not stage.machine.groups[GROUP].members


GroupModel.TestCase.settings = settings(
    max_examples=1_000 if SOAK else 60, stateful_step_count=60 if SOAK else 40, deadline=None
)
TestGroups = GroupModel.TestCase


def test_what_was_committed_under_one_coordinator_is_so_under_the_next() -> None:
    """Else the model would let a second failover lose what the first coordinator had acknowledged."""
    stage = Stage(commits=False)
    position = CommittedOffset(TopicPartition("t", 0), 7, 5, "why")
    stage.begin(CommitRequest(GROUP, "", None, -1, (position,)))
    stage.settle(commit=True)
    for _ in range(2):
        stage.failover()
        assert stage.committed_offset == stage.runtime.committed_offset == len(stage.log.entries) - 1 >= 0
