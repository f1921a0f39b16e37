from distributedlog.control._generated import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SubmitRequest(_message.Message):
    __slots__ = ("header", "register_broker", "heartbeat", "unregister_broker", "create_topics", "delete_topics", "create_partitions", "alter_configs", "incremental_alter_configs", "alter_partitions", "elect_leaders", "allocate_producer_ids", "update_features", "alter_quotas", "describe_quorum", "alter_reassignments", "register_controller", "add_voter", "remove_voter")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    REGISTER_BROKER_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    UNREGISTER_BROKER_FIELD_NUMBER: _ClassVar[int]
    CREATE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    DELETE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    CREATE_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ALTER_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    INCREMENTAL_ALTER_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    ALTER_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ELECT_LEADERS_FIELD_NUMBER: _ClassVar[int]
    ALLOCATE_PRODUCER_IDS_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FEATURES_FIELD_NUMBER: _ClassVar[int]
    ALTER_QUOTAS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_QUORUM_FIELD_NUMBER: _ClassVar[int]
    ALTER_REASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    REGISTER_CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    ADD_VOTER_FIELD_NUMBER: _ClassVar[int]
    REMOVE_VOTER_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.Header
    register_broker: RegisterBrokerRequest
    heartbeat: HeartbeatRequest
    unregister_broker: UnregisterBrokerRequest
    create_topics: CreateTopicsRequest
    delete_topics: DeleteTopicsRequest
    create_partitions: CreatePartitionsRequest
    alter_configs: AlterConfigsRequest
    incremental_alter_configs: IncrementalAlterConfigsRequest
    alter_partitions: AlterPartitionsRequest
    elect_leaders: ElectLeadersRequest
    allocate_producer_ids: AllocateProducerIdsRequest
    update_features: UpdateFeaturesRequest
    alter_quotas: AlterQuotasRequest
    describe_quorum: DescribeQuorumRequest
    alter_reassignments: AlterReassignmentsRequest
    register_controller: RegisterControllerRequest
    add_voter: AddVoterRequest
    remove_voter: RemoveVoterRequest
    def __init__(self, header: _Optional[_Union[_common_pb2.Header, _Mapping]] = ..., register_broker: _Optional[_Union[RegisterBrokerRequest, _Mapping]] = ..., heartbeat: _Optional[_Union[HeartbeatRequest, _Mapping]] = ..., unregister_broker: _Optional[_Union[UnregisterBrokerRequest, _Mapping]] = ..., create_topics: _Optional[_Union[CreateTopicsRequest, _Mapping]] = ..., delete_topics: _Optional[_Union[DeleteTopicsRequest, _Mapping]] = ..., create_partitions: _Optional[_Union[CreatePartitionsRequest, _Mapping]] = ..., alter_configs: _Optional[_Union[AlterConfigsRequest, _Mapping]] = ..., incremental_alter_configs: _Optional[_Union[IncrementalAlterConfigsRequest, _Mapping]] = ..., alter_partitions: _Optional[_Union[AlterPartitionsRequest, _Mapping]] = ..., elect_leaders: _Optional[_Union[ElectLeadersRequest, _Mapping]] = ..., allocate_producer_ids: _Optional[_Union[AllocateProducerIdsRequest, _Mapping]] = ..., update_features: _Optional[_Union[UpdateFeaturesRequest, _Mapping]] = ..., alter_quotas: _Optional[_Union[AlterQuotasRequest, _Mapping]] = ..., describe_quorum: _Optional[_Union[DescribeQuorumRequest, _Mapping]] = ..., alter_reassignments: _Optional[_Union[AlterReassignmentsRequest, _Mapping]] = ..., register_controller: _Optional[_Union[RegisterControllerRequest, _Mapping]] = ..., add_voter: _Optional[_Union[AddVoterRequest, _Mapping]] = ..., remove_voter: _Optional[_Union[RemoveVoterRequest, _Mapping]] = ...) -> None: ...

class SubmitReply(_message.Message):
    __slots__ = ("version", "offset", "error", "nothing", "register_broker", "heartbeat", "topics", "configs", "alter_partitions", "elect_leaders", "producer_ids", "features", "quotas", "quorum", "alter_reassignments")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    NOTHING_FIELD_NUMBER: _ClassVar[int]
    REGISTER_BROKER_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    ALTER_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ELECT_LEADERS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_IDS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    QUORUM_FIELD_NUMBER: _ClassVar[int]
    ALTER_REASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    version: int
    offset: int
    error: _common_pb2.Error
    nothing: Nothing
    register_broker: RegisterBrokerReply
    heartbeat: HeartbeatReply
    topics: TopicsReply
    configs: ConfigsReply
    alter_partitions: AlterPartitionsReply
    elect_leaders: ElectLeadersReply
    producer_ids: ProducerIdBlock
    features: FeaturesReply
    quotas: QuotasReply
    quorum: QuorumReply
    alter_reassignments: AlterReassignmentsReply
    def __init__(self, version: _Optional[int] = ..., offset: _Optional[int] = ..., error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., nothing: _Optional[_Union[Nothing, _Mapping]] = ..., register_broker: _Optional[_Union[RegisterBrokerReply, _Mapping]] = ..., heartbeat: _Optional[_Union[HeartbeatReply, _Mapping]] = ..., topics: _Optional[_Union[TopicsReply, _Mapping]] = ..., configs: _Optional[_Union[ConfigsReply, _Mapping]] = ..., alter_partitions: _Optional[_Union[AlterPartitionsReply, _Mapping]] = ..., elect_leaders: _Optional[_Union[ElectLeadersReply, _Mapping]] = ..., producer_ids: _Optional[_Union[ProducerIdBlock, _Mapping]] = ..., features: _Optional[_Union[FeaturesReply, _Mapping]] = ..., quotas: _Optional[_Union[QuotasReply, _Mapping]] = ..., quorum: _Optional[_Union[QuorumReply, _Mapping]] = ..., alter_reassignments: _Optional[_Union[AlterReassignmentsReply, _Mapping]] = ...) -> None: ...

class Nothing(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RegisterBrokerRequest(_message.Message):
    __slots__ = ("cluster_id", "broker_id", "incarnation_id", "endpoints", "features", "rack", "log_dirs", "previous_broker_epoch", "predecessors", "synced_broker_epoch", "host")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PREDECESSORS_FIELD_NUMBER: _ClassVar[int]
    SYNCED_BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    broker_id: int
    incarnation_id: bytes
    endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    features: _containers.RepeatedCompositeFieldContainer[SupportedLevels]
    rack: str
    log_dirs: _containers.RepeatedScalarFieldContainer[bytes]
    previous_broker_epoch: int
    predecessors: _containers.RepeatedScalarFieldContainer[bytes]
    synced_broker_epoch: int
    host: str
    def __init__(self, cluster_id: _Optional[str] = ..., broker_id: _Optional[int] = ..., incarnation_id: _Optional[bytes] = ..., endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping]]] = ..., features: _Optional[_Iterable[_Union[SupportedLevels, _Mapping]]] = ..., rack: _Optional[str] = ..., log_dirs: _Optional[_Iterable[bytes]] = ..., previous_broker_epoch: _Optional[int] = ..., predecessors: _Optional[_Iterable[bytes]] = ..., synced_broker_epoch: _Optional[int] = ..., host: _Optional[str] = ...) -> None: ...

class Endpoint(_message.Message):
    __slots__ = ("name", "host", "port", "security_protocol")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    SECURITY_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    name: str
    host: str
    port: int
    security_protocol: int
    def __init__(self, name: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., security_protocol: _Optional[int] = ...) -> None: ...

class SupportedLevels(_message.Message):
    __slots__ = ("name", "low", "high")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    name: str
    low: int
    high: int
    def __init__(self, name: _Optional[str] = ..., low: _Optional[int] = ..., high: _Optional[int] = ...) -> None: ...

class RegisterBrokerReply(_message.Message):
    __slots__ = ("broker_epoch",)
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_epoch: int
    def __init__(self, broker_epoch: _Optional[int] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "metadata_offset", "want_fence", "want_shutdown", "data_loop_lag_ms", "applied_offset", "replica_faults", "log_ends")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    WANT_FENCE_FIELD_NUMBER: _ClassVar[int]
    WANT_SHUTDOWN_FIELD_NUMBER: _ClassVar[int]
    DATA_LOOP_LAG_MS_FIELD_NUMBER: _ClassVar[int]
    APPLIED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FAULTS_FIELD_NUMBER: _ClassVar[int]
    LOG_ENDS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool
    want_shutdown: bool
    data_loop_lag_ms: int
    applied_offset: int
    replica_faults: _containers.RepeatedCompositeFieldContainer[ReplicaFault]
    log_ends: _containers.RepeatedCompositeFieldContainer[ReplicaLogEnd]
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., metadata_offset: _Optional[int] = ..., want_fence: bool = ..., want_shutdown: bool = ..., data_loop_lag_ms: _Optional[int] = ..., applied_offset: _Optional[int] = ..., replica_faults: _Optional[_Iterable[_Union[ReplicaFault, _Mapping]]] = ..., log_ends: _Optional[_Iterable[_Union[ReplicaLogEnd, _Mapping]]] = ...) -> None: ...

class ReplicaLogEnd(_message.Message):
    __slots__ = ("topic_id", "partition_id", "leader_epoch", "last_epoch", "end_offset")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    leader_epoch: int
    last_epoch: int
    end_offset: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., last_epoch: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class ReplicaFault(_message.Message):
    __slots__ = ("topic_id", "partition_id", "fault")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    fault: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., fault: _Optional[int] = ...) -> None: ...

class HeartbeatReply(_message.Message):
    __slots__ = ("is_caught_up", "is_fenced", "in_controlled_shutdown", "should_shut_down", "lease_offset", "settled_offset", "took_replica_faults")
    IS_CAUGHT_UP_FIELD_NUMBER: _ClassVar[int]
    IS_FENCED_FIELD_NUMBER: _ClassVar[int]
    IN_CONTROLLED_SHUTDOWN_FIELD_NUMBER: _ClassVar[int]
    SHOULD_SHUT_DOWN_FIELD_NUMBER: _ClassVar[int]
    LEASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SETTLED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TOOK_REPLICA_FAULTS_FIELD_NUMBER: _ClassVar[int]
    is_caught_up: bool
    is_fenced: bool
    in_controlled_shutdown: bool
    should_shut_down: bool
    lease_offset: int
    settled_offset: int
    took_replica_faults: bool
    def __init__(self, is_caught_up: bool = ..., is_fenced: bool = ..., in_controlled_shutdown: bool = ..., should_shut_down: bool = ..., lease_offset: _Optional[int] = ..., settled_offset: _Optional[int] = ..., took_replica_faults: bool = ...) -> None: ...

class UnregisterBrokerRequest(_message.Message):
    __slots__ = ("broker_id",)
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    def __init__(self, broker_id: _Optional[int] = ...) -> None: ...

class CreateTopicsRequest(_message.Message):
    __slots__ = ("topics", "validate_only")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[NewTopic]
    validate_only: bool
    def __init__(self, topics: _Optional[_Iterable[_Union[NewTopic, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class NewTopic(_message.Message):
    __slots__ = ("name", "num_partitions", "replication_factor", "assignments", "configs")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUM_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    num_partitions: int
    replication_factor: int
    assignments: _containers.RepeatedCompositeFieldContainer[PartitionAssignment]
    configs: _containers.RepeatedCompositeFieldContainer[Setting]
    def __init__(self, name: _Optional[str] = ..., num_partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ..., assignments: _Optional[_Iterable[_Union[PartitionAssignment, _Mapping]]] = ..., configs: _Optional[_Iterable[_Union[Setting, _Mapping]]] = ...) -> None: ...

class PartitionAssignment(_message.Message):
    __slots__ = ("partition_id", "replicas")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, partition_id: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ...) -> None: ...

class Setting(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class TopicsReply(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicOutcome]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicOutcome, _Mapping]]] = ...) -> None: ...

class TopicOutcome(_message.Message):
    __slots__ = ("name", "topic_id", "outcome", "num_partitions", "replication_factor")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    NUM_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: bytes
    outcome: _common_pb2.Outcome
    num_partitions: int
    replication_factor: int
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., outcome: _Optional[_Union[_common_pb2.Outcome, _Mapping]] = ..., num_partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ...) -> None: ...

class DeleteTopicsRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicReference]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicReference, _Mapping]]] = ...) -> None: ...

class TopicReference(_message.Message):
    __slots__ = ("name", "topic_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: bytes
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[bytes] = ...) -> None: ...

class CreatePartitionsRequest(_message.Message):
    __slots__ = ("topics", "validate_only")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[MorePartitions]
    validate_only: bool
    def __init__(self, topics: _Optional[_Iterable[_Union[MorePartitions, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class MorePartitions(_message.Message):
    __slots__ = ("name", "count", "assignments")
    NAME_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    count: int
    assignments: ReplicaLists
    def __init__(self, name: _Optional[str] = ..., count: _Optional[int] = ..., assignments: _Optional[_Union[ReplicaLists, _Mapping]] = ...) -> None: ...

class ReplicaLists(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[Replicas]
    def __init__(self, partitions: _Optional[_Iterable[_Union[Replicas, _Mapping]]] = ...) -> None: ...

class Replicas(_message.Message):
    __slots__ = ("broker_ids",)
    BROKER_IDS_FIELD_NUMBER: _ClassVar[int]
    broker_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, broker_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class ConfigResource(_message.Message):
    __slots__ = ("kind", "name")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    kind: int
    name: str
    def __init__(self, kind: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class AlterConfigsRequest(_message.Message):
    __slots__ = ("resources", "validate_only")
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    resources: _containers.RepeatedCompositeFieldContainer[ResourceSettings]
    validate_only: bool
    def __init__(self, resources: _Optional[_Iterable[_Union[ResourceSettings, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class ResourceSettings(_message.Message):
    __slots__ = ("resource", "settings")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    resource: ConfigResource
    settings: _containers.RepeatedCompositeFieldContainer[Setting]
    def __init__(self, resource: _Optional[_Union[ConfigResource, _Mapping]] = ..., settings: _Optional[_Iterable[_Union[Setting, _Mapping]]] = ...) -> None: ...

class IncrementalAlterConfigsRequest(_message.Message):
    __slots__ = ("resources", "validate_only")
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    resources: _containers.RepeatedCompositeFieldContainer[ResourceEdits]
    validate_only: bool
    def __init__(self, resources: _Optional[_Iterable[_Union[ResourceEdits, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class ResourceEdits(_message.Message):
    __slots__ = ("resource", "edits")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    EDITS_FIELD_NUMBER: _ClassVar[int]
    resource: ConfigResource
    edits: _containers.RepeatedCompositeFieldContainer[ConfigEdit]
    def __init__(self, resource: _Optional[_Union[ConfigResource, _Mapping]] = ..., edits: _Optional[_Iterable[_Union[ConfigEdit, _Mapping]]] = ...) -> None: ...

class ConfigEdit(_message.Message):
    __slots__ = ("name", "op", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    op: int
    value: str
    def __init__(self, name: _Optional[str] = ..., op: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...

class ConfigsReply(_message.Message):
    __slots__ = ("resources",)
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    resources: _containers.RepeatedCompositeFieldContainer[ResourceOutcome]
    def __init__(self, resources: _Optional[_Iterable[_Union[ResourceOutcome, _Mapping]]] = ...) -> None: ...

class ResourceOutcome(_message.Message):
    __slots__ = ("resource", "outcome")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    resource: ConfigResource
    outcome: _common_pb2.Outcome
    def __init__(self, resource: _Optional[_Union[ConfigResource, _Mapping]] = ..., outcome: _Optional[_Union[_common_pb2.Outcome, _Mapping]] = ...) -> None: ...

class AlterPartitionsRequest(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "changes")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    changes: _containers.RepeatedCompositeFieldContainer[IsrChange]
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., changes: _Optional[_Iterable[_Union[IsrChange, _Mapping]]] = ...) -> None: ...

class IsrChange(_message.Message):
    __slots__ = ("topic_id", "partition_id", "leader_epoch", "partition_epoch", "isr", "recovery_state")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_STATE_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    leader_epoch: int
    partition_epoch: int
    isr: _containers.RepeatedCompositeFieldContainer[IsrMember]
    recovery_state: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., isr: _Optional[_Iterable[_Union[IsrMember, _Mapping]]] = ..., recovery_state: _Optional[int] = ...) -> None: ...

class IsrMember(_message.Message):
    __slots__ = ("broker_id", "broker_epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class AlterPartitionsReply(_message.Message):
    __slots__ = ("changes",)
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[IsrOutcome]
    def __init__(self, changes: _Optional[_Iterable[_Union[IsrOutcome, _Mapping]]] = ...) -> None: ...

class IsrOutcome(_message.Message):
    __slots__ = ("topic_id", "partition_id", "error", "leader", "leader_epoch", "partition_epoch", "isr", "recovery_state")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_STATE_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition_id: int
    error: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: _containers.RepeatedScalarFieldContainer[int]
    recovery_state: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition_id: _Optional[int] = ..., error: _Optional[int] = ..., leader: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., isr: _Optional[_Iterable[int]] = ..., recovery_state: _Optional[int] = ...) -> None: ...

class TopicPartition(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class TopicPartitions(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[TopicPartition]
    def __init__(self, partitions: _Optional[_Iterable[_Union[TopicPartition, _Mapping]]] = ...) -> None: ...

class ElectLeadersRequest(_message.Message):
    __slots__ = ("election", "partitions")
    ELECTION_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    election: int
    partitions: TopicPartitions
    def __init__(self, election: _Optional[int] = ..., partitions: _Optional[_Union[TopicPartitions, _Mapping]] = ...) -> None: ...

class ElectLeadersReply(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[ElectionOutcome]
    def __init__(self, partitions: _Optional[_Iterable[_Union[ElectionOutcome, _Mapping]]] = ...) -> None: ...

class ElectionOutcome(_message.Message):
    __slots__ = ("partition", "outcome")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    partition: TopicPartition
    outcome: _common_pb2.Outcome
    def __init__(self, partition: _Optional[_Union[TopicPartition, _Mapping]] = ..., outcome: _Optional[_Union[_common_pb2.Outcome, _Mapping]] = ...) -> None: ...

class AlterReassignmentsRequest(_message.Message):
    __slots__ = ("partitions", "allow_replication_factor_change")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ALLOW_REPLICATION_FACTOR_CHANGE_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[Reassignment]
    allow_replication_factor_change: bool
    def __init__(self, partitions: _Optional[_Iterable[_Union[Reassignment, _Mapping]]] = ..., allow_replication_factor_change: bool = ...) -> None: ...

class Reassignment(_message.Message):
    __slots__ = ("partition", "replicas")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    partition: TopicPartition
    replicas: Replicas
    def __init__(self, partition: _Optional[_Union[TopicPartition, _Mapping]] = ..., replicas: _Optional[_Union[Replicas, _Mapping]] = ...) -> None: ...

class AlterReassignmentsReply(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[ReassignmentOutcome]
    def __init__(self, partitions: _Optional[_Iterable[_Union[ReassignmentOutcome, _Mapping]]] = ...) -> None: ...

class ReassignmentOutcome(_message.Message):
    __slots__ = ("partition", "outcome")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    partition: TopicPartition
    outcome: _common_pb2.Outcome
    def __init__(self, partition: _Optional[_Union[TopicPartition, _Mapping]] = ..., outcome: _Optional[_Union[_common_pb2.Outcome, _Mapping]] = ...) -> None: ...

class AllocateProducerIdsRequest(_message.Message):
    __slots__ = ("broker_id", "broker_epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class ProducerIdBlock(_message.Message):
    __slots__ = ("first", "count")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    first: int
    count: int
    def __init__(self, first: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class UpdateFeaturesRequest(_message.Message):
    __slots__ = ("levels", "validate_only")
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    levels: _containers.RepeatedCompositeFieldContainer[FeatureLevel]
    validate_only: bool
    def __init__(self, levels: _Optional[_Iterable[_Union[FeatureLevel, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class FeatureLevel(_message.Message):
    __slots__ = ("name", "level")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    name: str
    level: int
    def __init__(self, name: _Optional[str] = ..., level: _Optional[int] = ...) -> None: ...

class FeaturesReply(_message.Message):
    __slots__ = ("features",)
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    features: _containers.RepeatedCompositeFieldContainer[FeatureOutcome]
    def __init__(self, features: _Optional[_Iterable[_Union[FeatureOutcome, _Mapping]]] = ...) -> None: ...

class FeatureOutcome(_message.Message):
    __slots__ = ("name", "outcome")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    name: str
    outcome: _common_pb2.Outcome
    def __init__(self, name: _Optional[str] = ..., outcome: _Optional[_Union[_common_pb2.Outcome, _Mapping]] = ...) -> None: ...

class AlterQuotasRequest(_message.Message):
    __slots__ = ("entities", "validate_only")
    ENTITIES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    entities: _containers.RepeatedCompositeFieldContainer[QuotaEdits]
    validate_only: bool
    def __init__(self, entities: _Optional[_Iterable[_Union[QuotaEdits, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class QuotaEdits(_message.Message):
    __slots__ = ("entity", "edits")
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    EDITS_FIELD_NUMBER: _ClassVar[int]
    entity: _containers.RepeatedCompositeFieldContainer[QuotaEntityPart]
    edits: _containers.RepeatedCompositeFieldContainer[QuotaEdit]
    def __init__(self, entity: _Optional[_Iterable[_Union[QuotaEntityPart, _Mapping]]] = ..., edits: _Optional[_Iterable[_Union[QuotaEdit, _Mapping]]] = ...) -> None: ...

class QuotaEntityPart(_message.Message):
    __slots__ = ("kind", "name")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class QuotaEdit(_message.Message):
    __slots__ = ("key", "limit")
    KEY_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    key: str
    limit: float
    def __init__(self, key: _Optional[str] = ..., limit: _Optional[float] = ...) -> None: ...

class QuotasReply(_message.Message):
    __slots__ = ("entities",)
    ENTITIES_FIELD_NUMBER: _ClassVar[int]
    entities: _containers.RepeatedCompositeFieldContainer[QuotaOutcome]
    def __init__(self, entities: _Optional[_Iterable[_Union[QuotaOutcome, _Mapping]]] = ...) -> None: ...

class QuotaOutcome(_message.Message):
    __slots__ = ("entity", "outcome")
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    entity: _containers.RepeatedCompositeFieldContainer[QuotaEntityPart]
    outcome: _common_pb2.Outcome
    def __init__(self, entity: _Optional[_Iterable[_Union[QuotaEntityPart, _Mapping]]] = ..., outcome: _Optional[_Union[_common_pb2.Outcome, _Mapping]] = ...) -> None: ...

class DescribeQuorumRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class QuorumReply(_message.Message):
    __slots__ = ("leader_id", "term", "high_watermark", "voters", "observers")
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    OBSERVERS_FIELD_NUMBER: _ClassVar[int]
    leader_id: int
    term: int
    high_watermark: int
    voters: _containers.RepeatedCompositeFieldContainer[ReplicaProgress]
    observers: _containers.RepeatedCompositeFieldContainer[ReplicaProgress]
    def __init__(self, leader_id: _Optional[int] = ..., term: _Optional[int] = ..., high_watermark: _Optional[int] = ..., voters: _Optional[_Iterable[_Union[ReplicaProgress, _Mapping]]] = ..., observers: _Optional[_Iterable[_Union[ReplicaProgress, _Mapping]]] = ...) -> None: ...

class ReplicaProgress(_message.Message):
    __slots__ = ("node_id", "log_end_offset", "heard_ms", "caught_up_ms")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HEARD_MS_FIELD_NUMBER: _ClassVar[int]
    CAUGHT_UP_MS_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    log_end_offset: int
    heard_ms: int
    caught_up_ms: int
    def __init__(self, node_id: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., heard_ms: _Optional[int] = ..., caught_up_ms: _Optional[int] = ...) -> None: ...

class RegisterControllerRequest(_message.Message):
    __slots__ = ("cluster_id", "registration")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    REGISTRATION_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    registration: ControllerRegistration
    def __init__(self, cluster_id: _Optional[str] = ..., registration: _Optional[_Union[ControllerRegistration, _Mapping]] = ...) -> None: ...

class ControllerRegistration(_message.Message):
    __slots__ = ("controller_id", "directory_id", "incarnation", "host", "port")
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    controller_id: int
    directory_id: bytes
    incarnation: int
    host: str
    port: int
    def __init__(self, controller_id: _Optional[int] = ..., directory_id: _Optional[bytes] = ..., incarnation: _Optional[int] = ..., host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class AddVoterRequest(_message.Message):
    __slots__ = ("cluster_id", "voter_id", "directory_id", "await_commit")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    AWAIT_COMMIT_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    voter_id: int
    directory_id: bytes
    await_commit: bool
    def __init__(self, cluster_id: _Optional[str] = ..., voter_id: _Optional[int] = ..., directory_id: _Optional[bytes] = ..., await_commit: bool = ...) -> None: ...

class RemoveVoterRequest(_message.Message):
    __slots__ = ("cluster_id", "voter_id", "directory_id")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    voter_id: int
    directory_id: bytes
    def __init__(self, cluster_id: _Optional[str] = ..., voter_id: _Optional[int] = ..., directory_id: _Optional[bytes] = ...) -> None: ...

class WatchMetadataRequest(_message.Message):
    __slots__ = ("header", "from_offset")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.Header
    from_offset: int
    def __init__(self, header: _Optional[_Union[_common_pb2.Header, _Mapping]] = ..., from_offset: _Optional[int] = ...) -> None: ...

class MetadataUpdate(_message.Message):
    __slots__ = ("snapshot", "entries")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    snapshot: SnapshotChunk
    entries: MetadataEntries
    def __init__(self, snapshot: _Optional[_Union[SnapshotChunk, _Mapping]] = ..., entries: _Optional[_Union[MetadataEntries, _Mapping]] = ...) -> None: ...

class SnapshotChunk(_message.Message):
    __slots__ = ("offset", "total_bytes", "data")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    offset: int
    total_bytes: int
    data: bytes
    def __init__(self, offset: _Optional[int] = ..., total_bytes: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class MetadataEntries(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[MetadataEntry]
    def __init__(self, entries: _Optional[_Iterable[_Union[MetadataEntry, _Mapping]]] = ...) -> None: ...

class MetadataEntry(_message.Message):
    __slots__ = ("offset", "payload")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    offset: int
    payload: bytes
    def __init__(self, offset: _Optional[int] = ..., payload: _Optional[bytes] = ...) -> None: ...
