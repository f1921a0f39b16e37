"""Requests to a group coordinator, and its replies.  Immutable.

A request fails as a whole by an error that is raised.  JoinGroup and SyncGroup may have to wait for other
members; their reply is `DEFERRED`, and the real one comes later as a `DeferredReply` effect under the number
that the request has (`waiter`).  A handler makes a response to the client of a reply.
"""

from typing import Final, NamedTuple

from distributedlog.groups.consumer.topics import TopicIdPartitions
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition
from distributedlog.statemachine import Producer

NO_GENERATION: Final = -1
NO_MEMBER: Final = ""


class SupportedProtocol(NamedTuple):
    """An assignor that a member knows, and what it has to say to it."""

    name: str
    metadata: bytes


# --- membership --------------------------------------------------------------------------------


class JoinRequest(NamedTuple):
    group_id: str
    member_id: str
    """Empty for a member that has none yet."""
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[SupportedProtocol, ...]
    """The best one first."""
    waiter: int
    must_know_id: bool = True
    """A member without an id is given one and has to join again with it: one that is gone leaves no trace."""
    may_skip_assignment: bool = False


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinReply(NamedTuple):
    member_id: str
    error: ErrorCode = ErrorCode.NONE
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader_id: str = NO_MEMBER
    members: tuple[JoinedMember, ...] = ()
    """The members, for the leader only."""
    skip_assignment: bool = False


class SyncRequest(NamedTuple):
    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: tuple[tuple[str, bytes], ...]
    """The assignments by member; from the leader only."""
    waiter: int


class SyncReply(NamedTuple):
    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class HeartbeatRequest(NamedTuple):
    group_id: str
    member_id: str
    instance_id: str | None
    generation: int


class Leaver(NamedTuple):
    member_id: str
    """May be empty if there is an instance id: then whoever has it goes."""
    instance_id: str | None = None


class LeaveRequest(NamedTuple):
    group_id: str
    leavers: tuple[Leaver, ...]


class LeaveReply(NamedTuple):
    errors: tuple[ErrorCode, ...]
    """One for each leaver."""


# --- membership of consumer groups -------------------------------------------------------------


class ConsumerHeartbeatRequest(NamedTuple):
    """What is None is as it was."""

    group_id: str
    member_id: str
    epoch: int
    """0 joins, -1 leaves, -2 leaves for a while."""
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    """Empty: none."""
    assignor: str | None = None
    owned: TopicIdPartitions | None = None
    """What the member has now."""


class ConsumerHeartbeatReply(NamedTuple):
    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assignment: TopicIdPartitions | None = None


# --- offsets -----------------------------------------------------------------------------------


class CommittedOffset(NamedTuple):
    """Where a group goes on reading a partition."""

    partition: TopicPartition
    offset: int
    leader_epoch: int
    metadata: str


class CommitRequest(NamedTuple):
    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    """Negative of a consumer that is in no generation."""
    offsets: tuple[CommittedOffset, ...]
    retention_ms: int | None = None
    """The retention of clients that set it themselves."""
    knows_epochs: bool = True
    """Whether the request's version can tell a member's epoch from a generation."""


class TransactionalCommitRequest(NamedTuple):
    """Offsets that are committed with a transaction: until its marker they are pending."""

    commit: CommitRequest
    producer: Producer


class CommitReply(NamedTuple):
    errors: tuple[ErrorCode, ...]
    """One for each committed offset."""


class MergedCommitRequest(NamedTuple):
    """Commits of several requests, in the order in which they came: one entry keeps them all.

    Only of groups that exist: whether there may be one more is decided for one commit at a time.
    """

    commits: tuple[CommitRequest, ...]


class MergedCommitReply(NamedTuple):
    replies: tuple[CommitReply | DlogError, ...]
    """One for each: the reply or error that it would have got by itself."""


class FetchOffsetsRequest(NamedTuple):
    group_id: str
    partitions: tuple[TopicPartition, ...] | None
    """None: all there are."""
    member_id: str | None = None
    epoch: int = NO_GENERATION
    """The epoch of a member of a consumer group, if it says so."""
    requires_stable: bool = False
    """Partitions of which an open transaction holds an offset are not answered with the one before."""


class FetchOffsetsReply(NamedTuple):
    offsets: tuple[CommittedOffset, ...]
    """The offsets of the partitions that have one."""
    unstable: frozenset[TopicPartition] = frozenset()
    """Partitions whose offset an open transaction may replace, if stable ones are required; they have none in
    `offsets`."""


class DeleteOffsetsRequest(NamedTuple):
    group_id: str
    partitions: tuple[TopicPartition, ...]


class DeleteOffsetsReply(NamedTuple):
    errors: tuple[ErrorCode, ...]
    """One for each partition."""


# --- groups as a whole -------------------------------------------------------------------------


class DescribeRequest(NamedTuple):
    group_id: str


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribeReply(NamedTuple):
    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]


class DescribeConsumerGroupRequest(NamedTuple):
    group_id: str


class DescribedConsumer(NamedTuple):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    pattern: str | None
    assigned: TopicIdPartitions
    target: TopicIdPartitions
    is_classic: bool


class DescribeConsumerGroupReply(NamedTuple):
    group_id: str
    state: str
    epoch: int
    target_epoch: int
    assignor: str
    members: tuple[DescribedConsumer, ...]


class ListRequest(NamedTuple):
    pass


class GroupListing(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    type: str


class ListReply(NamedTuple):
    groups: tuple[GroupListing, ...]


class DeleteGroupRequest(NamedTuple):
    group_id: str


class ForgetTopicsRequest(NamedTuple):
    """The topics are gone: a later one of the same name has nothing to do with what was read of them."""

    topics: frozenset[str]


class PartDone(NamedTuple):
    """The reply where as much was done as fits one entry: the request is sent again for the rest."""


PART_DONE: Final = PartDone()


class Deferred(NamedTuple):
    """The reply depends on other members: it comes as an effect."""


DEFERRED: Final = Deferred()


class DeferredReply(NamedTuple):
    """An effect: the reply to the request with this number."""

    waiter: int
    reply: JoinReply | SyncReply


Request = (
    JoinRequest
    | SyncRequest
    | HeartbeatRequest
    | LeaveRequest
    | CommitRequest
    | MergedCommitRequest
    | TransactionalCommitRequest
    | FetchOffsetsRequest
    | DeleteOffsetsRequest
    | DescribeRequest
    | ConsumerHeartbeatRequest
    | DescribeConsumerGroupRequest
    | ListRequest
    | DeleteGroupRequest
    | ForgetTopicsRequest
)
Reply = (
    JoinReply
    | SyncReply
    | LeaveReply
    | CommitReply
    | MergedCommitReply
    | FetchOffsetsReply
    | DeleteOffsetsReply
    | DescribeReply
    | ConsumerHeartbeatReply
    | DescribeConsumerGroupReply
    | ListReply
    | Deferred
    | PartDone
    | None
)
"""None: it was done, and there is nothing more to say (a heartbeat, a group deleted)."""
