"""The cluster as such: its quorum of controllers and its features."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from distributedlog.client.admin.changes import ask_controller
from distributedlog.client.errors import check_response, error_from
from distributedlog.client.metadata import Cluster
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import UnsupportedVersionError
from distributedlog.model.ids import ZERO_UUID, Uuid
from distributedlog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from distributedlog.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    get_placement_host,
)
from distributedlog.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionRequest,
    ReplicaState,
    TopicRequest,
)
from distributedlog.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from distributedlog.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_PARTITION: Final = 0


# --- the quorum --------------------------------------------------------------------------------


class QuorumReplica(NamedTuple):
    node_id: int
    log_end_offset: int
    """-1: unknown to the leader."""
    last_fetch_ms: int = -1
    """The time at which the leader last heard of it; -1: unknown."""
    last_caught_up_ms: int = -1
    """The time at which it last had all that the leader had; -1: unknown, or never."""
    directory_id: Uuid = ZERO_UUID
    """Its data directory; zero: unknown."""


@dataclass(frozen=True, slots=True)
class QuorumView:
    """The quorum as the leader of the metadata log sees it."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    """Those that follow the log and have no vote."""
    controllers: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    """Where controllers are reached, those that vote and those that could; empty if brokers do not tell."""

    def lag(self, replica: QuorumReplica) -> int:
        """Returns how many offsets it is behind the leader."""
        ends = [each.log_end_offset for each in self.voters if each.node_id == self.leader_id]
        return max(0, max(ends, default=self.high_watermark) - replica.log_end_offset)


async def describe_quorum(cluster: Cluster) -> QuorumView:
    topic = TopicRequest(
        topic_name=METADATA_TOPIC, partitions=[PartitionRequest(partition_index=METADATA_PARTITION)]
    )
    request = DescribeQuorumRequest(topics=[topic])

    async def attempt() -> QuorumView:
        response = await cluster.call(await cluster.controller(), request, DescribeQuorumResponse)
        check_response(response.error_code, "the quorum", response.error_message)
        for partition in (each for topic in response.topics for each in topic.partitions):
            check_response(partition.error_code, "the quorum", partition.error_message)
            return QuorumView(
                partition.leader_id,
                partition.leader_epoch,
                partition.high_watermark,
                tuple(map(_replica, partition.current_voters)),
                tuple(map(_replica, partition.observers)),
                {
                    each.node_id: (each.listeners[0].host, each.listeners[0].port)
                    for each in response.nodes
                    if each.listeners
                },
            )
        raise error_from(ErrorCode.UNKNOWN_SERVER_ERROR, "the quorum: the answer says nothing of it")

    return await cluster.retrying(attempt)


async def list_fenced_brokers(cluster: Cluster) -> tuple[int, ...]:
    """Lists the brokers that are registered and take no part; none where brokers do not tell."""
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True)

    async def attempt() -> tuple[int, ...]:
        try:
            response = await cluster.call(await cluster.any_connection(), request, DescribeClusterResponse)
        except UnsupportedVersionError:
            return ()
        check_response(response.error_code, "the cluster", response.error_message)
        return tuple(sorted(each.broker_id for each in response.brokers if each.is_fenced))

    return await cluster.retrying(attempt)


async def list_broker_hosts(cluster: Cluster) -> dict[int, str]:
    """Returns on which machine each living broker runs, for all that is known; none where brokers do not
    tell."""
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)

    async def attempt() -> dict[int, str]:
        try:
            response = await cluster.call(await cluster.any_connection(), request, DescribeClusterResponse)
        except UnsupportedVersionError:
            return {}
        check_response(response.error_code, "the cluster", response.error_message)
        return {each.broker_id: get_placement_host(each) for each in response.brokers}

    return await cluster.retrying(attempt)


async def unregister_broker(cluster: Cluster, broker_id: int) -> None:
    """Has the controller forget a broker for good; it does not look whether the broker lives or holds
    replicas."""
    request = UnregisterBrokerRequest(broker_id=broker_id)
    response = await ask_controller(
        cluster, request, UnregisterBrokerResponse, lambda response: [response.error_code]
    )
    check_response(response.error_code, f"broker {broker_id}", response.error_message)


def _replica(state: ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        state.replica_id,
        state.log_end_offset,
        state.last_fetch_timestamp,
        state.last_caught_up_timestamp,
        state.replica_directory_id,
    )


# --- features ----------------------------------------------------------------------------------

FEATURES_VERSION: Final = 3
"""The first of ApiVersions that tells of features."""
UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2


class LevelRange(NamedTuple):
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class FeaturesView:
    epoch: int
    """The epoch of the finalized levels; -1: unknown."""
    finalized: Mapping[str, int]
    """What the cluster runs at."""
    supported: Mapping[str, LevelRange]
    """What the broker that was asked could run at."""


async def describe_features(cluster: Cluster) -> FeaturesView:
    request = ApiVersionsRequest(client_software_name="distributedlog", client_software_version="0")

    async def attempt() -> FeaturesView:
        connection = await cluster.any_connection()
        version = connection.version_for(ApiVersionsRequest)
        if version < FEATURES_VERSION:
            return FeaturesView(-1, {}, {})
        response = await cluster.call(connection, request, ApiVersionsResponse)
        check_response(response.error_code, "the features")
        return FeaturesView(
            response.finalized_features_epoch,
            {each.name: each.max_version_level for each in response.finalized_features},
            {
                each.name: LevelRange(each.min_version, each.max_version)
                for each in response.supported_features
            },
        )

    return await cluster.retrying(attempt)


async def update_features(
    cluster: Cluster, levels: Mapping[str, int], *, allow_downgrade: bool = False, validate_only: bool = False
) -> None:
    """All of them, or an error and none."""
    request = UpdateFeaturesRequest(
        timeout_ms=cluster.options.request_timeout_ms,
        feature_updates=[
            FeatureUpdateKey(
                feature=name,
                max_version_level=level,
                allow_downgrade=allow_downgrade,
                upgrade_type=SAFE_DOWNGRADE if allow_downgrade else UPGRADE,
            )
            for name, level in levels.items()
        ],
        validate_only=validate_only,
    )
    response = await ask_controller(
        cluster, request, UpdateFeaturesResponse, lambda response: [response.error_code]
    )
    check_response(response.error_code, "the features", response.error_message)
    for result in response.results:
        check_response(result.error_code, f"the feature {result.feature!r}", result.error_message)
