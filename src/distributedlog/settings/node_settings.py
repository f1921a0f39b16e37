"""The settings of one node, under the names Kafka's users know.

`SETTINGS` is the one table of all there is: it is made from the declarations below and from those of
`LogConfig` (the defaults for topics, under Kafka's names for them), and everything else comes from it: the
parser, `docs/configuration.md`, and the response of DescribeConfigs.

`loading` says where values come from.

`NodeSettings` is frozen and checks itself, so that no other place has to doubt it.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from enum import StrEnum
from functools import partial
from typing import Any, ClassVar, Final, cast

from distributedlog.model.cluster_settings import CLUSTER_SETTINGS
from distributedlog.model.config import (
    DAY_MS,
    HOUR_MS,
    INT32_MAX,
    INT64_MAX,
    MIB,
    MINUTE_MS,
    SECOND_MS,
    LogConfig,
)
from distributedlog.model.errors import ConfigError
from distributedlog.settings.addresses import (
    NOWHERE,
    Endpoint,
    Listener,
    Voter,
    parse_endpoint,
    parse_listeners,
    parse_optional_endpoint,
    parse_voters,
)
from distributedlog.settings.consistency import BROKER, CONTROLLER, ROLES, check_consistency
from distributedlog.settings.log_settings import LOG_SETTING_NAMES
from distributedlog.settings.schema import Kind, Setting, spell

METADATA_DIRECTORY: Final = "__cluster_metadata"
SECRET_FILE: Final = "cluster.secret"  # noqa: S105 - a name
REQUIRED: Final = "required"
OPTIONAL: Final = "optional"
ASSIGNORS: Final = ("uniform", "range")
MIGRATIONS: Final = ("bidirectional", "upgrade", "downgrade", "disabled")
SESSION_TIMEOUT_WHEN_NEW: Final = "6000 (6 s) in a new cluster"
REPLICAS_BY_VOTERS: Final = "as many as nodes vote, at most 3"
MIN_INSYNC_BY_VOTERS: Final = "2 if three or more nodes vote, else 1"
LOG_FORMATS: Final = ("console", "json")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
CLUSTER_ID_LENGTH_MAX: Final = 100
PATH_LENGTH_MAX: Final = 4096
DATA_DIRECTORY: Final = "dlog-data"
_CLIENT_LISTENERS: Final = (Listener("PLAINTEXT", "127.0.0.1", 9092),)
_CONTROL_ENDPOINT: Final = Endpoint("127.0.0.1", 9093)
_OPS_ENDPOINT: Final = Endpoint("127.0.0.1", 9644)


class Source(StrEnum):
    """Where a value came from."""

    COMMAND_LINE = "--set"
    ENVIRONMENT = "environment"
    FILE = "file"


def _declare(default: Any, name: str, documentation: str, **facts: Any) -> Any:
    return field(default=default, metadata={"name": name, "documentation": documentation, **facts})


def _number(
    default: int, name: str, documentation: str, low: int = 0, high: int = INT32_MAX, kind: Kind | None = None
) -> Any:
    """Declares a number; its kind is that of its bounds, unless Kafka tells another."""
    kind = kind or (Kind.INT if high <= INT32_MAX else Kind.LONG)
    return _declare(default, name, documentation, kind=kind, low=low, high=high)


def _flag(default: bool, name: str, documentation: str, **facts: Any) -> Any:
    return _declare(default, name, documentation, kind=Kind.BOOLEAN, **facts)


def _cluster_wide(name: str, documentation: str, kind: Kind = Kind.INT, **facts: Any) -> Any:
    common = CLUSTER_SETTINGS[name]
    facts |= {"is_cluster_wide": True, "is_dynamic": common.is_dynamic}
    if isinstance(common.default, bool):
        return _flag(common.default, name, documentation, **facts)
    return _declare(common.default, name, documentation, kind=kind, low=common.low, high=common.high, **facts)


def _text(default: str | None, name: str, documentation: str, **facts: Any) -> Any:
    return _declare(default, name, documentation, kind=Kind.STRING, **facts)


def _parsed(
    parse: Callable[[str, str], Any], default: Any, name: str, documentation: str, **facts: Any
) -> Any:
    facts.setdefault("kind", Kind.STRING)
    return _declare(default, name, documentation, parse=partial(parse, name), **facts)


def _parse_text(name: str, length_max: int, text: str) -> str | None:
    if len(text) > length_max:
        raise ConfigError(f"{name} has {len(text)} characters; at most {length_max}")
    return text or None


def _parse_roles(name: str, text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(",") if part.strip())


def _parse_directory(name: str, text: str) -> str:
    if not text or "," in text or "\0" in text:
        raise ConfigError(f"{name} cannot be {text[:80]!r}: name one directory")
    return text


SECTIONS: Final = {
    "node_id": "The node",
    "listeners": "Listeners",
    "controller_quorum_voters": "The controllers",
    "auto_create_topics": "Topics and replication",
    "offsets_topic_partitions": "Groups and offsets",
    "transactions_topic_partitions": "Transactions",
    "socket_request_bytes_max": "Limits",
    "retention_check_interval_ms": "Maintenance",
    "log_format": "What the process says of itself",
}
"""Each begins with the named field."""
LOG_SECTION: Final = "Defaults of topics"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """What one node is set up with.  Port 0 anywhere means: a free one."""

    node_id: int = _number(1, "node.id", "The node's number, different from every other's in the cluster.")
    process_roles: frozenset[str] = _parsed(
        _parse_roles, frozenset(ROLES), "process.roles",
        "Whether the node holds partitions, votes on the cluster's metadata, or both.",
        kind=Kind.LIST, choices=ROLES,
    )  # fmt: skip
    cluster_id: str | None = _parsed(
        lambda name, text: _parse_text(name, CLUSTER_ID_LENGTH_MAX, text), None, "cluster.id",
        "The cluster that the node belongs to: a directory of another one is refused.",
        default_text="what the data directory says",
    )  # fmt: skip
    data_dir: str = _parsed(
        _parse_directory, DATA_DIRECTORY, "log.dirs",
        "The directory that holds the partitions, a list of one; the metadata log is in it too.",
        kind=Kind.LIST,
    )  # fmt: skip
    secret_file: str | None = _parsed(
        lambda name, text: _parse_text(name, PATH_LENGTH_MAX, text), None, "cluster.secret.file",
        "The file with the cluster's secret, the same for all nodes: with it they prove to each other that "
        "they belong together. One to a line: the first is used, all are accepted. 0600.",
        default_text="`cluster.secret` in the directory of the metadata log",
    )  # fmt: skip
    control_authentication: str = _text(
        REQUIRED, "control.authentication",
        "Whether nodes must prove that they hold the secret; `optional` only for the time of an upgrade.",
        choices=(REQUIRED, OPTIONAL),
    )  # fmt: skip
    rack: str | None = _parsed(
        lambda name, text: _parse_text(name, 255, text), None, "broker.rack",
        "Where the node stands: replicas of a partition are spread over racks.",
    )  # fmt: skip
    host: str | None = _parsed(
        lambda name, text: _parse_text(name, 255, text), None, "broker.host",
        "The machine that the node runs on: no two replicas of a partition are put on one machine while "
        "another could take one. Say it where addresses do not, as in containers.",
        default_text="the host of the first of `advertised.listeners`",
    )  # fmt: skip

    listeners: tuple[Listener, ...] = _parsed(
        parse_listeners, _CLIENT_LISTENERS, "listeners",
        "Where clients are served: NAME://HOST:PORT, several with commas; followers use the first.",
        kind=Kind.LIST,
    )  # fmt: skip
    advertised_listeners: tuple[Listener, ...] = _parsed(
        parse_listeners, (), "advertised.listeners",
        "What clients connect to, where that is not what is listened on; the same names.",
        kind=Kind.LIST, default_text="as `listeners`",
    )  # fmt: skip
    control_listener: Endpoint = _parsed(  # noqa: RUF009 - a declaration
        parse_endpoint, _CONTROL_ENDPOINT, "control.listener",
        "Where the other nodes reach this one: gRPC, between nodes only.",
        default_text="the node's own entry in `controller.quorum.voters`, else 127.0.0.1:9093",
    )  # fmt: skip
    ops_listener: Endpoint | None = _parsed(  # noqa: RUF009 - a declaration
        parse_optional_endpoint, _OPS_ENDPOINT, "ops.listener",
        "Where `/metrics`, `/health/live` and `/health/ready` are served, by HTTP; `none` turns it off.",
    )  # fmt: skip
    insecure: bool = _flag(
        False, "insecure",
        "Allow listeners on other than loopback addresses although nobody has to authenticate.",
    )  # fmt: skip

    controller_quorum_voters: tuple[Voter, ...] = _parsed(
        parse_voters, (), "controller.quorum.voters",
        "The first voters on the cluster's metadata: ID@HOST:PORT, several with commas; others join later.",
        kind=Kind.LIST, default_text="this node alone",
    )  # fmt: skip
    quorum_election_timeout_ms: int = _number(
        1000, "controller.quorum.election.timeout.ms",
        "A voter that hears no leader for one to two of these starts an election.",
        low=20, high=10 * MINUTE_MS,
    )  # fmt: skip
    quorum_heartbeat_ms: int = _number(
        200, "controller.quorum.heartbeat.interval.ms",
        "How often a leader says that it is there; at least two must fit into the election timeout.",
        low=10, high=5 * MINUTE_MS,
    )  # fmt: skip
    broker_session_timeout_ms: int = _cluster_wide(
        "broker.session.timeout.ms", "A broker that sends no heartbeat for this long is fenced.",
        default_text=SESSION_TIMEOUT_WHEN_NEW,
    )  # fmt: skip
    broker_heartbeat_interval_ms: int = _number(
        500, "broker.heartbeat.interval.ms", "How often a broker says that it is there.",
        low=10, high=30 * MINUTE_MS,
    )  # fmt: skip
    broker_refused_timeout_ms: int = _number(
        1 * SECOND_MS, "broker.refused.timeout.ms",
        "A broker that sends no heartbeat for this long, or for two intervals if that is longer, and whose "
        "listeners refuse connections, is fenced.",
        low=10, high=60 * MINUTE_MS,
    )  # fmt: skip
    registration_timeout_ms: int = _number(
        60 * SECOND_MS, "initial.broker.registration.timeout.ms",
        "How long a broker tries to register while another process is alive under its id.",
        low=100, high=60 * MINUTE_MS,
    )  # fmt: skip
    leader_balance_interval_s: int = _number(
        300, "leader.imbalance.check.interval.seconds",
        "How often leaderships are handed back to the replicas that should have them.", low=1, kind=Kind.LONG,
    )  # fmt: skip

    auto_create_topics: bool = _flag(
        True, "auto.create.topics.enable", "Create a topic when a client first names it."
    )
    num_partitions: int = _cluster_wide("num.partitions", "Of a topic that is created without a count.")
    default_replication_factor: int = _cluster_wide(
        "default.replication.factor", "Of a topic that is created without one.",
        default_text=REPLICAS_BY_VOTERS,
    )  # fmt: skip
    min_insync_replicas: int = _cluster_wide(
        "min.insync.replicas", "How many replicas must have a record before acks=all is acknowledged.",
        topic_name="min.insync.replicas", default_text=MIN_INSYNC_BY_VOTERS,
    )  # fmt: skip
    unclean_leader_election: bool = _cluster_wide(
        "unclean.leader.election.enable",
        "Let a replica lead that may lack acknowledged records, rather than none.",
        topic_name="unclean.leader.election.enable",
    )  # fmt: skip
    internal_topics_grow: bool = _cluster_wide(
        "internal.topics.grow.enable",
        "Give internal topics with fewer replicas up to 3, one on each broker, when brokers join.",
        default_text="true in a new cluster",
    )
    delete_topic_enable: bool = _flag(True, "delete.topic.enable", "Allow topics to be deleted.")
    replica_fetch_bytes_max: int = _number(
        1 * MIB, "replica.fetch.max.bytes", "What a follower fetches of one partition at once.",
        low=1024, high=INT32_MAX,
    )  # fmt: skip
    replica_fetch_response_bytes_max: int = _number(
        10 * MIB, "replica.fetch.response.max.bytes", "What a follower fetches at once in all.",
        low=1024, high=INT32_MAX,
    )  # fmt: skip
    replica_fetch_wait_ms_max: int = _number(
        500, "replica.fetch.wait.max.ms",
        "How long a leader may let a follower's fetch wait for something new.", low=1, high=60 * SECOND_MS,
    )  # fmt: skip
    replica_socket_timeout_ms: int = _number(
        30 * SECOND_MS, "replica.socket.timeout.ms",
        "How long a follower waits for an answer, beyond what it lets a fetch wait.", low=100, high=INT32_MAX,
    )  # fmt: skip
    replica_lag_ms_max: int = _number(
        30 * SECOND_MS, "replica.lag.time.max.ms",
        "A follower that has not caught up for this long leaves the in-sync replicas.",
        low=100, high=INT64_MAX,
    )  # fmt: skip
    leader_throttled_rate: int = _declare(
        INT64_MAX, "leader.replication.throttled.rate",
        "Bytes in a second that are sent, as a leader, to throttled replicas which are not in sync.",
        kind=Kind.LONG, low=0, high=INT64_MAX, is_dynamic=True,
    )  # fmt: skip
    follower_throttled_rate: int = _declare(
        INT64_MAX, "follower.replication.throttled.rate",
        "Bytes in a second that throttled replicas which are not in sync fetch.",
        kind=Kind.LONG, low=0, high=INT64_MAX, is_dynamic=True,
    )  # fmt: skip

    offsets_topic_partitions: int = _cluster_wide(
        "offsets.topic.num.partitions",
        "Of the topic that keeps groups and their offsets, when it is created.",
    )
    offsets_topic_replication_factor: int = _cluster_wide(
        "offsets.topic.replication.factor",
        "Of the same; at most as many as there are brokers.",
        kind=Kind.SHORT,
        default_text=REPLICAS_BY_VOTERS,
    )
    offsets_topic_segment_bytes: int = _cluster_wide(
        "offsets.topic.segment.bytes", "Of the same: how large its segments grow."
    )
    offsets_retention_minutes: int = _number(
        7 * 24 * 60,
        "offsets.retention.minutes",
        "A group without members keeps its offsets this long.",
        low=1,
    )
    offsets_retention_check_ms: int = _number(
        10 * MINUTE_MS, "offsets.retention.check.interval.ms", "How often expired offsets are looked for.",
        low=1, kind=Kind.LONG,
    )  # fmt: skip
    offset_metadata_bytes_max: int = _number(
        4096, "offset.metadata.max.bytes", "What a client may store with an offset.", high=32_000
    )
    group_session_timeout_ms_min: int = _number(
        6 * SECOND_MS, "group.min.session.timeout.ms", "The shortest session a member may ask for.", low=1
    )
    group_session_timeout_ms_max: int = _number(
        30 * MINUTE_MS, "group.max.session.timeout.ms", "The longest session a member may ask for.", low=1
    )
    group_initial_rebalance_delay_ms: int = _number(
        3 * SECOND_MS, "group.initial.rebalance.delay.ms", "How long an empty group waits for more members."
    )
    group_members_max: int = _number(10_000, "group.max.size", "Members that one group may have.", low=1)
    group_bytes_max: int = _number(
        16 * MIB, "group.max.bytes", "What the members of one group may hold in memory.", low=1
    )
    group_client_bytes_max: int = _number(
        32 * MIB, "group.client.max.bytes",
        "What all members of groups that come from one address may hold in memory.", low=1,
    )  # fmt: skip
    group_coordinator_bytes_max: int = _number(
        128 * MIB, "group.coordinator.max.bytes",
        "What the members of all groups that a broker coordinates may hold in memory.", low=1,
    )  # fmt: skip
    consumer_session_timeout_ms: int = _number(
        45 * SECOND_MS, "group.consumer.session.timeout.ms",
        "A member of a consumer group that sends no heartbeat for this long is removed.", low=1,
    )  # fmt: skip
    consumer_heartbeat_interval_ms: int = _number(
        5 * SECOND_MS, "group.consumer.heartbeat.interval.ms",
        "How often members of consumer groups send heartbeats.", low=1,
    )  # fmt: skip
    consumer_session_timeout_ms_min: int = _number(
        45 * SECOND_MS, "group.consumer.min.session.timeout.ms", "The shortest a group may set itself.", low=1
    )
    consumer_session_timeout_ms_max: int = _number(
        60 * SECOND_MS, "group.consumer.max.session.timeout.ms", "The longest a group may set itself.", low=1
    )
    consumer_heartbeat_interval_ms_min: int = _number(
        5 * SECOND_MS, "group.consumer.min.heartbeat.interval.ms",
        "The shortest a group may set itself.", low=1,
    )  # fmt: skip
    consumer_heartbeat_interval_ms_max: int = _number(
        15 * SECOND_MS, "group.consumer.max.heartbeat.interval.ms",
        "The longest a group may set itself.", low=1,
    )  # fmt: skip
    consumer_members_max: int = _number(
        10_000, "group.consumer.max.size", "Members that one consumer group may have.", low=1
    )
    consumer_assignors: tuple[str, ...] = _declare(
        ASSIGNORS, "group.consumer.assignors",
        "How consumer groups are assigned; the first is for members that do not say which.",
        kind=Kind.LIST, choices=ASSIGNORS,
    )  # fmt: skip
    consumer_migration_policy: str = _text(
        "bidirectional", "group.consumer.migration.policy",
        "Which way a group with members may move between the classic protocol and the new one.",
        choices=MIGRATIONS,
    )  # fmt: skip

    transactions_topic_partitions: int = _cluster_wide(
        "transaction.state.log.num.partitions",
        "Of the topic that keeps transactions, when it is created.",
    )
    transactions_topic_replication_factor: int = _cluster_wide(
        "transaction.state.log.replication.factor",
        "Of the same; at most as many as there are brokers.",
        kind=Kind.SHORT,
        default_text=REPLICAS_BY_VOTERS,
    )
    transactions_topic_min_isr: int = _cluster_wide(
        "transaction.state.log.min.isr",
        "Of the same: its `min.insync.replicas`; at most its replication factor.",
        default_text=MIN_INSYNC_BY_VOTERS,
    )
    transactions_topic_segment_bytes: int = _cluster_wide(
        "transaction.state.log.segment.bytes", "Of the same: how large its segments grow."
    )
    transaction_timeout_ms_max: int = _number(
        15 * MINUTE_MS, "transaction.max.timeout.ms",
        "The longest timeout of a transaction that a producer may ask for.", low=1, high=INT32_MAX,
    )  # fmt: skip
    transactional_id_expiration_ms: int = _number(
        7 * DAY_MS, "transactional.id.expiration.ms",
        "A transactional id without a transaction is forgotten after this long.", low=1, high=INT32_MAX,
    )  # fmt: skip
    transactional_id_check_ms: int = _number(
        1 * HOUR_MS, "transaction.remove.expired.transaction.cleanup.interval.ms",
        "How often expired transactional ids are looked for.", low=1, high=INT32_MAX,
    )  # fmt: skip

    socket_request_bytes_max: int = _number(
        100 * MIB,
        "socket.request.max.bytes",
        "The largest request that is read; beyond 64 KiB never more than half of queued.bytes.max.",
        low=1024,
    )
    connections_max: int = _number(10_000, "max.connections", "How many connections may be open.", low=1)
    connections_per_ip_max: int = _number(
        2_000, "max.connections.per.ip", "How many connections one address may have open.", low=1
    )
    connections_idle_ms_max: int = _number(
        10 * MINUTE_MS, "connections.max.idle.ms", "A connection unused for this long is closed.",
        low=100, high=INT64_MAX,
    )  # fmt: skip
    connection_setup_timeout_ms: int = _number(
        30 * SECOND_MS, "connection.setup.timeout.ms",
        "A connection on which no whole request came for this long after it was opened is closed.",
        low=100, high=INT64_MAX,
    )  # fmt: skip
    queued_bytes_per_connection_max: int = _number(
        64 * MIB, "queued.bytes.per.connection.max",
        "Bytes of unanswered requests of one connection; beyond them it is not read from.", low=1024,
        high=INT64_MAX,
    )  # fmt: skip
    queued_bytes_max: int = _number(
        512 * MIB, "queued.bytes.max",
        "Bytes of unanswered requests of all connections; beyond them none is read from.", low=1024,
        high=INT64_MAX,
    )  # fmt: skip
    fetch_session_slots_max: int = _number(
        1_000, "max.incremental.fetch.session.cache.slots", "How many fetch sessions are remembered."
    )
    fetch_bytes_max: int = _number(
        55 * MIB, "fetch.max.bytes", "The most bytes that the response to one fetch has.", low=1024
    )
    request_timeout_ms: int = _number(
        30 * SECOND_MS, "request.timeout.ms", "How long a response of the controller is waited for.",
        low=100, high=60 * MINUTE_MS,
    )  # fmt: skip
    drain_timeout_ms: int = _number(
        10 * SECOND_MS, "drain.timeout.ms",
        "How long a node that stops lets requests in flight finish and hands over its leaderships.",
        high=60 * MINUTE_MS,
    )  # fmt: skip

    retention_check_interval_ms: int = _number(
        5 * MINUTE_MS, "log.retention.check.interval.ms", "How often segments that may go are looked for.",
        low=1, high=INT64_MAX,
    )  # fmt: skip
    stray_retention_ms: int = _number(
        DAY_MS, "log.stray.retention.ms", "How long the logs of no known topic are kept.", high=INT64_MAX
    )
    compaction_enabled: bool = _flag(
        True, "log.cleaner.enable", "Compact the topics that ask for it; without, their logs only grow."
    )
    compaction_interval_ms: int = _number(
        10 * SECOND_MS, "log.cleaner.backoff.ms",
        "How often logs that are worth compacting are looked for; one at a time, in a child process.",
        low=1, high=INT64_MAX,
    )  # fmt: skip
    scrub_bytes_per_second: int = _number(
        4 * MIB, "log.scrub.io.max.bytes.per.second",
        "How fast sealed segments are read to see whether they are still sound; 0: never.",
        high=INT64_MAX,
    )  # fmt: skip
    scrub_interval_ms: int = _number(
        7 * DAY_MS, "log.scrub.interval.ms", "How often all sealed segments are read for that.",
        low=1, high=INT64_MAX,
    )  # fmt: skip
    offset_checkpoint_interval_ms: int = _number(
        1 * MINUTE_MS, "log.flush.offset.checkpoint.interval.ms",
        "How often it is noted up to where each log is synced; a crash costs a scan from there.",
        low=1,
    )  # fmt: skip
    high_watermark_checkpoint_interval_ms: int = _number(
        5 * SECOND_MS, "replica.high.watermark.checkpoint.interval.ms",
        "How often high watermarks are noted on disk.", low=1, high=INT64_MAX,
    )  # fmt: skip

    log_format: str = _text(
        "console", "log.format",
        "What the process writes to stderr: lines for people, or JSON, one object a line.",
        choices=LOG_FORMATS,
    )  # fmt: skip
    log_level: str = _text("info", "log.level", "How much of it.", choices=LOG_LEVELS)

    log: LogConfig = field(default_factory=LogConfig)
    """The defaults for topics."""
    sources: Mapping[str, Source] = field(default_factory=dict, compare=False, hash=False, repr=False)
    """The sources of the settings that were given, by name."""

    DERIVED: ClassVar[frozenset[str]] = frozenset({"log", "sources"})

    def __post_init__(self) -> None:
        if not self.advertised_listeners:
            object.__setattr__(self, "advertised_listeners", self.listeners)
        if not self.controller_quorum_voters and self.is_controller:
            object.__setattr__(
                self, "controller_quorum_voters", (Voter(self.node_id, *self.control_listener),)
            )
        check_consistency(self)

    @property
    def is_broker(self) -> bool:
        return BROKER in self.process_roles

    @property
    def is_controller(self) -> bool:
        return CONTROLLER in self.process_roles

    @property
    def is_standby(self) -> bool:
        voters = [each.node_id for each in self.controller_quorum_voters]
        return self.is_controller and self.node_id not in voters

    @property
    def metadata_dir(self) -> str:
        return os.path.join(self.data_dir, METADATA_DIRECTORY)

    @property
    def secret_path(self) -> str:
        return self.secret_file or os.path.join(self.metadata_dir, SECRET_FILE)

    @property
    def cluster_settings(self) -> dict[str, str]:
        """What this node was given of the settings of the whole cluster."""
        return {
            name: self.spelled(name) or ""
            for name, common in CLUSTER_SETTINGS.items()
            if name in self.sources or self.spelled(name) != common.default_text
        }

    def spelled(self, name: str) -> str | None:
        """The value in force, as the text that would be read as it."""
        setting = SETTINGS[name]
        value = getattr(self.log if setting.is_log else self, setting.field)
        if value is None and setting.parse is not None and setting.field == "ops_listener":
            return NOWHERE
        return spell(value)


# --- the table ---------------------------------------------------------------------------------

_SYNONYMS: Final = {
    "log.retention.ms": (("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS)),
    "log.roll.ms": (("log.roll.hours", HOUR_MS),),
    "log.roll.jitter.ms": (("log.roll.jitter.hours", HOUR_MS),),
}
_KINDS: Final = {bool: Kind.BOOLEAN, int: Kind.LONG, float: Kind.DOUBLE, str: Kind.STRING}


def _own_settings() -> Iterator[Setting]:
    section = ""
    for declared in fields(NodeSettings):
        if declared.name in NodeSettings.DERIVED:
            continue
        section = SECTIONS.get(declared.name, section)
        yield Setting(field=declared.name, default=declared.default, section=section, **declared.metadata)


def _log_settings() -> Iterator[Setting]:
    for topic_name, name in LOG_SETTING_NAMES.items():
        declared: Field[Any] = LogConfig.by_name[topic_name]
        facts = declared.metadata
        kind = _KINDS.get(cast(type, declared.type), Kind.LIST)
        yield Setting(
            name=name,
            field=declared.name,
            kind=Kind.INT if kind is Kind.LONG and facts.get("high", INT64_MAX) <= INT32_MAX else kind,
            default=declared.default,
            documentation=facts["doc"],
            section=LOG_SECTION,
            low=facts.get("low"),
            high=facts.get("high"),
            choices=facts.get("choices", ()),
            is_dynamic=True,
            is_cluster_wide=name in CLUSTER_SETTINGS,
            is_log=True,
            topic_name=topic_name,
            synonyms=_SYNONYMS.get(name, ()),
        )


SETTINGS: Final[Mapping[str, Setting]] = {
    setting.name: setting for setting in (*_own_settings(), *_log_settings())
}
SYNONYMS: Final[Mapping[str, tuple[Setting, int]]] = {
    name: (setting, factor) for setting in SETTINGS.values() for name, factor in setting.synonyms
}
