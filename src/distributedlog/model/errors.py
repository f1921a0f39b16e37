"""Every error this package raises on purpose.

Each class carries the Kafka error code with which a broker answers for it.  The message says what is
wrong and, where there is something to do, what to do.
"""

from typing import ClassVar

from distributedlog.model.error_codes import ErrorCode


class DlogError(Exception):
    """The root: `except DlogError` catches all that this package raises on purpose."""

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR


class ConfigError(DlogError):
    """A setting that is unknown or has an impossible value."""

    code = ErrorCode.INVALID_CONFIG


class InvalidNameError(DlogError):
    """A topic name that Kafka would not accept, or a directory that is not a partition's."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


# --- records -----------------------------------------------------------------------------------


class CorruptBatchError(DlogError):
    """Bytes that are not a whole, sound record batch."""

    code = ErrorCode.CORRUPT_MESSAGE


class InvalidRecordError(DlogError):
    """A batch that is sound but breaks a rule: no key where one is needed, lying counts, wrong order."""

    code = ErrorCode.INVALID_RECORD


class RejectedRecordsError(InvalidRecordError):
    """A batch of which some records break a rule: which, counted from 0, and what is wrong with each.  There
    may be more of them than are named."""

    def __init__(self, message: str, records: tuple[tuple[int, str], ...]) -> None:
        super().__init__(message)
        self.records = records


class UnsupportedFormatError(DlogError):
    """A batch of a format that is no longer written (magic 0 or 1)."""

    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class UnsupportedCompressionError(DlogError):
    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class RecordTooLargeError(DlogError):
    """A batch over `max.message.bytes`, or one that would decompress past its bound."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class BatchListTooLargeError(DlogError):
    """One append that no segment could hold."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE


class InvalidTimestampError(DlogError):
    """A batch of which some records have a time that the topic does not take: which, counted from 0, and what
    is wrong with each.  There may be more of them than are named."""

    code = ErrorCode.INVALID_TIMESTAMP

    def __init__(self, message: str, records: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(message)
        self.records = records


# --- producers ---------------------------------------------------------------------------------


class OutOfOrderSequenceError(DlogError):
    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class ApplicationRecoverableError(DlogError):
    """The client is of no use any more, but the program is: it closes the client and makes another one, which
    begins behind what was committed (KIP-1050)."""


class InvalidProducerEpochError(ApplicationRecoverableError):
    code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTransactionStateError(DlogError):
    code = ErrorCode.INVALID_TXN_STATE


class CoordinatorFencedError(DlogError):
    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class ProducerFencedError(ApplicationRecoverableError):
    """Another producer has the transactional id now, or the coordinator has ended the transaction itself."""

    code = ErrorCode.PRODUCER_FENCED


class InvalidProducerIdMappingError(ApplicationRecoverableError):
    """The transactional id is not known, or has another producer id."""

    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class ConcurrentTransactionsError(DlogError):
    """The transaction before is still being ended: to be tried again."""

    code = ErrorCode.CONCURRENT_TRANSACTIONS


class InvalidTransactionTimeoutError(DlogError):
    code = ErrorCode.INVALID_TRANSACTION_TIMEOUT


class TransactionAbortableError(DlogError):
    """The transaction cannot go on, but the producer can: it has to abort it."""

    code = ErrorCode.TRANSACTION_ABORTABLE


class TransactionAbortedError(DlogError):
    """A record was not delivered, because its transaction was aborted."""

    code = ErrorCode.TRANSACTION_ABORTABLE


class TransactionalIdNotFoundError(DlogError):
    code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


# --- the log -----------------------------------------------------------------------------------


class OffsetOutOfRangeError(DlogError):
    """An offset before the log's start or after its end."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class LogTruncationError(OffsetOutOfRangeError):
    """What was read is not in the log of the new leader any more: seek to where to go on (KIP-320)."""


class UnexpectedOffsetError(DlogError):
    """A follower was given batches that do not continue its log."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class RegionChangedError(DlogError):
    """The file region a reader holds was truncated under it: read again from the offset."""

    code = ErrorCode.OFFSET_NOT_AVAILABLE


class StorageError(DlogError):
    """The disk, or what stands on it, cannot be used."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class CorruptLogError(StorageError):
    """Bytes on disk that were sound once and are so no longer.  Nothing was cut away."""

    offset: int | None = None
    """An offset of the segment that is concerned, where that is known."""

    @classmethod
    def at(cls, offset: int, text: str) -> "CorruptLogError":
        error = cls(text)
        error.offset = offset
        return error


class MissingLogError(StorageError):
    """A partition's log was there, with records, and is gone."""


class LogDirectoryFailedError(StorageError):
    """A write or sync failed.  What the kernel kept of it is unknown: the directory is out of use."""


class DiskFullError(StorageError):
    """No room for this append.  Reads go on; appends succeed again once there is room."""


class DirectoryLockedError(StorageError):
    """Another process owns the data directory."""


class NotAdoptableError(DlogError):
    """A directory of Kafka's that cannot be taken over."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class LogClosedError(StorageError):
    """The log was closed or deleted."""


# --- consensus ---------------------------------------------------------------------------------


class NotLeaderError(DlogError):
    """The node is not the leader, and only the leader can do this.  Nothing was done."""

    code = ErrorCode.NOT_CONTROLLER

    def __init__(self, message: str, leader_id: int | None = None) -> None:
        super().__init__(message)
        self.leader_id = leader_id


class LeadershipLostError(DlogError):
    """The node stopped leading while this was under way: it may or may not happen yet."""

    code = ErrorCode.NOT_CONTROLLER


class UnreachableError(DlogError):
    """The node could not be reached, and the request did not leave: nothing was done."""

    code = ErrorCode.NOT_CONTROLLER


class OverloadedError(DlogError):
    """The node has as much waiting as may wait: try again later."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class MembershipError(DlogError):
    """A change of members that cannot be made, or not now."""

    code = ErrorCode.INCONSISTENT_VOTER_SET


class InvalidVoterKeyError(DlogError):
    code = ErrorCode.INVALID_VOTER_KEY


class DuplicateVoterError(DlogError):
    code = ErrorCode.DUPLICATE_VOTER


class VoterNotFoundError(DlogError):
    code = ErrorCode.VOTER_NOT_FOUND


class MalformedMessageError(DlogError):
    """Bytes from another node that are no message, or one beyond the limits."""

    code = ErrorCode.INVALID_REQUEST


class ConsensusError(DlogError):
    """A rule of consensus is broken: a committed entry would be lost.  The node must stop."""


# --- replicated state machines -----------------------------------------------------------------


class LoadInProgressError(DlogError):
    """The state is being read back from its log: try again soon."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class RequestTimedOutError(DlogError):
    """The answer did not come in time: what was asked may or may not happen yet."""

    code = ErrorCode.REQUEST_TIMED_OUT


# --- the cluster's metadata --------------------------------------------------------------------


class InvalidRequestError(DlogError):
    """A request that contradicts itself or asks for what cannot be."""

    code = ErrorCode.INVALID_REQUEST


class StaleBrokerEpochError(DlogError):
    """The broker was registered again since: this one speaks for an earlier life of it."""

    code = ErrorCode.STALE_BROKER_EPOCH


class BrokerNotRegisteredError(DlogError):
    code = ErrorCode.BROKER_ID_NOT_REGISTERED


class DuplicateRegistrationError(DlogError):
    """Another process is alive under this broker's id."""

    code = ErrorCode.DUPLICATE_BROKER_REGISTRATION


class InvalidRegistrationError(DlogError):
    code = ErrorCode.INVALID_REGISTRATION


class InconsistentClusterIdError(DlogError):
    """The broker belongs to another cluster."""

    code = ErrorCode.INCONSISTENT_CLUSTER_ID


class SaslAuthenticationError(DlogError):
    """Whoever is at the other end of a connection did not prove who it is."""

    code = ErrorCode.SASL_AUTHENTICATION_FAILED


class ClusterAuthorizationError(DlogError):
    """A node that has not proved that it belongs to the cluster, or asks for what is another's.  Nothing was
    done."""

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class UnknownTopicError(DlogError):
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class UnknownTopicIdError(DlogError):
    code = ErrorCode.UNKNOWN_TOPIC_ID


class TopicExistsError(DlogError):
    code = ErrorCode.TOPIC_ALREADY_EXISTS


class InvalidPartitionsError(DlogError):
    """A count of partitions that a topic cannot have."""

    code = ErrorCode.INVALID_PARTITIONS


class InvalidReplicationFactorError(DlogError):
    """More replicas than there are brokers to hold them, or fewer than one."""

    code = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidAssignmentError(DlogError):
    """Replicas named by hand that do not fit the cluster or each other."""

    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class NoReassignmentError(DlogError):
    """A move to be cancelled, of a partition that is not being moved."""

    code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


class PolicyViolationError(DlogError):
    """More than this cluster is set up to hold, or to do at once."""

    code = ErrorCode.POLICY_VIOLATION


class InvalidUpdateVersionError(DlogError):
    """A feature level that this cluster cannot go to, or not now."""

    code = ErrorCode.INVALID_UPDATE_VERSION


# --- partitions --------------------------------------------------------------------------------


class NotLeaderOrFollowerError(DlogError):
    """This broker does not lead the partition, or holds no replica of it: ask for metadata and go there."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class FencedLeaderEpochError(DlogError):
    """Whoever asks knows an older leader than we do."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpochError(DlogError):
    """Whoever asks knows a newer leader than we do."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class NotEnoughReplicasError(DlogError):
    """Fewer replicas are in sync than acks=all wants.  Nothing was appended."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class OffsetNotAvailableError(DlogError):
    """The new leader does not know yet what is committed: try again soon."""

    code = ErrorCode.OFFSET_NOT_AVAILABLE


# --- groups ------------------------------------------------------------------------------------


class CoordinatorNotAvailableError(DlogError):
    """There is no coordinator that could do this now: look for one again, and try again."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class NotCoordinatorError(DlogError):
    """Another broker coordinates this: look for the coordinator again."""

    code = ErrorCode.NOT_COORDINATOR


class InvalidGroupIdError(DlogError):
    code = ErrorCode.INVALID_GROUP_ID


class GroupNotFoundError(DlogError):
    code = ErrorCode.GROUP_ID_NOT_FOUND


class UnknownMemberError(DlogError):
    """The group has no such member, or has it no longer: join anew."""

    code = ErrorCode.UNKNOWN_MEMBER_ID


class FencedInstanceError(ApplicationRecoverableError):
    """Another member has joined under the same instance id since: this one is out for good."""

    code = ErrorCode.FENCED_INSTANCE_ID


class IllegalGenerationError(DlogError):
    """The group is in another generation: join anew."""

    code = ErrorCode.ILLEGAL_GENERATION


class FencedMemberEpochError(DlogError):
    """The member of a consumer group is not in the epoch that it speaks of: it has lost what it held."""

    code = ErrorCode.FENCED_MEMBER_EPOCH


class StaleMemberEpochError(DlogError):
    """The member of a consumer group is in another epoch by now: it has to hear of it first."""

    code = ErrorCode.STALE_MEMBER_EPOCH


class UnreleasedInstanceError(DlogError):
    """Another process with the same instance id is still a member."""

    code = ErrorCode.UNRELEASED_INSTANCE_ID


class UnsupportedAssignorError(DlogError):
    code = ErrorCode.UNSUPPORTED_ASSIGNOR


class InvalidRegularExpressionError(DlogError):
    code = ErrorCode.INVALID_REGULAR_EXPRESSION


class RebalanceInProgressError(DlogError):
    """The group is forming its next generation: join it."""

    code = ErrorCode.REBALANCE_IN_PROGRESS


class InconsistentProtocolError(DlogError):
    """The member has no protocol in common with the rest of its group."""

    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class InvalidSessionTimeoutError(DlogError):
    code = ErrorCode.INVALID_SESSION_TIMEOUT


class GroupFullError(DlogError):
    """The group has as many members as it may have."""

    code = ErrorCode.GROUP_MAX_SIZE_REACHED


class NonEmptyGroupError(DlogError):
    """The group has members; this can only be done to one without."""

    code = ErrorCode.NON_EMPTY_GROUP


class CommitTooLargeError(DlogError):
    """More than one entry of the log can hold: commit in parts."""

    code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE


# --- the wire protocol -------------------------------------------------------------------------


class UnsupportedVersionError(DlogError):
    """A version of a message that we do not have."""

    code = ErrorCode.UNSUPPORTED_VERSION


# --- clients -----------------------------------------------------------------------------------


class BrokerUnreachableError(DlogError):
    """No connection to a broker could be made, or it is no broker.  Nothing was asked."""

    code = ErrorCode.NETWORK_EXCEPTION


class BrokerAvoidedError(BrokerUnreachableError):
    """A broker could not be reached just now, and is not tried again yet."""

    def __init__(self, message: str, *, again_in_ms: int) -> None:
        super().__init__(message)
        self.again_in_ms = again_in_ms


class ConnectionLostError(DlogError):
    """The connection ended before the answer: what was asked may or may not have been done."""

    code = ErrorCode.NETWORK_EXCEPTION


class GroupRebalancedError(DlogError):
    """A commit came too late: the partitions belong to another generation of the group by now."""

    code = ErrorCode.REBALANCE_IN_PROGRESS


class NoOffsetError(DlogError):
    """A partition has no committed offset, and the consumer may not choose where to begin."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class BufferFullError(DlogError):
    """A producer had no room for a record within `max_block_ms`: the brokers take less than is sent."""

    code = ErrorCode.REQUEST_TIMED_OUT


class ClientClosedError(DlogError):
    """A client was used after it was closed."""

    code = ErrorCode.INVALID_REQUEST


class BrokerError(DlogError):
    """A broker's answer for which there is no class of its own: `answered` says which it was."""

    def __init__(self, message: str, answered: ErrorCode) -> None:
        super().__init__(message)
        self.answered = answered


# --- Spark -------------------------------------------------------------------------------------


class SparkNotReadyError(DlogError):
    """Spark cannot run here: no Java, a missing package, workers without ours.  It says what to do."""


class PipelineError(DlogError):
    """A pipeline's project is not as it should be, or a run of it failed."""
