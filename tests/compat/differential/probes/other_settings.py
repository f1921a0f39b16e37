"""Settings of groups, of clients' metrics and of loggers: DescribeConfigs, IncrementalAlterConfigs."""

from typing import Any

from distributedlog.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.compat.differential.asking import Conversation
from tests.compat.differential.building import (
    BROKER_LOGGER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    DESCRIBE_VERSION,
    GROUP_RESOURCE,
    alter_incrementally,
    ask_until_told,
    describe_configs,
)
from tests.compat.differential.registry import probe

NODE = "1"
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
SESSION = ("44999", "45000", "60000", "60001", "0", "x", " +50000 ")
INTERVAL = ("4999", "5000", "15000", "15001", "-1")
OF_GROUPS = {
    "consumer.session.timeout.ms": SESSION,
    "consumer.heartbeat.interval.ms": INTERVAL,
    "share.session.timeout.ms": SESSION,
    "share.heartbeat.interval.ms": INTERVAL,
    "share.record.lock.duration.ms": ("999", "1000", "14999", "15000", "60000", "60001"),
    "share.auto.offset.reset": (
        "latest", "earliest", "none", "LATEST", "latest ", "", "by_duration", "by_duration:",
        "by_duration:P1D",
        "by_duration:PT0S", "by_duration:p1dt2h3m4.5s", "by_duration:-PT1H", "by_duration:PT-1H61M",
        "by_duration:P1Y", "by_duration:PT", "by_duration:P1DT", "by_duration:-PT-0.5S",
        "by_duration:PT-0.5S",
        "by_duration:P9999999999999999999D",
    ),
    "share.isolation.level": ("read_committed", "read_uncommitted", "READ_COMMITTED", ""),
    "streams.session.timeout.ms": SESSION,
    "streams.heartbeat.interval.ms": INTERVAL,
    "streams.num.standby.replicas": ("-1", "0", "2", "3"),
    "streams.initial.rebalance.delay.ms": ("-1", "0", "2147483647", "2147483648"),
    "no.such": ("1",),
}  # fmt: skip
OF_CLIENT_METRICS = {
    "interval.ms": ("99", "100", " 100 ", "3600000", "3600001", "x", "2147483648"),
    "metrics": ("", "*", "a.,b.", "a.,,b.", "a.,a."),
    "match": (
        "", "client_id=x", "client_id = x.*, client_source_port=9", "client_id", "client_id=", "user=x",
        "client_id=(",
        "client_id=a=b", "client_id=x,client_id=x",
    ),
    "no.such": ("1",),
}  # fmt: skip


@probe(IncrementalAlterConfigsRequest, since=1)
def values_of_group_settings(of: Conversation, version: int) -> None:
    for key, values in OF_GROUPS.items():
        for value in values:
            request = alter_incrementally(GROUP_RESOURCE, of.name("g"), (key, SET, value), validate_only=True)
            of.ask(f"{key}={value}", request, version)


@probe(IncrementalAlterConfigsRequest, since=1)
def values_of_client_metrics(of: Conversation, version: int) -> None:
    name = of.name("m")
    for key, values in OF_CLIENT_METRICS.items():
        for value in values:
            request = alter_incrementally(
                CLIENT_METRICS_RESOURCE, name, (key, SET, value), validate_only=True
            )
            of.ask(f"{key}={value}", request, version)


@probe(IncrementalAlterConfigsRequest)
def changes_of_a_group(of: Conversation, version: int) -> None:
    name = of.name("g")

    def ask(label: str, *changes: tuple[str, int, str | None]) -> None:
        of.ask(label, alter_incrementally(GROUP_RESOURCE, name, *changes), version)

    ask(
        "set", ("consumer.session.timeout.ms", SET, "50000"), ("share.isolation.level", SET, "read_committed")
    )
    ask_until_told(of, "is set", GROUP_RESOURCE, name, "consumer.session.timeout.ms", "50000")
    of.ask("all", describe_configs(GROUP_RESOURCE, name, None, include_synonyms=True), DESCRIBE_VERSION)
    ask("append", ("share.isolation.level", APPEND, "x"))
    ask("subtract", ("share.isolation.level", SUBTRACT, "read_committed"))
    ask("delete", ("share.isolation.level", DELETE, None))
    ask("delete what is not known", ("no.such", DELETE, None))
    ask_until_told(of, "is deleted", GROUP_RESOURCE, name, "share.isolation.level", "read_uncommitted")


@probe(IncrementalAlterConfigsRequest)
def changes_of_client_metrics(of: Conversation, version: int) -> None:
    name = of.name("m")

    def ask(label: str, *changes: tuple[str, int, str | None]) -> None:
        of.ask(label, alter_incrementally(CLIENT_METRICS_RESOURCE, name, *changes), version)

    ask("set", ("interval.ms", SET, "5000"), ("metrics", SET, "a."))
    ask_until_told(of, "is set", CLIENT_METRICS_RESOURCE, name, "interval.ms", "5000")
    ask("append", ("metrics", APPEND, "b."))
    of.ask(
        "all", describe_configs(CLIENT_METRICS_RESOURCE, name, None, include_synonyms=True), DESCRIBE_VERSION
    )
    ask("subtract", ("metrics", SUBTRACT, "a."))
    ask("append to no list", ("interval.ms", APPEND, "5000"))
    ask("delete", ("interval.ms", DELETE, None))
    ask_until_told(of, "is deleted", CLIENT_METRICS_RESOURCE, name, "interval.ms", "300000")
    of.ask("no name", alter_incrementally(CLIENT_METRICS_RESOURCE, "", ("metrics", SET, "a.")), version)


@probe(IncrementalAlterConfigsRequest)
def changes_of_loggers(of: Conversation, version: int) -> None:
    def ask(label: str, *changes: tuple[str, int, str | None], name: str = NODE, **more: Any) -> None:
        of.ask(label, alter_incrementally(BROKER_LOGGER_RESOURCE, name, *changes, **more), version)

    def tell(label: str) -> None:
        request = describe_configs(BROKER_LOGGER_RESOURCE, NODE, ["root", "no.such"], include_synonyms=True)
        of.ask(label, request, DESCRIBE_VERSION)

    ask("set", ("root", SET, "ERROR"))
    tell("is set")
    ask("only to validate", ("root", SET, "FATAL"), validate_only=True)
    tell("is as before")
    for level in ("FATAL", "WARN", "INFO", "DEBUG", "TRACE", "OFF", "ALL", "info", "WARNING", ""):
        ask(f"level '{level}'", ("root", SET, level), validate_only=True)
    ask("back", ("root", SET, "INFO"))
    ask("delete the root's", ("root", DELETE, None))
    ask("append", ("root", APPEND, "INFO"))
    ask("subtract", ("root", SUBTRACT, "INFO"))
    ask("null", ("root", SET, None))
    ask("twice", ("root", SET, "INFO"), ("root", SET, "INFO"))
    ask("no such", ("no.such.logger", SET, "INFO"))
    ask("delete no such", ("no.such.logger", DELETE, None))
    ask("one wrong", ("root", SET, "INFO"), ("no.such.logger", SET, "INFO"))
    ask("of nobody", ("root", SET, "INFO"), name="")
    ask("of another", ("root", SET, "INFO"), name="9")
    ask("of no number", ("root", SET, "INFO"), name="one")
    ask("nothing")
