"""The settings of one node, under the names Kafka's users know.

`SETTINGS` is the one table of all there is: it is made from the declarations below and from those of
`LogConfig` (the defaults for topics, under Kafka's names for them), and everything else comes from it: the
parser, `docs/configuration.md`, and what DescribeConfigs answers.

`settings_loading` says where values come from.

`NodeSettings` is frozen and checks itself, so that no other place has to doubt it.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from enum import StrEnum
from functools import partial
from typing import Any, ClassVar, Final, cast

from distributedlog.broker.addresses import (
    NOWHERE,
    WILDCARDS,
    Endpoint,
    Listener,
    Voter,
    is_loopback,
    parse_endpoint,
    parse_listeners,
    parse_optional_endpoint,
    parse_voters,
)
from distributedlog.broker.settings_schema import Kind, Setting, spell
from distributedlog.model.config import INT32_MAX, INT64_MAX, MIB, MINUTE_MS, SECOND_MS, LogConfig
from distributedlog.model.errors import ConfigError

METADATA_DIRECTORY: Final = "__cluster_metadata"
BROKER: Final = "broker"
CONTROLLER: Final = "controller"
ROLES: Final = (BROKER, CONTROLLER)
ASSIGNORS: Final = ("uniform", "range")
MIGRATIONS: Final = ("bidirectional", "upgrade", "downgrade", "disabled")
LOG_FORMATS: Final = ("console", "json")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
CLUSTER_ID_LENGTH_MAX: Final = 100
DATA_DIRECTORY: Final = "dlog-data"
_CLIENT_LISTENERS: Final = (Listener("PLAINTEXT", "127.0.0.1", 9092),)
_CONTROL_ENDPOINT: Final = Endpoint("127.0.0.1", 9093)
_GATEWAY_ENDPOINT: Final = Endpoint("127.0.0.1", 9094)
_OPS_ENDPOINT: Final = Endpoint("127.0.0.1", 9644)


class Source(StrEnum):
    """Where a value came from."""

    COMMAND_LINE = "--set"
    ENVIRONMENT = "environment"
    FILE = "file"


# --- declaring ---------------------------------------------------------------------------------


def _declare(default: Any, name: str, documentation: str, **facts: Any) -> Any:
    return field(default=default, metadata={"name": name, "documentation": documentation, **facts})


def _number(default: int, name: str, documentation: str, low: int = 0, high: int = INT32_MAX) -> Any:
    kind = Kind.INT if high <= INT32_MAX else Kind.LONG
    return _declare(default, name, documentation, kind=kind, low=low, high=high)


def _flag(default: bool, name: str, documentation: str, **facts: Any) -> Any:
    return _declare(default, name, documentation, kind=Kind.BOOLEAN, **facts)


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
    "socket_request_bytes_max": "Limits",
    "retention_check_interval_ms": "Upkeep",
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
        "The one directory that holds the partitions; the metadata log is in it too.",
    )  # fmt: skip
    rack: str | None = _parsed(
        lambda name, text: _parse_text(name, 255, text), None, "broker.rack",
        "Where the node stands: replicas of a partition are spread over racks.",
    )  # fmt: skip

    listeners: tuple[Listener, ...] = _parsed(
        parse_listeners, _CLIENT_LISTENERS, "listeners",
        "Where clients are served: NAME://HOST:PORT, several with commas; followers use the first.",
        kind=Kind.LIST,
    )  # fmt: skip
    advertised_listeners: tuple[Listener, ...] = _parsed(
        parse_listeners, (), "advertised.listeners",
        "What clients are told to connect to, where that is not what is listened on; the same names.",
        kind=Kind.LIST, default_text="as `listeners`",
    )  # fmt: skip
    control_listener: Endpoint = _parsed(  # noqa: RUF009 - a declaration
        parse_endpoint, _CONTROL_ENDPOINT, "control.listener",
        "Where the other nodes reach this one: gRPC, between nodes only.",
        default_text="the node's own entry in `controller.quorum.voters`, else 127.0.0.1:9093",
    )  # fmt: skip
    gateway_listener: Endpoint | None = _parsed(  # noqa: RUF009 - a declaration
        parse_optional_endpoint, _GATEWAY_ENDPOINT, "gateway.listener",
        "Where programs without a Kafka client are served, by gRPC; `none` turns it off.",
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
        "The nodes that vote on the cluster's metadata: ID@HOST:PORT, several with commas.",
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
    broker_session_timeout_ms: int = _number(
        9 * SECOND_MS, "broker.session.timeout.ms", "A broker silent for this long is fenced.",
        low=100, high=60 * MINUTE_MS,
    )  # fmt: skip
    broker_heartbeat_interval_ms: int = _number(
        1 * SECOND_MS, "broker.heartbeat.interval.ms", "How often a broker says that it is there.",
        low=10, high=30 * MINUTE_MS,
    )  # fmt: skip
    registration_timeout_ms: int = _number(
        60 * SECOND_MS, "initial.broker.registration.timeout.ms",
        "How long a broker tries to register while another process is alive under its id.",
        low=100, high=60 * MINUTE_MS,
    )  # fmt: skip
    leader_balance_interval_s: int = _number(
        300, "leader.imbalance.check.interval.seconds",
        "How often leaderships are handed back to the replicas that should have them.", low=1,
    )  # fmt: skip

    auto_create_topics: bool = _flag(
        True, "auto.create.topics.enable", "Create a topic when it is first asked for."
    )
    num_partitions: int = _number(
        1, "num.partitions", "Of a topic that is created without a count.", low=1, high=10_000
    )
    default_replication_factor: int = _number(
        1, "default.replication.factor", "Of a topic that is created without one.", low=1, high=1_000
    )
    min_insync_replicas: int = _declare(
        1, "min.insync.replicas", "How many replicas must have a record before acks=all is answered.",
        kind=Kind.INT, low=1, is_dynamic=True, topic_name="min.insync.replicas",
    )  # fmt: skip
    unclean_leader_election: bool = _flag(
        False, "unclean.leader.election.enable",
        "Let a replica lead that may lack acknowledged records, rather than none.",
        is_dynamic=True, topic_name="unclean.leader.election.enable",
    )  # fmt: skip
    delete_topic_enable: bool = _flag(True, "delete.topic.enable", "Allow topics to be deleted.")
    replica_lag_ms_max: int = _number(
        30 * SECOND_MS, "replica.lag.time.max.ms",
        "A follower that has not caught up for this long leaves the in-sync replicas.",
        low=100, high=INT64_MAX,
    )  # fmt: skip

    offsets_topic_partitions: int = _number(
        50,
        "offsets.topic.num.partitions",
        "Of the topic that keeps groups and their offsets.",
        low=1,
        high=10_000,
    )
    offsets_topic_replication_factor: int = _number(
        1,
        "offsets.topic.replication.factor",
        "Of the same; at most as many as there are brokers.",
        low=1,
        high=1_000,
    )
    offsets_topic_segment_bytes: int = _number(
        100 * MIB, "offsets.topic.segment.bytes", "Of the same: how large its segments grow.", low=1024
    )
    offsets_retention_minutes: int = _number(
        7 * 24 * 60,
        "offsets.retention.minutes",
        "A group without members keeps its offsets this long.",
        low=1,
    )
    offsets_retention_check_ms: int = _number(
        10 * MINUTE_MS,
        "offsets.retention.check.interval.ms",
        "How often expired offsets are looked for.",
        low=1,
    )
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
    consumer_session_timeout_ms: int = _number(
        45 * SECOND_MS, "group.consumer.session.timeout.ms",
        "A member of a consumer group that is silent for this long is out.", low=1,
    )  # fmt: skip
    consumer_heartbeat_interval_ms: int = _number(
        5 * SECOND_MS, "group.consumer.heartbeat.interval.ms",
        "How often members of consumer groups are told to be heard.", low=1,
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
        55 * MIB, "fetch.max.bytes", "The most that one fetch is answered with.", low=1024
    )
    request_timeout_ms: int = _number(
        30 * SECOND_MS, "request.timeout.ms", "How long an answer of the controller is waited for.",
        low=100, high=60 * MINUTE_MS,
    )  # fmt: skip
    drain_timeout_ms: int = _number(
        10 * SECOND_MS, "drain.timeout.ms",
        "How long a node that is told to stop lets begun requests finish and hands over its leaderships.",
        high=60 * MINUTE_MS,
    )  # fmt: skip

    retention_check_interval_ms: int = _number(
        5 * MINUTE_MS, "log.retention.check.interval.ms", "How often segments that may go are looked for.",
        low=1, high=INT64_MAX,
    )  # fmt: skip
    compaction_enabled: bool = _flag(
        True, "log.cleaner.enable", "Compact the topics that ask for it; without, their logs only grow."
    )
    compaction_interval_ms: int = _number(
        10 * SECOND_MS, "log.cleaner.backoff.ms",
        "How often logs that are worth compacting are looked for; one at a time, in a child process.",
        low=1, high=INT64_MAX,
    )  # fmt: skip
    offset_checkpoint_interval_ms: int = _number(
        1 * MINUTE_MS, "log.flush.offset.checkpoint.interval.ms",
        "How often it is noted up to where each log is synced; a crash costs a scan from there.",
        low=1, high=INT64_MAX,
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
    """Of the settings that were given, by name."""

    DERIVED: ClassVar[frozenset[str]] = frozenset({"log", "sources"})

    def __post_init__(self) -> None:
        if not self.advertised_listeners:
            object.__setattr__(self, "advertised_listeners", self.listeners)
        if not self.controller_quorum_voters and self.is_controller:
            own = Voter(self.node_id, *self.control_listener)
            object.__setattr__(self, "controller_quorum_voters", (own,))
        _check_roles(self)
        _check_listeners(self)
        _check_times(self)

    @property
    def is_broker(self) -> bool:
        return BROKER in self.process_roles

    @property
    def is_controller(self) -> bool:
        return CONTROLLER in self.process_roles

    @property
    def metadata_dir(self) -> str:
        return os.path.join(self.data_dir, METADATA_DIRECTORY)

    def spelled(self, name: str) -> str | None:
        """The value in force, as the text that would be read as it."""
        setting = SETTINGS[name]
        value = getattr(self.log if setting.is_log else self, setting.field)
        if (
            value is None
            and setting.parse is not None
            and setting.field in ("gateway_listener", "ops_listener")
        ):
            return NOWHERE
        return spell(value)


# --- what must fit together --------------------------------------------------------------------


def _check_roles(settings: NodeSettings) -> None:
    if not settings.process_roles or settings.process_roles - set(ROLES):
        raise ConfigError(f"process.roles must be of {', '.join(ROLES)}")
    if not settings.controller_quorum_voters:
        raise ConfigError("a node that is no controller must be told who is: set controller.quorum.voters")
    voter_ids = [voter.node_id for voter in settings.controller_quorum_voters]
    if settings.is_controller and settings.node_id not in voter_ids:
        raise ConfigError(
            f"node {settings.node_id} is to be a controller, but controller.quorum.voters does not name it"
        )
    if not settings.is_controller and settings.node_id in voter_ids:
        raise ConfigError(
            f"controller.quorum.voters names node {settings.node_id}, but its process.roles lack 'controller'"
        )


def _check_listeners(settings: NodeSettings) -> None:
    names = {listener.name for listener in settings.listeners}
    for advertised in settings.advertised_listeners:
        if advertised.name not in names:
            raise ConfigError(
                f"advertised.listeners names {advertised.name}, which listeners has not: {', '.join(names)}"
            )
        if advertised.host in WILDCARDS:
            raise ConfigError(
                f"clients cannot connect to {advertised.host}: say with advertised.listeners where to"
            )
    if settings.insecure:
        return
    for name, endpoint in _bound(settings):
        if not is_loopback(endpoint.host):
            raise ConfigError(
                f"{name} is {endpoint}: anyone who can reach that address could read and write everything, "
                "since there is no authentication yet; use 127.0.0.1, or --insecure if that is what you want"
            )


def _bound(settings: NodeSettings) -> Iterator[tuple[str, Endpoint]]:
    if settings.is_broker:
        for listener in settings.listeners:
            yield "listeners", listener.endpoint
    yield "control.listener", settings.control_listener
    if settings.gateway_listener is not None:
        yield "gateway.listener", settings.gateway_listener
    if settings.ops_listener is not None:
        yield "ops.listener", settings.ops_listener


def _check_times(settings: NodeSettings) -> None:
    if settings.quorum_heartbeat_ms * 2 > settings.quorum_election_timeout_ms:
        raise ConfigError(
            f"controller.quorum.heartbeat.interval.ms is {settings.quorum_heartbeat_ms}: two must fit into "
            f"controller.quorum.election.timeout.ms, {settings.quorum_election_timeout_ms}"
        )
    if settings.broker_heartbeat_interval_ms * 2 > settings.broker_session_timeout_ms:
        raise ConfigError(
            f"broker.heartbeat.interval.ms is {settings.broker_heartbeat_interval_ms}: two must fit into "
            f"broker.session.timeout.ms, {settings.broker_session_timeout_ms}"
        )
    if settings.group_session_timeout_ms_min > settings.group_session_timeout_ms_max:
        raise ConfigError("group.min.session.timeout.ms is over group.max.session.timeout.ms")
    if settings.consumer_heartbeat_interval_ms >= settings.consumer_session_timeout_ms:
        raise ConfigError(
            "group.consumer.heartbeat.interval.ms is not below group.consumer.session.timeout.ms"
        )
    if settings.consumer_session_timeout_ms_min > settings.consumer_session_timeout_ms_max:
        raise ConfigError("group.consumer.min.session.timeout.ms is over its max")
    if settings.consumer_heartbeat_interval_ms_min > settings.consumer_heartbeat_interval_ms_max:
        raise ConfigError("group.consumer.min.heartbeat.interval.ms is over its max")
    if settings.queued_bytes_per_connection_max > settings.queued_bytes_max:
        raise ConfigError("queued.bytes.per.connection.max is over queued.bytes.max")


# --- the table ---------------------------------------------------------------------------------

LOG_SETTING_NAMES: Final = {
    "segment.bytes": "log.segment.bytes",
    "segment.ms": "log.roll.ms",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.index.bytes": "log.index.size.max.bytes",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.message.bytes": "message.max.bytes",
    "cleanup.policy": "log.cleanup.policy",
    "retention.ms": "log.retention.ms",
    "retention.bytes": "log.retention.bytes",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "compression.type": "compression.type",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "flush.on.commit": "log.flush.on.commit",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "producer.id.expiration.ms": "producer.id.expiration.ms",
}
"""A topic's name of a setting, and the node's name of its default."""

_HOURS = 60 * MINUTE_MS
_SYNONYMS: Final = {
    "log.retention.ms": (("log.retention.minutes", MINUTE_MS), ("log.retention.hours", _HOURS)),
    "log.roll.ms": (("log.roll.hours", _HOURS),),
    "log.roll.jitter.ms": (("log.roll.jitter.hours", _HOURS),),
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
