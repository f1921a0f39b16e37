"""Which classes carry which API, and in which versions we have them.

The ranges are those of the messages here, which may exceed what a broker serves: it advertises what it has
handlers for.
"""

from typing import NamedTuple

from distributedlog.model.errors import UnsupportedVersionError
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    get_telemetry_subscriptions,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    push_telemetry,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
    update_features,
    write_txn_markers,
)
from distributedlog.protocol.schema import Message, VersionRange


class Api(NamedTuple):
    key: ApiKey
    request: type[Message]
    response: type[Message]

    @property
    def versions(self) -> VersionRange:
        return self.request.versions

    @property
    def flexible_since(self) -> int:
        return self.request.flexible_since


_MESSAGES: tuple[tuple[type[Message], type[Message]], ...] = (
    (produce.ProduceRequest, produce.ProduceResponse),
    (fetch.FetchRequest, fetch.FetchResponse),
    (list_offsets.ListOffsetsRequest, list_offsets.ListOffsetsResponse),
    (metadata.MetadataRequest, metadata.MetadataResponse),
    (offset_commit.OffsetCommitRequest, offset_commit.OffsetCommitResponse),
    (offset_fetch.OffsetFetchRequest, offset_fetch.OffsetFetchResponse),
    (find_coordinator.FindCoordinatorRequest, find_coordinator.FindCoordinatorResponse),
    (join_group.JoinGroupRequest, join_group.JoinGroupResponse),
    (heartbeat.HeartbeatRequest, heartbeat.HeartbeatResponse),
    (leave_group.LeaveGroupRequest, leave_group.LeaveGroupResponse),
    (sync_group.SyncGroupRequest, sync_group.SyncGroupResponse),
    (describe_groups.DescribeGroupsRequest, describe_groups.DescribeGroupsResponse),
    (list_groups.ListGroupsRequest, list_groups.ListGroupsResponse),
    (sasl_handshake.SaslHandshakeRequest, sasl_handshake.SaslHandshakeResponse),
    (api_versions.ApiVersionsRequest, api_versions.ApiVersionsResponse),
    (create_topics.CreateTopicsRequest, create_topics.CreateTopicsResponse),
    (delete_topics.DeleteTopicsRequest, delete_topics.DeleteTopicsResponse),
    (delete_records.DeleteRecordsRequest, delete_records.DeleteRecordsResponse),
    (init_producer_id.InitProducerIdRequest, init_producer_id.InitProducerIdResponse),
    (
        offset_for_leader_epoch.OffsetForLeaderEpochRequest,
        offset_for_leader_epoch.OffsetForLeaderEpochResponse,
    ),
    (add_partitions_to_txn.AddPartitionsToTxnRequest, add_partitions_to_txn.AddPartitionsToTxnResponse),
    (add_offsets_to_txn.AddOffsetsToTxnRequest, add_offsets_to_txn.AddOffsetsToTxnResponse),
    (end_txn.EndTxnRequest, end_txn.EndTxnResponse),
    (write_txn_markers.WriteTxnMarkersRequest, write_txn_markers.WriteTxnMarkersResponse),
    (txn_offset_commit.TxnOffsetCommitRequest, txn_offset_commit.TxnOffsetCommitResponse),
    (describe_acls.DescribeAclsRequest, describe_acls.DescribeAclsResponse),
    (create_acls.CreateAclsRequest, create_acls.CreateAclsResponse),
    (delete_acls.DeleteAclsRequest, delete_acls.DeleteAclsResponse),
    (describe_configs.DescribeConfigsRequest, describe_configs.DescribeConfigsResponse),
    (alter_configs.AlterConfigsRequest, alter_configs.AlterConfigsResponse),
    (describe_log_dirs.DescribeLogDirsRequest, describe_log_dirs.DescribeLogDirsResponse),
    (sasl_authenticate.SaslAuthenticateRequest, sasl_authenticate.SaslAuthenticateResponse),
    (create_partitions.CreatePartitionsRequest, create_partitions.CreatePartitionsResponse),
    (delete_groups.DeleteGroupsRequest, delete_groups.DeleteGroupsResponse),
    (elect_leaders.ElectLeadersRequest, elect_leaders.ElectLeadersResponse),
    (
        incremental_alter_configs.IncrementalAlterConfigsRequest,
        incremental_alter_configs.IncrementalAlterConfigsResponse,
    ),
    (
        alter_partition_reassignments.AlterPartitionReassignmentsRequest,
        alter_partition_reassignments.AlterPartitionReassignmentsResponse,
    ),
    (
        list_partition_reassignments.ListPartitionReassignmentsRequest,
        list_partition_reassignments.ListPartitionReassignmentsResponse,
    ),
    (offset_delete.OffsetDeleteRequest, offset_delete.OffsetDeleteResponse),
    (describe_client_quotas.DescribeClientQuotasRequest, describe_client_quotas.DescribeClientQuotasResponse),
    (alter_client_quotas.AlterClientQuotasRequest, alter_client_quotas.AlterClientQuotasResponse),
    (
        describe_user_scram_credentials.DescribeUserScramCredentialsRequest,
        describe_user_scram_credentials.DescribeUserScramCredentialsResponse,
    ),
    (
        alter_user_scram_credentials.AlterUserScramCredentialsRequest,
        alter_user_scram_credentials.AlterUserScramCredentialsResponse,
    ),
    (describe_quorum.DescribeQuorumRequest, describe_quorum.DescribeQuorumResponse),
    (update_features.UpdateFeaturesRequest, update_features.UpdateFeaturesResponse),
    (describe_cluster.DescribeClusterRequest, describe_cluster.DescribeClusterResponse),
    (describe_producers.DescribeProducersRequest, describe_producers.DescribeProducersResponse),
    (describe_transactions.DescribeTransactionsRequest, describe_transactions.DescribeTransactionsResponse),
    (list_transactions.ListTransactionsRequest, list_transactions.ListTransactionsResponse),
    (
        consumer_group_heartbeat.ConsumerGroupHeartbeatRequest,
        consumer_group_heartbeat.ConsumerGroupHeartbeatResponse,
    ),
    (
        consumer_group_describe.ConsumerGroupDescribeRequest,
        consumer_group_describe.ConsumerGroupDescribeResponse,
    ),
    (
        get_telemetry_subscriptions.GetTelemetrySubscriptionsRequest,
        get_telemetry_subscriptions.GetTelemetrySubscriptionsResponse,
    ),
    (push_telemetry.PushTelemetryRequest, push_telemetry.PushTelemetryResponse),
    (list_config_resources.ListConfigResourcesRequest, list_config_resources.ListConfigResourcesResponse),
    (
        describe_topic_partitions.DescribeTopicPartitionsRequest,
        describe_topic_partitions.DescribeTopicPartitionsResponse,
    ),
)

APIS: dict[int, Api] = {
    request.api_key: Api(ApiKey(request.api_key), request, response) for request, response in _MESSAGES
}


def api_of(key: int) -> Api:
    api = APIS.get(key)
    if api is None:
        raise UnsupportedVersionError(f"there is no API with the key {key} here")
    return api
