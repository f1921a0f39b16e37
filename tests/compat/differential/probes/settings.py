"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from typing import Any

from distributedlog.protocol.messages.alter_configs import AlterableConfig as PlainConfig
from distributedlog.protocol.messages.alter_configs import AlterConfigsRequest
from distributedlog.protocol.messages.alter_configs import AlterConfigsResource as PlainResource
from distributedlog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from distributedlog.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from distributedlog.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.compat.differential.asking import Conversation
from tests.compat.differential.building import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    DESCRIBE_VERSION,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    alter_incrementally,
    ask_until_told,
    create,
    describe_configs,
    new_topic,
    wait_until_told,
)
from tests.compat.differential.registry import probe
from tests.compat.differential.trees import Tree

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
NODE = "1"
TAKEN = {
    "cleanup.policy": ("delete", "compact", "compact,delete", "", "delete,delete", "none", "Compact"),
    "compression.type": (
        "producer",
        "uncompressed",
        "none",
        "gzip",
        "snappy",
        "lz4",
        "zstd",
        "GZIP",
        "brotli",
    ),
    "compression.gzip.level": ("-1", "1", "9", "0", "10"),
    "compression.lz4.level": ("1", "17", "0", "18"),
    "compression.zstd.level": ("-131072", "3", "22", "23"),
    "delete.retention.ms": ("0", "86400000", "-1"),
    "file.delete.delay.ms": ("0", "60000", "-1"),
    "flush.messages": ("1", "9223372036854775807", "0"),
    "flush.ms": ("0", "9223372036854775807", "-1"),
    "follower.replication.throttled.replicas": ("", "*", "0:1", "none", "x"),
    "index.interval.bytes": ("0", "4096", "-1"),
    "leader.replication.throttled.replicas": ("", "*", "0:1", "x"),
    "local.retention.bytes": ("-2", "-1", "5", "-3"),
    "local.retention.ms": ("-2", "-1", "5", "-3"),
    "max.compaction.lag.ms": ("1", "9223372036854775807", "0"),
    "max.message.bytes": ("0", "1048588", "2147483647", "-1", "2147483648"),
    "message.downconversion.enable": ("true", "false"),
    "message.format.version": ("3.0-IV1", "2.0"),
    "message.timestamp.after.max.ms": ("0", "3600000", "-1"),
    "message.timestamp.before.max.ms": ("0", "9223372036854775807", "-1"),
    "message.timestamp.difference.max.ms": ("0", "9223372036854775807"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime", "createtime", ""),
    "min.cleanable.dirty.ratio": ("0", "0.5", "1", "1.5", "0.5f", "1e-1", "-0.1", "NaN"),
    "min.compaction.lag.ms": ("0", "5", "-1"),
    "min.insync.replicas": ("1", "2", "0"),
    "preallocate": ("true", "false", "TRUE", "yes", "1"),
    "remote.log.copy.disable": ("true", "false"),
    "remote.log.delete.on.disable": ("true", "false"),
    "remote.storage.enable": ("true", "false"),
    "retention.bytes": ("-1", "0", "5", "-2", "9223372036854775807", "9223372036854775808"),
    "retention.ms": ("-1", "0", "604800000", "-2", " 5 ", "5 ", "+5", "0x5", "5L", "1e3", "5.0"),
    "segment.bytes": ("1048576", "1073741824", "1048575", "14", "2147483647"),
    "segment.index.bytes": ("4", "10485760", "3"),
    "segment.jitter.ms": ("0", "5", "-1"),
    "segment.ms": ("1", "604800000", "0"),
    "unclean.leader.election.enable": ("true", "false", "on"),
}
"""Values of topic settings, at and beyond their bounds."""
GONE = ("message.format", "message.downconversion", "message.timestamp.difference")
NOT_HERE = ("compression.gzip", "compression.lz4", "compression.zstd", "follower.replication",
            "leader.replication", "local", "preallocate", "remote")  # fmt: skip
"""How settings begin that Kafka has not any more, and that this broker has not."""


def _plain(
    kind: int, name: str, *values: tuple[str, str | None], validate_only: bool = False
) -> AlterConfigsRequest:
    configs = [PlainConfig(name=key, value=value) for key, value in values]
    resource = PlainResource(resource_type=kind, resource_name=name, configs=configs)
    return AlterConfigsRequest(resources=[resource], validate_only=validate_only)


# --- DescribeConfigs ---------------------------------------------------------------------------


@probe(DescribeConfigsRequest)
def of_a_topic(of: Conversation, version: int) -> None:
    topic = of.topic(configs={"retention.ms": "1000", "cleanup.policy": "compact,delete"})
    name = topic.name
    of.ask("all", describe_configs(TOPIC_RESOURCE, name, None), version)
    of.ask("with synonyms", describe_configs(TOPIC_RESOURCE, name, None, include_synonyms=True), version)
    if version >= 3:
        request = describe_configs(TOPIC_RESOURCE, name, None, include_documentation=True)
        of.ask("with documentation", request, version)
    of.ask("one", describe_configs(TOPIC_RESOURCE, name, ["retention.ms"]), version)
    of.ask("no keys", describe_configs(TOPIC_RESOURCE, name, []), version)
    of.ask("not known", describe_configs(TOPIC_RESOURCE, name, ["no.such", "retention.ms"]), version)
    of.ask("not there", describe_configs(TOPIC_RESOURCE, of.name("none"), None), version)
    of.ask("bad name", describe_configs(TOPIC_RESOURCE, "a/b", None), version)
    of.ask("empty name", describe_configs(TOPIC_RESOURCE, "", None), version)
    internal = ["cleanup.policy", "compression.type", "segment.bytes"]
    of.ask("internal", describe_configs(TOPIC_RESOURCE, "__consumer_offsets", internal), version)
    resources = describe_configs(TOPIC_RESOURCE, name, ["retention.ms"]).resources * 2
    of.ask("twice", DescribeConfigsRequest(resources=resources), version)
    of.ask("none", DescribeConfigsRequest(resources=[]), version)


@probe(DescribeConfigsRequest)
def of_a_broker(of: Conversation, version: int) -> None:
    of.ask("all", describe_configs(BROKER_RESOURCE, NODE, None), version)
    of.ask("of all brokers", describe_configs(BROKER_RESOURCE, "", None), version)
    some = ["log.retention.ms", "num.partitions", "auto.create.topics.enable", "message.max.bytes"]
    of.ask("some", describe_configs(BROKER_RESOURCE, NODE, some, include_synonyms=True), version)
    of.ask("another broker", describe_configs(BROKER_RESOURCE, "9", None), version)
    of.ask("no number", describe_configs(BROKER_RESOURCE, "one", None), version)


@probe(DescribeConfigsRequest)
def of_other_resources(of: Conversation, version: int) -> None:
    of.ask("group", describe_configs(GROUP_RESOURCE, of.name("g"), None), version)
    of.ask("group with synonyms",
           describe_configs(GROUP_RESOURCE, of.name("g"), None, include_synonyms=True), version)  # fmt: skip
    of.ask("empty group", describe_configs(GROUP_RESOURCE, "", None), version)
    of.ask("client metrics", describe_configs(CLIENT_METRICS_RESOURCE, of.name("m"), None), version)
    of.ask("empty client metrics", describe_configs(CLIENT_METRICS_RESOURCE, "", None), version)
    of.call(alter_incrementally(BROKER_LOGGER_RESOURCE, NODE, ("root", SET, "INFO")), 1,
            IncrementalAlterConfigsResponse)  # fmt: skip
    of.ask("broker logger", describe_configs(BROKER_LOGGER_RESOURCE, NODE, ["root"]), version)
    of.ask("another's logger", describe_configs(BROKER_LOGGER_RESOURCE, "9", ["root"]), version)
    for kind in (0, 1, 3, 64, -1):
        of.ask(f"type {kind}", describe_configs(kind, "x", None), version)


@probe(DescribeConfigsRequest)
def several_resources(of: Conversation, version: int) -> None:
    topic = of.topic()
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=["retention.ms"])
        for kind, name in (
            (TOPIC_RESOURCE, topic.name),
            (TOPIC_RESOURCE, of.name("none")),
            (BROKER_RESOURCE, NODE),
        )
    ]
    of.ask("three", DescribeConfigsRequest(resources=resources), version)


# --- values of topic settings ------------------------------------------------------------------


@probe(IncrementalAlterConfigsRequest, since=1)
def values_of_topic_settings(of: Conversation, version: int) -> None:
    topic = of.topic()
    for key, values in TAKEN.items():
        for value in values:
            request = alter_incrementally(TOPIC_RESOURCE, topic.name, (key, SET, value), validate_only=True)
            of.ask(f"{key}={value}", request, version)
    both = (("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5"))
    of.ask(
        "min above max lag",
        alter_incrementally(TOPIC_RESOURCE, topic.name, *both, validate_only=True),
        version,
    )
    both = (("local.retention.ms", SET, "10"), ("retention.ms", SET, "5"))
    of.ask(
        "local above all", alter_incrementally(TOPIC_RESOURCE, topic.name, *both, validate_only=True), version
    )


@probe(DescribeConfigsRequest, since=DESCRIBE_VERSION)
def values_given_when_made(of: Conversation, version: int) -> None:
    """Each setting as a topic is made; and then described."""
    sane = {"segment.index.bytes": "1024", "segment.ms": "60000", "max.message.bytes": "2000"}
    configs = [
        (key, sane.get(key, values[0]))
        for key, values in TAKEN.items()
        if not key.startswith((*GONE, *NOT_HERE))
    ]
    of.ask("made", create(new_topic(of.name("t"), configs=configs)), 7)
    of.wait_until_led(of.name("t"), 1)
    of.ask("all", describe_configs(TOPIC_RESOURCE, of.name("t"), None, include_synonyms=True), version)


# --- IncrementalAlterConfigs -------------------------------------------------------------------


@probe(IncrementalAlterConfigsRequest)
def changes_of_a_topic(of: Conversation, version: int) -> None:
    topic = of.topic()
    name = topic.name

    def ask(label: str, *changes: tuple[str, int, str | None], **more: Any) -> None:
        of.ask(label, alter_incrementally(TOPIC_RESOURCE, name, *changes, **more), version)

    ask("set", ("retention.ms", SET, "1000"))
    ask_until_told(of, "is set", TOPIC_RESOURCE, name, "retention.ms", "1000")
    ask("only to validate", ("retention.ms", SET, "7"), validate_only=True)
    ask("two at once", ("retention.ms", SET, "2000"), ("segment.ms", SET, "5"))
    ask("delete", ("retention.ms", DELETE, None))
    ask_until_told(of, "is as before", TOPIC_RESOURCE, name, "retention.ms", "604800000")
    ask("delete what is not set", ("retention.bytes", DELETE, None))
    ask("append", ("cleanup.policy", APPEND, "compact"))
    ask_until_told(of, "is appended", TOPIC_RESOURCE, name, "cleanup.policy", "delete,compact")
    ask("append what is there", ("cleanup.policy", APPEND, "compact"))
    ask("subtract", ("cleanup.policy", SUBTRACT, "delete"))
    ask("subtract what is not there", ("cleanup.policy", SUBTRACT, "delete"))
    ask("subtract the last", ("cleanup.policy", SUBTRACT, "compact"))
    ask("append to no list", ("retention.ms", APPEND, "5"))
    ask("subtract from no list", ("retention.ms", SUBTRACT, "5"))
    ask("operation 4", ("retention.ms", 4, "5"))
    ask("operation -1", ("retention.ms", -1, "5"))
    ask("null", ("retention.ms", SET, None))
    ask("append null", ("cleanup.policy", APPEND, None))
    ask("twice", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    ask("not known", ("no.such", SET, "1"))
    ask("delete what is not known", ("no.such", DELETE, None))
    ask("empty name", ("", SET, "1"))
    ask("nothing")


@probe(IncrementalAlterConfigsRequest)
def changes_elsewhere(of: Conversation, version: int) -> None:
    def ask(label: str, kind: int, name: str, *changes: tuple[str, int, str | None], **more: Any) -> None:
        of.ask(label, alter_incrementally(kind, name, *changes, **more), version)

    ask("topic that is not there", TOPIC_RESOURCE, of.name("none"), ("retention.ms", SET, "1"))
    ask("bad topic", TOPIC_RESOURCE, "a/b", ("retention.ms", SET, "1"))
    ask("empty topic", TOPIC_RESOURCE, "", ("retention.ms", SET, "1"))
    ask("another broker", BROKER_RESOURCE, "9", ("log.cleaner.threads", SET, "2"), validate_only=True)
    ask("no broker's number", BROKER_RESOURCE, "one", ("log.cleaner.threads", SET, "2"), validate_only=True)
    ask("read-only", BROKER_RESOURCE, NODE, ("node.id", SET, "2"), validate_only=True)
    ask("read-only for all", BROKER_RESOURCE, "", ("node.id", SET, "2"), validate_only=True)
    ask("not known by brokers", BROKER_RESOURCE, NODE, ("no.such", SET, "2"), validate_only=True)
    ask("of a broker", BROKER_RESOURCE, NODE, ("message.max.bytes", SET, "2000000"), validate_only=True)
    ask("bad, of a broker", BROKER_RESOURCE, NODE, ("message.max.bytes", SET, "x"), validate_only=True)
    ask("of all brokers", BROKER_RESOURCE, "", ("message.max.bytes", SET, "2000000"), validate_only=True)
    ask("of a group", GROUP_RESOURCE, of.name("g"), ("consumer.session.timeout.ms", SET, "50000"))
    ask("bad, of a group", GROUP_RESOURCE, of.name("g"), ("consumer.session.timeout.ms", SET, "5"))
    ask("not known by groups", GROUP_RESOURCE, of.name("g"), ("no.such", SET, "5"))
    ask("of no group", GROUP_RESOURCE, "", ("consumer.session.timeout.ms", SET, "50000"))
    ask("of client metrics", CLIENT_METRICS_RESOURCE, of.name("m"), ("interval.ms", SET, "5000"))
    ask("of a logger", BROKER_LOGGER_RESOURCE, NODE, ("root", SET, "BANANA"), validate_only=True)
    for kind in (0, 1, 3, 64):
        ask(f"type {kind}", kind, "x", ("retention.ms", SET, "1"))
    one = alter_incrementally(TOPIC_RESOURCE, of.name("none"), ("retention.ms", SET, "1")).resources
    twice = IncrementalAlterConfigsRequest(resources=one * 2, validate_only=False)
    of.ask("a resource twice", twice, version)
    of.ask("none", IncrementalAlterConfigsRequest(resources=[], validate_only=False), version)


# --- AlterConfigs ------------------------------------------------------------------------------


@probe(AlterConfigsRequest)
def replaced(of: Conversation, version: int) -> None:
    topic = of.topic(configs={"segment.ms": "77"})
    name = topic.name

    def ask(label: str, *values: tuple[str, str | None], **more: Any) -> None:
        of.ask(label, _plain(TOPIC_RESOURCE, name, *values, **more), version)

    ask("only to validate", ("retention.ms", "5"), validate_only=True)
    ask("one", ("retention.ms", "1000"))
    ask_until_told(of, "is set", TOPIC_RESOURCE, name, "retention.ms", "1000")
    ask_until_told(of, "the others are gone", TOPIC_RESOURCE, name, "segment.ms", "604800000")
    ask("null", ("retention.ms", None))
    ask("bad", ("retention.ms", "x"))
    ask("not known", ("no.such", "1"))
    ask("twice", ("retention.ms", "1"), ("retention.ms", "2"))
    ask("nothing")
    of.ask("not there", _plain(TOPIC_RESOURCE, of.name("none"), ("retention.ms", "1")), version)
    of.ask("bad name", _plain(TOPIC_RESOURCE, "a/b", ("retention.ms", "1")), version)
    of.ask("type 3", _plain(3, "x", ("retention.ms", "1")), version)
    larger = ("message.max.bytes", "2000000")
    of.ask("broker", _plain(BROKER_RESOURCE, NODE, larger, validate_only=True), version)
    of.ask("another broker", _plain(BROKER_RESOURCE, "9", larger, validate_only=True), version)
    of.ask("group", _plain(GROUP_RESOURCE, of.name("g"), ("consumer.session.timeout.ms", "50000")), version)
    of.ask("logger", _plain(BROKER_LOGGER_RESOURCE, NODE, ("root", "INFO"), validate_only=True), version)


# --- ListConfigResources -----------------------------------------------------------------------


BROKERS = ("4:1", "8:1")


def _listed(of: Conversation) -> Any:
    def keep(answer: Tree) -> Tree:
        resources = answer["config_resources"]
        mine = {
            key: each for key, each in dict(resources or {}).items() if of.prefix in key or key in BROKERS
        }
        return {**answer, "config_resources": mine}

    return keep


@probe(ListConfigResourcesRequest)
def resources(of: Conversation, version: int) -> None:
    of.topic(configs={"retention.ms": "1000"})
    session = ("consumer.session.timeout.ms", SET, "50000")
    of.call(alter_incrementally(GROUP_RESOURCE, of.name("g"), session), 1, IncrementalAlterConfigsResponse)
    metrics = ("interval.ms", SET, "5000")
    of.call(alter_incrementally(CLIENT_METRICS_RESOURCE, of.name("m"), metrics), 1,
            IncrementalAlterConfigsResponse)  # fmt: skip
    wait_until_told(of, CLIENT_METRICS_RESOURCE, of.name("m"), "interval.ms", "5000")
    wait_until_told(of, GROUP_RESOURCE, of.name("g"), "consumer.session.timeout.ms", "50000")
    of.ask("all", ListConfigResourcesRequest(), version, keep=_listed(of))
    if version:
        for kind in (TOPIC_RESOURCE, BROKER_RESOURCE, BROKER_LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE,
                     GROUP_RESOURCE, 0, 3, 64):  # fmt: skip
            request = ListConfigResourcesRequest(resource_types=[kind])
            of.ask(f"type {kind}", request, version, keep=_listed(of))
