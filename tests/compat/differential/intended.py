"""The differences that are meant.

Each entry has a heading, the reason as users read it in docs/differences.md, and the places where it shows.
An entry with an empty heading is about how the two brokers are set up for the comparison, and is on no page.
Entries are as narrow as their reason: what the brokers answer is named wherever it is one thing.
"""

from collections.abc import Sequence
from typing import Final

from distributedlog.model.cluster_settings import CLUSTER_SETTINGS, INTERNAL_TOPICS_GROW, MIN_INSYNC_REPLICAS
from tests.compat.differential.compare import ABSENT, ANY, Intended, Match
from tests.compat.differential.not_yet import NOT_YET
from tests.compat.differential.trees import TEXT

_UNKNOWN: Final = "UNKNOWN_SERVER_ERROR"
_CHANGED_BY_BOTH: Final = ("broker.session.timeout.ms", "unclean.leader.election.enable")
"""The settings of the whole cluster that either broker changes while it runs, or neither."""
_OURS_ALONE: Final = {"log.flush.on.commit", INTERNAL_TOPICS_GROW}
"""The settings of the whole cluster that Kafka does not have."""
_NO_TOPIC: Final = "UNKNOWN_TOPIC_OR_PARTITION"

TEXTS: Final = (
    Intended(
        "Texts",
        "Where something is refused the answer says why, also where Kafka leaves the text out. The words "
        "are our own; where nothing is wrong there is no text, while Kafka sometimes sends an empty one, "
        "or `NONE`.",
        (
            Match("**", "**error_message", None, TEXT),
            Match("**", "**error_message", "", None),
            Match("**", "**error_message", "", TEXT),
            Match("FindCoordinator/coordinator/*", "error_message", TEXT, None),
        ),
    ),
)

APIS: Final = (
    Intended(
        "What is not there",
        "Calls that are not served are not offered in ApiVersions: delegation tokens, "
        "changing of SCRAM credentials, share groups and Kafka Streams' groups.",
        (Match("ApiVersions/versions/greeting", "api_keys/*", ANY, ABSENT),),
    ),
    Intended(
        "What is not there",
        "Features that belong to Kafka's own metadata and to calls that are not served are not named. The "
        "level of our metadata is `dlog.metadata.version`.",
        (
            Match("ApiVersions/versions/greeting", "*_features/*", ANY, ABSENT),
            Match("ApiVersions/versions/greeting", "*_features/dlog.metadata.version", ABSENT, ANY),
        ),
    ),
)

WRITING: Final = (
    Intended(
        "Writing",
        "A partition that is named twice in one Produce gets both batches, in their order. Kafka keeps one "
        "of the two without a word.",
        (
            Match("Produce/twice in one request/a partition twice", "**/partition_responses/0#2", ABSENT),
            Match("Produce/twice in one request/where the log ends then", "**/offset", 3, 6),
        ),
    ),
    Intended(
        "Writing",
        "Null in place of records is refused. Kafka does not answer such a request at all.",
        (
            Match("Produce/null records/null", "no answer", "silent", ABSENT),
            Match("Produce/null records/null", "responses", ABSENT, ANY),
            Match("Produce/null records/null", "throttle_time_ms", ABSENT, 0),
            Match("Produce/null records/null", "node_endpoints", ABSENT, ANY),
        ),
    ),
    Intended(
        "Writing",
        "A compression that does not exist is UNSUPPORTED_COMPRESSION_TYPE, and records that are not "
        "compressed as they claim are CORRUPT_MESSAGE. Kafka meets both by accident, with "
        "UNKNOWN_SERVER_ERROR.",
        (
            Match("Produce/bad batches/codec *", "**/error_code", _UNKNOWN, "UNSUPPORTED_COMPRESSION_TYPE"),
            Match("Produce/bad batches/codec *", "**/log_start_offset", -1, 0, until=6),
            Match("Produce/bad batches/gzip that is none", "**/error_code", _UNKNOWN, "CORRUPT_MESSAGE"),
            Match("Produce/bad batches/gzip that is none", "**/log_start_offset", 0, -1, since=5),
        ),
    ),
    Intended(
        "Writing",
        "A batch that came twice is answered as it was the first time. Kafka gives the batch's own "
        "timestamp as the time of the append, though the topic keeps the producer's time.",
        (Match("Produce/idempotence/*again", "**/log_append_time_ms", ANY, -1),),
    ),
    Intended(
        "Writing",
        "A batch that is compressed anew for `compression.type` holds the same records in other bytes: the "
        "libraries differ.",
        (
            Match("Produce/recompressed/read *", "**/records/*/crc"),
            Match("Produce/recompressed/read zstd", "**/records/*/batch_length"),
        ),
    ),
    Intended(
        "Writing",
        "Bytes behind a batch that are none are INVALID_RECORD. Kafka drops them without a word.",
        (
            Match("Produce/odd batches/a byte behind", "**/partition_responses/0/*"),
            Match("Produce/odd batches/a byte behind, read", "**"),
        ),
    ),
    Intended(
        "Writing",
        "The offset that a producer writes into a batch is ignored, since the leader gives every batch its "
        "own. Kafka refuses all but 0 with INVALID_RECORD.",
        (
            Match("Produce/odd batches/base offset 100", "**/partition_responses/0/*"),
            Match("Produce/odd batches/base offset 100, read", "**"),
        ),
    ),
)

READING: Final = (
    Intended(
        "Reading",
        "An isolation level that does not exist is taken as read-uncommitted, and a negative limit on "
        "bytes as 0. Kafka answers both with UNKNOWN_SERVER_ERROR, from an exception.",
        (
            Match("Fetch/offsets/isolation level 7", "**"),
            Match("ListOffsets/specs/isolation level 7", "**"),
            Match("Fetch/limits/*max_bytes=-1", "**"),
        ),
    ),
    Intended(
        "Reading",
        "Whoever says in Fetch or ListOffsets that it is a replica is refused with "
        "CLUSTER_AUTHORIZATION_FAILED: nothing proves it. Kafka believes it where there is no authorizer.",
        (
            Match("Fetch/as a replica/replica_id=1", "**"),
            Match("Fetch/as a replica/replica_id=1", "responses/*", ANY, ABSENT, since=13),
            Match("Fetch/as a replica/replica_id=5", "**"),
            Match("Fetch/as a replica/replica_id=5", "responses/*", ANY, ABSENT, since=13),
            Match("ListOffsets/offsets as a replica/replica_id=1", "**"),
            Match("ListOffsets/offsets as a replica/replica_id=5", "**"),
        ),
    ),
)

TOPICS: Final = (
    Intended(
        "Topics",
        "Metadata that makes a topic on first use waits until it is made and tells of it at once. Kafka "
        "says UNKNOWN_TOPIC_OR_PARTITION first, and clients ask again.",
        (
            Match("Metadata/made on first use/first", "topics/*/error_code", _NO_TOPIC, "NONE"),
            Match("Metadata/made on first use/first", "topics/*/partitions/0", ABSENT),
            Match("Metadata/made on first use/first", "topics/*/topic_id", "<zero>"),
        ),
    ),
    Intended(
        "Topics",
        "Names that differ only in `.` and `_` are refused also when both come in one CreateTopics, where "
        "Kafka looks only at those that are there already.",
        (
            Match("CreateTopics/names alike/two at once", "topics/*c_d/*"),
            Match("CreateTopics/names alike/two at once", "topics/*c_d/configs/*", ANY, ABSENT),
        ),
    ),
    Intended(
        "Topics",
        "A topic that is asked for by the id zero is INVALID_REQUEST, for Kafka UNKNOWN_SERVER_ERROR; so "
        "is an operation on settings that does not exist.",
        (
            Match("Metadata/by id/neither", "**error_code", _UNKNOWN, "INVALID_REQUEST"),
            Match(
                "IncrementalAlterConfigs/changes of a topic/operation *",
                "**/error_code", _UNKNOWN, "INVALID_REQUEST",
            ),
        ),
    ),
)  # fmt: skip

CLUSTER: Final = (
    Intended(
        "The cluster",
        "DescribeQuorum: a partition that has no quorum has the leader -1, for Kafka node 0; the voters' "
        "addresses are told also beside an error; and the metadata partition may be named twice, for Kafka "
        "UNKNOWN_TOPIC_OR_PARTITION.",
        (
            Match("DescribeQuorum/quorum/another *", "topics/*/partitions/*/*", ANY, -1),
            Match("DescribeQuorum/quorum/*", "nodes/1", ABSENT, since=2),
            Match("DescribeQuorum/quorum/twice", "topics/__cluster_metadata/partitions/*/**"),
        ),
    ),
    Intended(
        "The cluster",
        "UpdateFeatures that names a feature twice is INVALID_REQUEST. Kafka takes the last and answers for "
        "it, and has a text also for what it did not refuse.",
        (
            Match("UpdateFeatures/features/twice", "error_code", ANY, "INVALID_REQUEST"),
            Match("UpdateFeatures/features/*", "results/group.version/error_message", TEXT, None),
        ),
    ),
    Intended(
        "The cluster",
        "AlterClientQuotas refuses with INVALID_REQUEST what would have no effect: a quota that does not "
        "exist, also if it is removed, a limit that is not a number, the rate of an address's connections, "
        "and an entity that names a user twice.",
        (
            Match("AlterClientQuotas/quotas/not known, removed", "**/error_code", "NONE", "INVALID_REQUEST"),
            Match("AlterClientQuotas/quotas/not a number", "**/error_code", "NONE", "INVALID_REQUEST"),
            Match("AlterClientQuotas/quotas/address", "**/error_code", "NONE", "INVALID_REQUEST"),
            Match("AlterClientQuotas/quotas/an entity twice", "**/error_code", "NONE", "INVALID_REQUEST"),
            Match("AlterClientQuotas/quotas/an entity twice", "entries/0/entity/user#2", ABSENT),
        ),
    ),
    Intended(
        "The cluster",
        "A group or resource that a request names twice is described once.",
        (
            Match("DescribeGroups/groups described/one twice", "groups/*#2", ANY, ABSENT),
            Match("ConsumerGroupDescribe/consumer groups described/one twice", "groups/*#2", ANY, ABSENT),
            Match("DescribeConfigs/of a topic/twice", "results/*#2", ANY, ABSENT),
        ),
    ),
)

GROUPS: Final = (
    Intended(
        "Groups",
        "A member of the new protocol that speaks to a group that is not there hears UNKNOWN_MEMBER_ID, on "
        "which every client joins anew; Kafka says GROUP_ID_NOT_FOUND, on which some give up.",
        (
            Match(
                "ConsumerGroupHeartbeat/a member/is in a group that is not there",
                "error_code", "GROUP_ID_NOT_FOUND", "UNKNOWN_MEMBER_ID",
            ),
        ),
    ),
    Intended(
        "Groups",
        "A member that names one assignor twice joins. Kafka does not answer it.",
        (Match("JoinGroup/joining/new group, a protocol twice", "**"),),
    ),
    Intended(
        "Groups",
        "While a group rebalances its members are described without an assignment. Kafka shows that of the "
        "generation before.",
        (Match("DescribeGroups/groups described/completing", "**/member_assignment", ANY, ""),),
    ),
)  # fmt: skip

TRANSACTIONS: Final = (
    Intended(
        "Transactions",
        "AddPartitionsToTxn from version 4 on is for brokers, and refused with CLUSTER_AUTHORIZATION_FAILED "
        "for whoever has not proved to be one. Kafka believes it where there is no authorizer, and does not "
        "answer one that names no transaction.",
        (Match("AddPartitionsToTxn/added by brokers/*", "**", since=4),),
    ),
    Intended(
        "Transactions",
        "A partition of an internal topic is INVALID_TOPIC_EXCEPTION in AddPartitionsToTxn, as it is in "
        "Produce. Kafka says TOPIC_AUTHORIZATION_FAILED, whoever asks.",
        (
            Match(
                "AddPartitionsToTxn/added where something is wrong/a topic of groups",
                "**/partition_error_code", "TOPIC_AUTHORIZATION_FAILED", "INVALID_TOPIC_EXCEPTION",
            ),
        ),
    ),
    Intended(
        "Transactions",
        "A group without a name is INVALID_GROUP_ID in AddOffsetsToTxn already. Kafka adds it, and refuses "
        "what is committed for it.",
        (Match("AddOffsetsToTxn/added offsets/an empty group", "error_code", "NONE", "INVALID_GROUP_ID"),),
    ),
    Intended(
        "Transactions",
        "A member that commits in a transaction for a group that has positions and never had members gets "
        "ILLEGAL_GENERATION. Kafka says UNKNOWN_MEMBER_ID once there are positions; producers abort on "
        "both.",
        (
            Match(
                "TxnOffsetCommit/committed by members/a static member that is not there",
                "**/error_code", "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION",
            ),
        ),
    ),
    Intended(
        "Transactions",
        "A marker that comes again is acknowledged and not written again. Kafka writes another one.",
        (
            Match("WriteTxnMarkers/written*/in the end, *", "**/partitions/0/*", 6, 5),
            Match("WriteTxnMarkers/written*/in the end, *", "**/partitions/0/records/2/producer_epoch"),
            Match("WriteTxnMarkers/written/in the end, *", "**/partitions/0/records/2/records/0/key"),
            Match("WriteTxnMarkers/written*/in the end, *", "**/partitions/0/records/3", ANY, ABSENT),
        ),
    ),
    Intended(
        "Transactions",
        "WriteTxnMarkers is answered for every producer that it names. Kafka leaves out those without "
        "partitions.",
        (
            Match("WriteTxnMarkers/written where something is wrong/no topic", "markers/*", ABSENT),
            Match(
                "WriteTxnMarkers/written where something is wrong/a topic without partitions",
                "markers/*", ABSENT,
            ),
        ),
    ),
    Intended(
        "Transactions",
        "A transactional batch that is refused is answered with the partition's log start offset, as other "
        "batches are. Kafka says -1.",
        (
            Match(
                "Produce/transactions/of a transaction that never began",
                "**/log_start_offset", -1, 0, since=5,
            ),
        ),
    ),
)  # fmt: skip

REASSIGNMENTS: Final = (
    Intended(
        "The cluster",
        "AlterPartitionReassignments, AddPartitionsToTxn and DescribeTransactions answer once for what they "
        "name twice, and leave out a topic of which they name no partition. A partition that "
        "AlterPartitionReassignments names twice is INVALID_REQUEST; Kafka takes the last.",
        (
            Match("AlterPartitionReassignments/moved/a topic without partitions", "responses/*", ANY, ABSENT),
            Match("AlterPartitionReassignments/moved/a topic twice", "responses/*#2", ANY, ABSENT),
            Match("AlterPartitionReassignments/moved/a topic twice", "responses/*/partitions/1", ABSENT),
            Match(
                "AlterPartitionReassignments/moved/a partition twice",
                "**/error_code", "NONE", "INVALID_REQUEST",
            ),
            Match(
                "AddPartitionsToTxn/added where something is wrong/a topic without partitions",
                "results_by_topic_v3_and_below/*", ANY, ABSENT,
            ),
            Match(
                "AddPartitionsToTxn/added where something is wrong/a partition twice",
                "**/results_by_partition/*#2", ANY, ABSENT,
            ),
            Match(
                "DescribeTransactions/described while open/twice", "transaction_states/*#2", ANY, ABSENT
            ),
        ),
    ),
    Intended(
        "The cluster",
        "AlterPartitionReassignments that gives no time is done all the same. Kafka answers "
        "REQUEST_TIMED_OUT, whether it is done or not.",
        (
            Match(
                "AlterPartitionReassignments/moved/no time", "**error_code", "REQUEST_TIMED_OUT", "NONE"
            ),
            Match(
                "AlterPartitionReassignments/moved/a negative time",
                "**error_code", "REQUEST_TIMED_OUT", "NONE",
            ),
        ),
    ),
)  # fmt: skip

SETTINGS: Final = (
    Intended(
        "Settings",
        "Topics have three settings of their own: `flush.on.commit` (whether an acknowledgement waits for "
        "the disk), `record.validation` (whether every record is walked before it is stored) and "
        "`producer.id.expiration.ms`, which Kafka has for brokers only.",
        (
            Match("**", "**/configs/flush.on.commit", ABSENT),
            Match("**", "**/configs/record.validation", ABSENT),
            Match("**", "**/configs/producer.id.expiration.ms", ABSENT),
        ),
    ),
    Intended(
        "Settings",
        "`NaN` is no `min.cleanable.dirty.ratio`. Kafka takes it, since it is neither below 0 nor above 1.",
        (
            Match(
                "IncrementalAlterConfigs/values of topic settings/min.cleanable.dirty.ratio=NaN",
                "**/error_code", "NONE", "INVALID_CONFIG",
            ),
        ),
    ),
    Intended(
        "Settings",
        "A broker describes the settings that it has: those of Kafka that stand for nothing here are not "
        "listed, and some are our own (docs/configuration.md).",
        (
            Match("DescribeConfigs/of a broker/*", "results/4:*/configs/*", ANY, ABSENT),
            Match("DescribeConfigs/of a broker/*", "results/4:*/configs/*", ABSENT, ANY),
        ),
    ),
)  # fmt: skip

TOPIC_SETTINGS: Final = (
    Intended(
        "Settings",
        "CreateTopics that gives one setting twice is INVALID_REQUEST. Kafka takes the last.",
        (
            Match("CreateTopics/with settings/twice", "topics/*/*"),
            Match("CreateTopics/with settings/twice", "topics/*/configs/*", ANY, ABSENT),
        ),
    ),
    Intended(
        "Settings",
        "What a setting comes from is told as it is: `log.retention.ms`, `log.roll.ms`, `log.roll.jitter.ms` "
        "and `log.flush.interval.ms` have the value that holds, where Kafka has null; they are synonyms of "
        "the topics' settings.",
        (
            Match("DescribeConfigs/of a broker/*", "**/configs/log.*/value", None),
            Match("DescribeConfigs/of a broker/some", "**/configs/log.retention.ms/synonyms/0", ABSENT),
            Match("**", "results/2:*/configs/*/synonyms/*", ABSENT, ANY),
        ),
    ),
    Intended(
        "Settings",
        "What Kafka does with `min.insync.replicas` alone is done with every setting that controllers and "
        "brokers both act on: it is in the metadata as the setting of all brokers, changed there while the "
        "cluster runs, and no single broker has its own.",
        (
            *(
                Match("**", f"**/configs/{name}/{place}")
                for name in sorted(CLUSTER_SETTINGS.keys() - {MIN_INSYNC_REPLICAS} - _OURS_ALONE)
                for place in ("config_source", "read_only")
                if place != "read_only" or name not in _CHANGED_BY_BOTH
            ),
            *(
                Match("**", f"**/configs/{name}/synonyms/{place}")
                for name in ("num.partitions", "unclean.leader.election.enable")
                for place in ("*", "*/source")
            ),
            Match("DescribeConfigs/of a broker/of all brokers", "**/configs/*", ABSENT, ANY),
        ),
    ),
    Intended(
        "Settings",
        "Brokers have some other defaults: the size of groups and the number of connections are bounded, "
        "`broker.heartbeat.interval.ms` is 500, `broker.session.timeout.ms` 6000 and "
        "`log.cleaner.backoff.ms` 10000. Listeners, the numbers of connections and `log.cleaner.backoff.ms` "
        "are changed by a restart alone.",
        tuple(
            Match("DescribeConfigs/of a broker/all", f"**/configs/{name}")
            for name in (
                "group.max.size/value",
                "group.consumer.max.size/value",
                "max.connections*/value",
                "max.connections*/read_only",
                "broker.heartbeat.interval.ms/value",
                "broker.session.timeout.ms/value",
                "log.cleaner.backoff.ms/*",
                "listeners/read_only",
            )
        ),
    ),
)  # fmt: skip

SEVERAL_BROKERS: Final = (
    Intended(
        "Several brokers",
        "What takes more than one broker is not compared, and known to differ in this: topics of a new "
        "cluster have as many replicas as there are voters, at most 3, unless told otherwise "
        "(`default.replication.factor`, `offsets.topic.replication.factor`, "
        "`transaction.state.log.replication.factor`). Kafka's defaults are 1 for topics and 3 for the "
        "internal ones, however many brokers there are.",
        (),
    ),
    Intended(
        "Several brokers",
        "Consumers that name their rack read from a follower there without further settings; Kafka asks "
        "for a `replica.selector.class`.",
        (),
    ),
    Intended(
        "Several brokers",
        "An unclean election takes the replica whose log goes furthest. Kafka does not compare logs.",
        (),
    ),
    Intended(
        "Several brokers",
        "Metadata names fenced brokers to clients built on librdkafka, which forget brokers that are left "
        "out. Kafka leaves them out for everyone.",
        (),
    ),
)

SET_UP: Final = (
    Intended(
        "",
        "The two brokers are started with different settings and directories.",
        (
            Match("DescribeConfigs/of a broker/all", "**/configs/log.dirs/value"),
            Match("DescribeConfigs/of a broker/all", "**/configs/listeners/value"),
            Match("DescribeConfigs/of a broker/all", "**/configs/advertised.listeners/value"),
            Match("DescribeConfigs/of a broker/all", "**/configs/controller.quorum.voters/value"),
        ),
    ),
)

INTENDED: Final[Sequence[Intended]] = (
    *APIS, *WRITING, *READING, *TOPICS, *GROUPS, *TRANSACTIONS, *CLUSTER, *REASSIGNMENTS, *SETTINGS,
    *TOPIC_SETTINGS, *TEXTS, *SEVERAL_BROKERS, *NOT_YET, *SET_UP,
)  # fmt: skip
