"""A coordinator of consumer groups on a log in memory, topics that come, grow and go, and honest members."""

from collections.abc import Iterable, Iterator, Mapping

from distributedlog.groups.config import GroupConfig, MigrationPolicy
from distributedlog.groups.consumer.classic_members import find_partitions
from distributedlog.groups.consumer.group import ConsumerGroup, ConsumerGroupState
from distributedlog.groups.consumer.topics import (
    NO_PARTITIONS,
    TopicIdPartition,
    TopicIdPartitions,
    TopicView,
)
from distributedlog.groups.machine import GroupMachine
from distributedlog.groups.records import ConsumerRecord
from distributedlog.groups.requests import (
    ConsumerHeartbeatReply,
    ConsumerHeartbeatRequest,
    DescribeConsumerGroupReply,
    DescribeConsumerGroupRequest,
    SupportedProtocol,
)
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import Uuid
from distributedlog.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
)
from distributedlog.protocol.versioned import decode_versioned, encode_versioned
from tests.unit.groups.stage import GROUP, WALL_MS, Stage, decoded

SESSION_MS = 45_000
REVOCATION_MS = 60_000
CONFIG = GroupConfig(initial_rebalance_delay_ms=0, consumer_session_timeout_ms=SESSION_MS)


class Topics:
    """The cluster's, as a coordinator sees them."""

    def __init__(self, **partition_counts: int) -> None:
        self._numbers = 0
        self._views: dict[str, TopicView] = {}
        self.mark: object = object()
        self.names_mark: object = object()
        self.version = 0
        self.settings: dict[str, dict[str, str]] = {}
        """The settings of groups, by their ids."""
        for name, count in partition_counts.items():
            self.create(name, count)

    def create(self, name: str, count: int) -> None:
        self._numbers += 1
        self._views[name] = TopicView(Uuid(self._numbers.to_bytes(16, "big")), name, count)
        self._changed(names=True)

    def grow(self, name: str, count: int) -> None:
        self._views[name] = self._views[name]._replace(partition_count=count)
        self._changed(names=False)

    def remove(self, name: str) -> None:
        del self._views[name]
        self._changed(names=True)

    def _changed(self, *, names: bool) -> None:
        self.version += 1
        self.mark = object()
        if names:
            self.names_mark = object()

    def named(self, name: str) -> TopicView | None:
        return self._views.get(name)

    def name_of(self, topic_id: Uuid) -> str | None:
        return next((view.name for view in self._views.values() if view.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return [name for name in self._views if not name.startswith("__")]

    def group_settings(self, group_id: str) -> Mapping[str, str]:
        return self.settings.get(group_id, {})

    def all_partitions(self, *names: str) -> TopicIdPartitions:
        views = [self._views[name] for name in names if name in self._views]
        return frozenset(
            TopicIdPartition(view.topic_id, at) for view in views for at in range(view.partition_count)
        )


class ConsumerStage(Stage):
    def __init__(
        self,
        topics: Topics | None = None,
        config: GroupConfig = CONFIG,
        *,
        commits: bool = True,
        policy: MigrationPolicy | None = None,
    ) -> None:
        self.topics = topics or Topics(t=4)
        if policy is not None:
            config = GroupConfig(initial_rebalance_delay_ms=0, migration_policy=policy)
        super().__init__(config, commits=commits)

    def new_machine(self) -> GroupMachine:
        return GroupMachine(self.config, self._new_id, lambda: WALL_MS + self.now_ms, lambda: self.topics)

    @property
    def group(self) -> ConsumerGroup:
        return self.machine.consumers.by_id[GROUP]

    def describe(self) -> DescribeConsumerGroupReply:
        reply = self.ask(DescribeConsumerGroupRequest(GROUP))
        assert isinstance(reply, DescribeConsumerGroupReply)
        return reply

    def member(
        self,
        member_id: str,
        *topics: str,
        instance: str | None = None,
        pattern: str | None = None,
        assignor: str | None = None,
    ) -> "Client":
        """One that has joined."""
        client = Client(self, member_id, topics or (() if pattern else ("t",)), instance, pattern, assignor)
        client.beat()
        return client

    def settle_members(self, *clients: "Client", rounds: int = 10) -> None:
        """Everybody is heard until everybody has what it is to have."""
        for _ in range(rounds):
            for client in clients:
                client.beat()
        assert self.describe().state == "Stable", "a reconciliation does not end"


class Client:
    """A member that does what it is told: it gives up before it says so, and takes what it hears of."""

    def __init__(
        self,
        stage: ConsumerStage,
        member_id: str,
        topics: tuple[str, ...] = ("t",),
        instance: str | None = None,
        pattern: str | None = None,
        assignor: str | None = None,
    ) -> None:
        self.stage = stage
        self.member_id = member_id
        self.topics = topics
        self.instance = instance
        self.pattern = pattern
        self.assignor = assignor
        self.epoch = 0
        self.owned: TopicIdPartitions = NO_PARTITIONS
        self.assigned: TopicIdPartitions = NO_PARTITIONS
        """The assignment as it was last told."""
        self.must_say_all = True

    def request(self, *, epoch: int | None = None) -> ConsumerHeartbeatRequest:
        says_all = self.must_say_all or self.epoch == 0
        return ConsumerHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            epoch=self.epoch if epoch is None else epoch,
            instance_id=self.instance,
            client_id="client",
            client_host="/host",
            rebalance_timeout_ms=REVOCATION_MS if says_all else -1,
            topics=self.topics if says_all else None,
            pattern=self.pattern if says_all else None,
            assignor=self.assignor,
            owned=self.owned,
        )

    def give_up(self) -> None:
        self.owned &= self.assigned

    def hear(self, reply: ConsumerHeartbeatReply) -> None:
        assert reply.epoch >= self.epoch, "epochs only rise"
        self.epoch = reply.epoch
        self.must_say_all = False
        if reply.assignment is not None:
            self.assigned = reply.assignment

    def forget(self) -> None:
        """It is told that it is no member: it stops reading, and begins anew."""
        self.epoch, self.owned, self.assigned = 0, NO_PARTITIONS, NO_PARTITIONS
        self.must_say_all = True

    def beat(self, *, gives_up: bool = True) -> ErrorCode:
        """One heartbeat.  What it has to give up it gives up at once, unless told otherwise; what it gets it
        takes when nothing is left to give up."""
        try:
            reply = self.stage.ask(self.request())
        except DlogError as error:
            return error.code
        assert isinstance(reply, ConsumerHeartbeatReply)
        self.hear(reply)
        if gives_up:
            self.take()
        return ErrorCode.NONE

    def take(self) -> None:
        self.give_up()
        self.owned = self.assigned

    def leave(self, epoch: int = -1) -> ErrorCode:
        return self.stage.code_of(self.request(epoch=epoch)._replace(topics=None, owned=None))

    @property
    def partitions(self) -> list[int]:
        return sorted(tp.partition for tp in self.owned)


# --- clients of the classic protocol -----------------------------------------------------------


def classic_offer(
    stage: ConsumerStage, *topics: str, owned: TopicIdPartitions = NO_PARTITIONS, name: str = "range"
) -> tuple[SupportedProtocol, ...]:
    parts: dict[str, list[int]] = {}
    for tp in sorted(owned):
        topic = stage.topics.name_of(tp.topic_id)
        if topic is not None:
            parts.setdefault(topic, []).append(tp.partition)
    subscription = ConsumerProtocolSubscription(
        topics=list(topics or ("t",)),
        owned_partitions=[TopicPartitions(topic=topic, partitions=each) for topic, each in parts.items()],
    )
    return (SupportedProtocol(name, encode_versioned(subscription, 1)),)


def owned_in(stage: ConsumerStage, metadata: bytes) -> TopicIdPartitions:
    """What a member says in its subscription that it owns."""
    return find_partitions(
        decode_versioned(ConsumerProtocolSubscription, metadata)[1].owned_partitions, stage.topics
    )


def partitions_in(stage: ConsumerStage, assignment: bytes) -> TopicIdPartitions:
    if not assignment:
        return NO_PARTITIONS
    message = decode_versioned(ConsumerProtocolAssignment, assignment)[1]
    return find_partitions(message.assigned_partitions, stage.topics)


def encode_assignment(stage: ConsumerStage, tps: Iterable[TopicIdPartition]) -> bytes:
    parts: dict[str, list[int]] = {}
    for tp in sorted(tps):
        parts.setdefault(stage.topics.name_of(tp.topic_id) or "gone", []).append(tp.partition)
    message = ConsumerProtocolAssignment(
        assigned_partitions=[TopicPartitions(topic=topic, partitions=each) for topic, each in parts.items()]
    )
    return encode_versioned(message, 0)


# --- the log -----------------------------------------------------------------------------------


def steps_of(stage: ConsumerStage) -> Iterator[tuple[ConsumerGroupState, ConsumerGroupState]]:
    """What each entry of the log that is about the group made of it."""
    machine = stage.new_machine()

    def state() -> ConsumerGroupState:
        group = machine.consumers.by_id.get(GROUP)
        return ConsumerGroupState.DEAD if group is None else group.state

    for offset, entry in enumerate(stage.log.entries):
        before, records = state(), decoded(entry)
        machine.replay(records, offset)
        if any(isinstance(record, ConsumerRecord) for record in records):
            yield before, state()
