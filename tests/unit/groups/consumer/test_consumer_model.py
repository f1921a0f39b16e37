"""Members of both protocols that come, go, are silent, slow and repeat themselves; topics that come, grow and
go; coordinators that fail over and lose what was not committed.  Checked all along:

    two owners             a partition is read by two members that the coordinator knows
    owners                 what the group says of who holds what is what the members hold
    epochs only rise       told to members (checked by them), and in the log
    replay                 the durable state equals the replay of the log; so does a snapshot of any part of
                           it with the rest replayed
    transitions            every entry of the log takes the group to a state that the table has
    one protocol           a name is a classic group or a consumer group
    reconciliation ends    at the end those who are there are heard: the group is Stable, all is read; then
                           everybody goes silent: the group is empty
"""

import os
from itertools import combinations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from distributedlog.groups.config import GroupConfig, MigrationPolicy
from distributedlog.groups.consumer.group import TRANSITIONS
from distributedlog.groups.consumer.topics import NO_PARTITIONS, TopicIdPartition, TopicIdPartitions
from distributedlog.groups.records import ConsumerRecord
from distributedlog.groups.requests import ConsumerHeartbeatReply, JoinReply, Leaver, SyncReply
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.protocol.messages.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
)
from tests.unit.groups.consumer.stage import (
    REVOCATION_MS,
    SESSION_MS,
    Client,
    ConsumerStage,
    Topics,
    classic_offer,
    encode_assignment,
    owned_in,
    partitions_in,
    steps_of,
)
from tests.unit.groups.stage import GROUP, REBALANCE_MS, Waiting, decoded

SOAK = os.environ.get("DLOG_SOAK") == "1"
CLIENTS_MAX = 5
ROUNDS_MAX = 30
IS_OVER = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
)
SUBSCRIPTIONS: list[tuple[tuple[str, ...], str | None]] = [
    (("t",), None),
    (("t", "u"), None),
    ((), "[tu]"),
    (("t",), "u.*"),
]


class Modern(Client):
    """A member that may have an answer outstanding."""

    ticket: int | None = None

    def ask(self) -> None:
        self.ticket = self.stage.begin(self.request())

    def look(self, *, lost: bool = False) -> None:
        reply = None if self.ticket is None else self.stage.answers.pop(self.ticket, None)
        if reply is None:
            return
        self.ticket = None
        if lost:
            self.must_say_all = True
        elif isinstance(reply, DlogError):
            if reply.code in IS_OVER:
                self.forget()
        else:
            assert isinstance(reply, ConsumerHeartbeatReply)
            self.hear(reply)

    def drop(self) -> None:
        self.ticket, self.must_say_all = None, True

    def absorb(self, *, gives_up: bool) -> None:
        """It takes what it heard of, once it has given up what it has to; but nothing while a request is
        under way that says that it has not got it."""
        if self.ticket is None and (gives_up or self.owned <= self.assigned):
            self.take()

    def step(self) -> None:
        """Everything that a lively member does in a while."""
        if self.ticket is None:
            self.absorb(gives_up=True)
            self.ask()
        self.look()
        self.absorb(gives_up=True)

    @property
    def is_known(self) -> bool:
        group = self.stage.machine.consumers.by_id.get(GROUP)
        member = None if group is None else group.members.get(self.member_id)
        return member is not None and self.epoch in (member.epoch, member.previous_epoch)


class Classic:
    """A member of the classic protocol: an eager one gives up everything before it joins, a cooperative one
    goes on, gives up what it is assigned no longer, and then joins again.  A leader of either kind gives to
    nobody what another says that it owns."""

    def __init__(self, stage: ConsumerStage, is_cooperative: bool) -> None:
        self.stage = stage
        self.is_cooperative = is_cooperative
        self.member_id = ""
        self.generation = -1
        self.owned: TopicIdPartitions = NO_PARTITIONS
        self.waits: Waiting | None = None
        self.must_join = True

    def ask(self) -> None:
        if self.must_join:
            if not self.is_cooperative:
                self.owned = NO_PARTITIONS
            protocols = classic_offer(self.stage, "t", owned=self.owned)
            self.waits = self.stage.join(self.member_id, protocols=protocols)
            self.must_join = False
            return
        code = self.stage.heartbeat(self.member_id, self.generation) if self.stage.commits else None
        if code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            self.must_join = True
        elif code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.forget()

    def look(self, *, lost: bool = False) -> None:
        waiting = self.waits
        if waiting is None or not waiting.is_answered:
            return
        self.waits = None
        reply = waiting.reply
        if lost or waiting.code is not ErrorCode.NONE:
            self.must_join = True
            if isinstance(reply, JoinReply):
                self.member_id = reply.member_id
            if waiting.code in IS_OVER:
                self.forget()
        elif isinstance(reply, SyncReply):
            assigned = partitions_in(self.stage, reply.assignment)
            self.must_join = not self.owned <= assigned
            self.owned = assigned
        else:
            self.joined(waiting.joined)
            self.look()

    def joined(self, reply: JoinReply) -> None:
        self.member_id, self.generation = reply.member_id, reply.generation
        given: dict[str, list[TopicIdPartition]] = {each.member_id: [] for each in reply.members}
        owners = {tp: each.member_id for each in reply.members for tp in owned_in(self.stage, each.metadata)}
        for at, tp in enumerate(sorted(self.stage.topics.all_partitions("t")) if given else ()):
            given[owners.get(tp, reply.members[at % len(given)].member_id)].append(tp)
        parts = {member_id: encode_assignment(self.stage, tps) for member_id, tps in given.items()}
        self.waits = self.stage.sync(self.member_id, self.generation, parts)

    def forget(self) -> None:
        self.member_id, self.generation, self.owned, self.must_join = "", -1, NO_PARTITIONS, True

    def drop(self) -> None:
        self.waits, self.must_join = None, True

    def step(self) -> None:
        if self.waits is None:
            self.ask()
        self.look()

    @property
    def is_known(self) -> bool:
        machine = self.stage.machine
        consumer = machine.consumers.by_id.get(GROUP)
        if consumer is not None:
            member = consumer.members.get(self.member_id)
            return member is not None and member.epoch == self.generation
        group = machine.groups.get(GROUP)
        return group is not None and self.member_id in group.members and group.generation == self.generation


class ConsumerModel(RuleBasedStateMachine):
    @initialize(commits=st.sampled_from([True, True, False]), policy=st.sampled_from(MigrationPolicy))
    def begin(self, commits: bool, policy: MigrationPolicy) -> None:
        config = GroupConfig(
            initial_rebalance_delay_ms=0, consumer_session_timeout_ms=SESSION_MS, migration_policy=policy
        )
        self.stage = ConsumerStage(Topics(t=3), config, commits=commits)
        self.clients: list[Modern | Classic] = []
        self.ids = 0
        self.committed = 0
        """Entries that no coordinator has lost."""

    # --- members -------------------------------------------------------------------------------

    @rule(instance=st.sampled_from([None, None, "i0", "i1"]), reads=st.sampled_from(SUBSCRIPTIONS))
    def come(self, instance: str | None, reads: tuple[tuple[str, ...], str | None]) -> None:
        if len(self.clients) < CLIENTS_MAX:
            self.ids += 1
            client = Modern(self.stage, f"m{self.ids}", reads[0], instance, reads[1])
            self.clients.append(client)
            client.ask()
            client.look()
            client.absorb(gives_up=True)

    @rule(is_cooperative=st.booleans())
    def come_classic(self, is_cooperative: bool) -> None:
        if len(self.clients) < CLIENTS_MAX:
            self.clients.append(Classic(self.stage, is_cooperative))
            self.clients[-1].step()

    @precondition(lambda self: self.clients)
    @rule(at=st.integers(0, CLIENTS_MAX - 1), lost=st.booleans(), gives_up=st.booleans())
    def beat(self, at: int, lost: bool, gives_up: bool) -> None:
        client = self.clients[at % len(self.clients)]
        if (client.ticket if isinstance(client, Modern) else client.waits) is None:
            client.ask()
        client.look(lost=lost)
        if isinstance(client, Modern):
            client.absorb(gives_up=gives_up)

    @precondition(lambda self: self.clients)
    @rule(at=st.integers(0, CLIENTS_MAX - 1))
    def live(self, at: int) -> None:
        self.clients[at % len(self.clients)].step()

    @precondition(lambda self: self.clients)
    @rule(at=st.integers(0, CLIENTS_MAX - 1), reads=st.sampled_from(SUBSCRIPTIONS))
    def change(self, at: int, reads: tuple[tuple[str, ...], str | None]) -> None:
        client = self.clients[at % len(self.clients)]
        if isinstance(client, Modern):
            client.topics, client.pattern, client.must_say_all = reads[0], reads[1] or "", True

    @precondition(lambda self: self.clients and self.stage.commits)
    @rule(at=st.integers(0, CLIENTS_MAX - 1), how=st.sampled_from(["leaves", "is away", "is killed"]))
    def go(self, at: int, how: str) -> None:
        client = self.clients.pop(at % len(self.clients))
        if how == "is killed":
            return
        if isinstance(client, Classic):
            self.stage.leave(Leaver(client.member_id))
        elif how == "leaves" or client.instance is not None:
            client.leave(-1 if how == "leaves" else -2)

    # --- the cluster ---------------------------------------------------------------------------

    @rule(count=st.integers(1, 5))
    def grow(self, count: int) -> None:
        view = self.stage.topics.named("t")
        if view is not None and view.partition_count < count:
            self.stage.topics.grow("t", count)

    @rule(name=st.sampled_from(["u", "u2"]))
    def create_or_remove(self, name: str) -> None:
        if self.stage.topics.named(name) is None:
            self.stage.topics.create(name, 2)
        else:
            self.stage.topics.remove(name)

    @rule(ms=st.sampled_from([1, 5_000, SESSION_MS - 1, REVOCATION_MS]))
    def wait(self, ms: int) -> None:
        self.stage.advance(ms)

    @rule()
    def commit(self) -> None:
        self.stage.settle(commit=True)

    @rule(lost=st.integers(0, 3))
    def fail_over(self, lost: int) -> None:
        self.committed = max(self.committed, self.stage.runtime.committed_offset + 1)
        for client in self.clients:
            client.look()
            client.drop()
        self.stage.failover(keep=max(self.committed, len(self.stage.log.entries) - lost))

    # --- checking ------------------------------------------------------------------------------

    @invariant()
    def nobody_reads_what_another_reads(self) -> None:
        known = [client for client in self.clients if client.is_known]
        for one, other in combinations(known, 2):
            assert not one.owned & other.owned, "two owners"

    @invariant()
    def what_is_held_is_held_by_one(self) -> None:
        machine = self.stage.machine
        assert not machine.groups.keys() & machine.consumers.by_id.keys(), "one name, two groups"
        for group in machine.consumers.by_id.values():
            holds = [(tp, each.member_id) for each in group.members.values() for tp in each.holds]
            assert len(dict(holds)) == len(holds), "two owners"
            assert dict(holds) == group.owners
            assert group.target_epoch <= group.epoch
            assert all(each.epoch <= group.target_epoch for each in group.members.values())
            targets = [tp for member_id in group.members for tp in group.target(member_id)]
            assert len(set(targets)) == len(targets)
            assert set(group.static.values()) <= group.members.keys()

    @invariant()
    def the_durable_state_is_the_replay_of_the_log(self) -> None:
        entries = self.stage.log.entries
        cut = len(entries) // 2
        early, late = self.stage.new_machine(), self.stage.new_machine()
        for offset, entry in enumerate(entries[:cut]):
            early.replay(decoded(entry), offset)
        late.restore(early.snapshot(), cut)
        for machine, start in ((early, cut), (late, cut)):
            for offset, entry in enumerate(entries[start:], start):
                machine.replay(decoded(entry), offset)
        whole = list(self.stage.machine.durable_records())
        assert list(early.durable_records()) == whole
        assert list(late.durable_records()) == whole

    def check_epochs(self) -> None:
        """Checks epochs in the log; a group that was deleted begins anew."""
        epoch, members = 0, dict[str, int]()
        for record in (each for entry in self.stage.log.entries for each in decoded(entry)):
            if not isinstance(record, ConsumerRecord):
                continue
            key, value = record
            if isinstance(key, ConsumerGroupMetadataKey):
                assert value is None or isinstance(value, ConsumerGroupMetadataValue)
                assert value is None or value.epoch > epoch
                epoch = 0 if value is None else value.epoch
            elif isinstance(key, ConsumerGroupCurrentMemberAssignmentKey):
                assert value is None or isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
                if value is None or value.member_epoch <= 0:
                    members.pop(key.member_id, None)
                    continue
                assert value.member_epoch >= members.get(key.member_id, 0)
                members[key.member_id] = value.member_epoch

    def teardown(self) -> None:
        if not hasattr(self, "stage"):
            return
        stage = self.stage
        self.check_epochs()
        assert all(after in TRANSITIONS[before] for before, after in steps_of(stage))
        stage.commits = True
        stage.settle()
        # Those who are silent are out first, static members that are away among them.
        for _ in range(20):
            for client in self.clients:
                client.step()
            stage.advance(4_000)
        for _ in range(ROUNDS_MAX):
            for client in self.clients:
                client.step()
        self.check_all_is_read()
        stage.advance(10 * REBALANCE_MS)
        assert not any(group.members for group in stage.machine.consumers.by_id.values())
        assert not any(group.members for group in stage.machine.groups.values())

    def check_all_is_read(self) -> None:
        stage = self.stage
        group = stage.machine.consumers.by_id.get(GROUP)
        if group is None or not group.members:
            return
        assert group.state == "Stable", "a reconciliation does not end"
        read = frozenset[TopicIdPartition]().union(
            *(client.owned for client in self.clients if client.is_known)
        )
        assert read == stage.topics.all_partitions(*group.subscribed_topics()), "not all is read"


ConsumerModel.TestCase.settings = settings(
    max_examples=1_000 if SOAK else 40, stateful_step_count=60 if SOAK else 40, deadline=None
)
TestConsumerGroups = ConsumerModel.TestCase
