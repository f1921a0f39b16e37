"""A broker's group coordinators on real partitions of a simulated disk.  Syncs, loading and time go on when
the test says."""

from distributedlog.broker.cluster.lease_grant import LeaseGrant
from distributedlog.broker.coordination.coordinators import GroupCoordinators
from distributedlog.broker.coordination.lease import CoordinatorLease
from distributedlog.groups.config import GroupConfig
from distributedlog.groups.requests import (
    CommitRequest,
    CommittedOffset,
    FetchOffsetsReply,
    FetchOffsetsRequest,
    JoinReply,
    JoinRequest,
    Reply,
    Request,
    SupportedProtocol,
    SyncReply,
    SyncRequest,
)
from distributedlog.model.config import LogConfig
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition
from distributedlog.model.internal_topics import OFFSETS_TOPIC
from distributedlog.ports.executor import Outcome
from tests.simulation.clock import SeededRandomness
from tests.unit.broker.partition_stage import ME, Stage

GROUP = "g"
OFFSETS_NUMBER, TOPIC_NUMBER = 50, 1
DEADLINE_MS = 30_000
SESSION_MS = 10_000
FOR_EVER = LeaseGrant(1 << 62, settled_offset=1 << 62)


class Told:
    """What became of a request."""

    def __init__(self) -> None:
        self.outcome: Outcome[Reply] | None = None

    def __call__(self, outcome: Outcome[Reply]) -> None:
        assert self.outcome is None, "nobody is told twice"
        self.outcome = outcome

    @property
    def is_told(self) -> bool:
        return self.outcome is not None

    @property
    def reply(self) -> Reply:
        assert self.outcome is not None, "it still waits"
        return self.outcome.value()

    @property
    def code(self) -> ErrorCode:
        assert self.outcome is not None, "it still waits"
        error = self.outcome.error
        if error is not None:
            assert isinstance(error, DlogError)
            return error.code
        reply = self.outcome.value()
        return reply.error if isinstance(reply, JoinReply | SyncReply) else ErrorCode.NONE


def joined(told: Told) -> JoinReply:
    reply = told.reply
    assert isinstance(reply, JoinReply)
    return reply


class GroupStage:
    """Broker 1, which leads `__consumer_offsets` and a topic `t`."""

    def __init__(self, *, partitions: int = 1, log: LogConfig | None = None) -> None:
        self.stage = Stage(log=log or LogConfig(file_delete_delay_ms=0, cleanup_policy=("compact",)))
        self.metadata = self.stage.metadata
        self.metadata.create("t", TOPIC_NUMBER)
        self.metadata.create(OFFSETS_TOPIC, OFFSETS_NUMBER, partitions)
        self.awaited: list[int] = []
        """Offsets of which coordinators wait to hear that they are settled."""
        self.applied: list[tuple[int, bool]] = []
        self.attach()

    def attach(self) -> None:
        """The coordinators of the process that has just begun; no predecessor of theirs is left."""
        self.lease = CoordinatorLease(
            lambda: self.metadata.image,
            clock=self.stage.clock,
            scheduler=self.stage.scheduler,
            tell_applied=lambda offset, is_urgent: self.applied.append((offset, is_urgent)),
            await_settled=self.awaited.append,
        )
        self.lease.take(FOR_EVER)
        self.groups = self.new_coordinators()
        self.stage.apply()

    def new_coordinators(self) -> GroupCoordinators:
        return GroupCoordinators(
            GroupConfig(initial_rebalance_delay_ms=0),
            self.stage.partitions.signals,
            lambda: self.metadata.image,
            broker_id=ME,
            clock=self.stage.clock,
            scheduler=self.stage.scheduler,
            executor=self.stage.executor,
            randomness=SeededRandomness(1),
            lease=self.lease,
        )

    def restart(self) -> None:
        """Killed, and started again on what was synced."""
        self.stage.restart()
        self.attach()

    def settle(self) -> None:
        self.stage.settle()

    def ask(self, request: Request, group: str = GROUP, deadline_ms: int = DEADLINE_MS) -> Told:
        told = Told()
        self.groups.submit(group, request, self.stage.clock.monotonic_ms() + deadline_ms, told)
        return told

    def commit(self, offset: int, group: str = GROUP, *, partition: int = 0, topic: str = "t") -> Told:
        position = CommittedOffset(TopicPartition(topic, partition), offset, -1, "")
        return self.ask(CommitRequest(group, "", None, -1, (position,)), group)

    def fetch(self, group: str = GROUP) -> Told:
        return self.ask(FetchOffsetsRequest(group, None), group)

    def committed(self, group: str = GROUP) -> list[int]:
        reply = self.fetch(group).reply
        assert isinstance(reply, FetchOffsetsReply)
        return [each.offset for each in reply.offsets]

    def join(self, member_id: str = "") -> Told:
        protocols = (SupportedProtocol("range", b""),)
        return self.ask(
            JoinRequest(
                GROUP,
                member_id,
                None,
                "c",
                "/h",
                SESSION_MS,
                60_000,
                "consumer",
                protocols,
                0,
                must_know_id=False,
            )
        )

    def sync(self, member_id: str, generation: int, assignment: bytes) -> Told:
        given = ((member_id, assignment),)
        return self.ask(SyncRequest(GROUP, member_id, None, generation, None, None, given, 0))
