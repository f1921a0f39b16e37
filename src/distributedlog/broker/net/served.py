"""Which APIs this broker serves, in which versions, and where: the one table of all handlers.

A handler's module is imported on the first request of its API, or when the broker has become ready and has
nothing else to do: nobody waits for thirty modules at the start.  Until then this table is what ApiVersions
answers from; a module that registers itself otherwise than it stands here is refused when it is imported.

Of each API the versions are those that Apache Kafka 4.2 has: with fewer a client that is made for 4.2 alone
cannot go on, and more would be promised than clients were tried with.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from distributedlog.protocol.api_keys import ApiKey


class Served(NamedTuple):
    """Where an API is served, and how, before its module is imported."""

    module: str
    """A module of `broker/handlers/`."""
    low: int
    high: int
    advertised_from: int | None = None
    """The lowest version that ApiVersions names, if not `low`."""


SERVED: Final[Mapping[int, Served]] = {
    ApiKey.PRODUCE: Served("produce", 3, 13, advertised_from=0),
    ApiKey.FETCH: Served("fetch", 4, 18),
    ApiKey.LIST_OFFSETS: Served("list_offsets", 1, 11),
    ApiKey.METADATA: Served("metadata", 0, 13),
    ApiKey.OFFSET_COMMIT: Served("offset_commit", 2, 10),
    ApiKey.OFFSET_FETCH: Served("offset_fetch", 1, 10),
    ApiKey.FIND_COORDINATOR: Served("find_coordinator", 0, 6),
    ApiKey.JOIN_GROUP: Served("join_group", 0, 9),
    ApiKey.HEARTBEAT: Served("heartbeat", 0, 4),
    ApiKey.LEAVE_GROUP: Served("leave_group", 0, 5),
    ApiKey.SYNC_GROUP: Served("sync_group", 0, 5),
    ApiKey.DESCRIBE_GROUPS: Served("describe_groups", 0, 6),
    ApiKey.LIST_GROUPS: Served("list_groups", 0, 5),
    ApiKey.SASL_HANDSHAKE: Served("sasl_handshake", 0, 1),
    ApiKey.API_VERSIONS: Served("api_versions", 0, 4),
    ApiKey.CREATE_TOPICS: Served("create_topics", 2, 7),
    ApiKey.DELETE_TOPICS: Served("delete_topics", 1, 6),
    ApiKey.DELETE_RECORDS: Served("delete_records", 0, 2),
    ApiKey.INIT_PRODUCER_ID: Served("init_producer_id", 0, 5),
    ApiKey.ADD_PARTITIONS_TO_TXN: Served("add_partitions_to_txn", 0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: Served("add_offsets_to_txn", 0, 4),
    ApiKey.END_TXN: Served("end_txn", 0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Served("offset_for_leader_epoch", 2, 4),
    ApiKey.WRITE_TXN_MARKERS: Served("write_txn_markers", 1, 2),
    ApiKey.TXN_OFFSET_COMMIT: Served("txn_offset_commit", 0, 5),
    ApiKey.DESCRIBE_ACLS: Served("describe_acls", 1, 3),
    ApiKey.CREATE_ACLS: Served("create_acls", 1, 3),
    ApiKey.DELETE_ACLS: Served("delete_acls", 1, 3),
    ApiKey.DESCRIBE_CONFIGS: Served("describe_configs", 1, 4),
    ApiKey.ALTER_CONFIGS: Served("alter_configs", 0, 2),
    ApiKey.DESCRIBE_LOG_DIRS: Served("describe_log_dirs", 1, 4),
    ApiKey.SASL_AUTHENTICATE: Served("sasl_authenticate", 0, 2),
    ApiKey.CREATE_PARTITIONS: Served("create_partitions", 0, 3),
    ApiKey.DELETE_GROUPS: Served("delete_groups", 0, 2),
    ApiKey.ELECT_LEADERS: Served("elect_leaders", 0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Served("incremental_alter_configs", 0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Served("alter_partition_reassignments", 0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Served("list_partition_reassignments", 0, 0),
    ApiKey.OFFSET_DELETE: Served("offset_delete", 0, 0),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Served("describe_client_quotas", 0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: Served("alter_client_quotas", 0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Served("describe_user_scram_credentials", 0, 0),
    ApiKey.DESCRIBE_QUORUM: Served("describe_quorum", 0, 2),
    ApiKey.UPDATE_FEATURES: Served("update_features", 0, 2),
    ApiKey.DESCRIBE_CLUSTER: Served("describe_cluster", 0, 2),
    ApiKey.DESCRIBE_PRODUCERS: Served("describe_producers", 0, 0),
    ApiKey.UNREGISTER_BROKER: Served("unregister_broker", 0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: Served("describe_transactions", 0, 0),
    ApiKey.LIST_TRANSACTIONS: Served("list_transactions", 0, 2),
    ApiKey.LIST_CONFIG_RESOURCES: Served("list_config_resources", 0, 1),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Served("consumer_group_heartbeat", 0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Served("consumer_group_describe", 0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Served("describe_topic_partitions", 0, 0),
    ApiKey.ADD_RAFT_VOTER: Served("add_raft_voter", 0, 1),
    ApiKey.REMOVE_RAFT_VOTER: Served("remove_raft_voter", 0, 0),
    ApiKey.SINK_TRANSACTION: Served("sink_transaction", 0, 0),
}
"""All that is served, by API key."""
