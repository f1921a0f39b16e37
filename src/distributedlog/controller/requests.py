"""Requests to the controller, and its replies.  Immutable: they cross threads.

A request as a whole is refused by an error that is raised; what is wrong with one of its items stands in the
outcome of that item, and does not hold up the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from distributedlog.controller.configs import ConfigEdit
from distributedlog.controller.image import (
    ConfigResource,
    ControllerRegistration,
    Endpoint,
    MetadataImage,
    QuotaEntity,
    SupportedLevels,
)
from distributedlog.controller.quotas import QuotaEdit
from distributedlog.controller.replica_faults import ReplicaFault
from distributedlog.controller.sessions.log_ends import ReplicaLogEnd
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import ZERO_UUID, TopicPartition, Uuid

AS_CONFIGURED: Final = -1
UNKNOWN_EPOCH: Final = -1


class ItemOutcome(NamedTuple):
    """The outcome of one item of a request."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def failure(error: DlogError) -> ItemOutcome:
    return ItemOutcome(error.code, str(error))


# --- brokers -----------------------------------------------------------------------------------


class RegisterBrokerRequest(NamedTuple):
    cluster_id: str
    broker_id: int
    incarnation_id: Uuid
    """The incarnation of the process: another one each time it starts."""
    endpoints: tuple[Endpoint, ...]
    features: tuple[SupportedLevels, ...]
    rack: str | None = None
    log_dirs: tuple[Uuid, ...] = ()
    """The ids of its disks: other ids mean that the old disks are gone."""
    previous_broker_epoch: int = UNKNOWN_EPOCH
    """The epoch in which it last stopped with all it had on disk; unknown after an unclean stop."""
    predecessors: tuple[Uuid, ...] = ()
    """Incarnations that are dead: this process has the lock under which they ran (decision 30)."""
    synced_broker_epoch: int = UNKNOWN_EPOCH
    """The epoch in which it committed nothing that it had not synced (decision 33)."""
    host: str | None = None
    """The machine it runs on; None: where it listens says it."""


class RegisterBrokerReply(NamedTuple):
    broker_epoch: int


class HeartbeatRequest(NamedTuple):
    broker_id: int
    broker_epoch: int
    metadata_offset: int
    """How far it has replayed the metadata log."""
    want_fence: bool = False
    want_shutdown: bool = False
    data_loop_lag_ms: int = 0
    replica_faults: tuple[ReplicaFault, ...] = ()
    """What it can serve of its replicas, where that has changed; told until a controller has taken it."""
    applied_offset: int | None = None
    """How far it has applied the metadata log on its data loop; None from a broker that does not tell."""
    log_ends: tuple[ReplicaLogEnd, ...] = ()
    """Where its logs end of partitions that nobody leads, at most LOG_ENDS_PER_HEARTBEAT_MAX at once."""


class HeartbeatReply(NamedTuple):
    is_caught_up: bool
    is_fenced: bool
    in_controlled_shutdown: bool
    should_shut_down: bool
    took_replica_faults: bool = False
    """Those of the request are settled; a controller that knows of none leaves it so."""
    lease_offset: int | None = None
    """The metadata offset that must be applied on the data loop for the coordinator's lease to count; None
    from a controller that does not tell."""
    settled_offset: int | None = None
    """The metadata offset up to which no other broker answers as the coordinator it was before; None from a
    controller that does not tell."""


class FenceRefusedRequest(NamedTuple):
    """Tells the controller, from inside it, that a silent broker has ports that refuse."""

    broker_id: int
    broker_epoch: int


class UnregisterBrokerRequest(NamedTuple):
    broker_id: int


# --- topics ------------------------------------------------------------------------------------


class NewTopic(NamedTuple):
    name: str
    num_partitions: int = AS_CONFIGURED
    replication_factor: int = AS_CONFIGURED
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """Partition and its replicas, for those who want to choose."""
    configs: tuple[tuple[str, str | None], ...] = ()


class CreateTopicsRequest(NamedTuple):
    topics: tuple[NewTopic, ...]
    validate_only: bool = False


class TopicOutcome(NamedTuple):
    name: str | None
    topic_id: Uuid = ZERO_UUID
    outcome: ItemOutcome = ItemOutcome()
    num_partitions: int = -1
    replication_factor: int = -1


class TopicsReply(NamedTuple):
    topics: tuple[TopicOutcome, ...]


class DeleteTopicsRequest(NamedTuple):
    topics: tuple[str | Uuid, ...]
    """The topics by name or by id."""


@dataclass(frozen=True, slots=True)
class MorePartitions:
    """One topic that is to have more."""

    name: str
    count: int
    """The count in all, the present ones included."""
    assignments: tuple[tuple[int, ...], ...] | None = None
    """The replicas of each new partition."""


class CreatePartitionsRequest(NamedTuple):
    topics: tuple[MorePartitions, ...]
    validate_only: bool = False


# --- configs -----------------------------------------------------------------------------------


class AlterConfigsRequest(NamedTuple):
    """Replaces all settings of each resource."""

    resources: tuple[tuple[ConfigResource, Mapping[str, str | None]], ...]
    validate_only: bool = False


class IncrementalAlterConfigsRequest(NamedTuple):
    resources: tuple[tuple[ConfigResource, tuple[ConfigEdit, ...]], ...]
    validate_only: bool = False


class ConfigsReply(NamedTuple):
    resources: tuple[tuple[ConfigResource, ItemOutcome], ...]


# --- partitions --------------------------------------------------------------------------------


class IsrMember(NamedTuple):
    broker_id: int
    broker_epoch: int = UNKNOWN_EPOCH


class IsrChange(NamedTuple):
    topic_id: Uuid
    partition_id: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[IsrMember, ...]
    recovery_state: int = 0


class AlterPartitionsRequest(NamedTuple):
    """Changes that only a partition's leader may request."""

    broker_id: int
    broker_epoch: int
    changes: tuple[IsrChange, ...]


class IsrOutcome(NamedTuple):
    topic_id: Uuid
    partition_id: int
    error: ErrorCode = ErrorCode.NONE
    leader: int = -1
    leader_epoch: int = -1
    partition_epoch: int = -1
    isr: tuple[int, ...] = ()
    recovery_state: int = 0


class AlterPartitionsReply(NamedTuple):
    changes: tuple[IsrOutcome, ...]


class ElectionType(IntEnum):
    """The kinds of elections, as Kafka numbers them."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectLeadersRequest(NamedTuple):
    election: int
    partitions: tuple[TopicPartition, ...] | None = None
    """None: all that need it."""


class ElectLeadersReply(NamedTuple):
    partitions: tuple[tuple[TopicPartition, ItemOutcome], ...]


# --- the rest ----------------------------------------------------------------------------------


class AllocateProducerIdsRequest(NamedTuple):
    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """Ids that nobody else was given."""

    first: int
    count: int


class UpdateFeaturesRequest(NamedTuple):
    levels: tuple[tuple[str, int], ...]
    validate_only: bool = False


class FeaturesReply(NamedTuple):
    features: tuple[tuple[str, ItemOutcome], ...]


# --- reassignments -----------------------------------------------------------------------------


class AlterReassignmentsRequest(NamedTuple):
    partitions: tuple[tuple[TopicPartition, tuple[int, ...] | None], ...]
    """Each with the replicas that it is to have; None cancels its move."""
    allow_replication_factor_change: bool = True


class AlterReassignmentsReply(NamedTuple):
    partitions: tuple[tuple[TopicPartition, ItemOutcome], ...]


# --- quotas ------------------------------------------------------------------------------------


class AlterQuotasRequest(NamedTuple):
    entities: tuple[tuple[QuotaEntity, tuple[QuotaEdit, ...]], ...]
    """Each with parts in any order; its outcome has the error of each."""
    validate_only: bool = False


class QuotasReply(NamedTuple):
    entities: tuple[tuple[QuotaEntity, ItemOutcome], ...]
    """The entities in the order of the request, with their parts as they came."""


# --- the quorum --------------------------------------------------------------------------------


class DescribeQuorumRequest(NamedTuple):
    """Asks for the voters and observers of the metadata log.  Served by the leader's Raft node, not the
    machine."""


class ReplicaProgress(NamedTuple):
    node_id: int
    log_end_offset: int
    """-1: unknown."""
    heard_ms: int = -1
    """The time of its last fetch or heartbeat, by the wall clock; -1: none reached this leader."""
    caught_up_ms: int = -1
    """The time at which it last had all that the leader had; -1: not under this leader."""


class QuorumReply(NamedTuple):
    leader_id: int
    term: int
    high_watermark: int
    voters: tuple[ReplicaProgress, ...]
    observers: tuple[ReplicaProgress, ...]


# --- voters ------------------------------------------------------------------------------------


class RegisterControllerRequest(NamedTuple):
    """A controller says where it is and what it votes with, when it starts and whenever the image does not
    say so."""

    cluster_id: str
    registration: ControllerRegistration


class ForgetControllerRequest(NamedTuple):
    """Tells the controller, from inside it, that a node was removed from the voters; if its registration is
    another by now, it stands."""

    registration: ControllerRegistration


class AddVoterRequest(NamedTuple):
    """Makes a registered controller a voter.  Served by the leader's Raft node, not the machine."""

    cluster_id: str | None
    """None: whoever asks does not say which cluster it means."""
    voter_id: int
    directory_id: Uuid = ZERO_UUID
    """The data directory that is meant; zero: the one that it has."""
    await_commit: bool = True


class RemoveVoterRequest(NamedTuple):
    """Makes a voter, or an observer on its way to be one, a stranger.  Served as the other."""

    cluster_id: str | None
    voter_id: int
    directory_id: Uuid = ZERO_UUID


# --- the whole ---------------------------------------------------------------------------------


class ReadImageRequest(NamedTuple):
    """The whole truth, once it is committed."""


Request = (
    RegisterBrokerRequest
    | HeartbeatRequest
    | FenceRefusedRequest
    | UnregisterBrokerRequest
    | CreateTopicsRequest
    | DeleteTopicsRequest
    | CreatePartitionsRequest
    | AlterConfigsRequest
    | IncrementalAlterConfigsRequest
    | AlterPartitionsRequest
    | ElectLeadersRequest
    | AllocateProducerIdsRequest
    | UpdateFeaturesRequest
    | AlterQuotasRequest
    | AlterReassignmentsRequest
    | DescribeQuorumRequest
    | RegisterControllerRequest
    | ForgetControllerRequest
    | AddVoterRequest
    | RemoveVoterRequest
    | ReadImageRequest
)
Response = (
    RegisterBrokerReply
    | HeartbeatReply
    | TopicsReply
    | ConfigsReply
    | AlterPartitionsReply
    | ElectLeadersReply
    | ProducerIdBlock
    | FeaturesReply
    | QuotasReply
    | AlterReassignmentsReply
    | QuorumReply
    | MetadataImage
    | None
)
