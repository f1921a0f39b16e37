"""The options that begin with `kafka.`: those of Kafka's consumer, as far as they mean something here.  Pure.

| an option                                 | then                                                          |
|-------------------------------------------|---------------------------------------------------------------|
| in `TAKEN`                                | it sets what it says                                          |
| in `REFUSED`                              | an error, as from Spark's Kafka source                        |
| `ssl.…`, `sasl.…`, `security.protocol`    | an error: to go on unprotected is not what was asked for      |
| another                                   | has no effect, and that is said once                          |
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from distributedlog.client.addresses import parse_bootstrap
from distributedlog.client.offset_specs import Isolation
from distributedlog.client.options import MIB, TIMEOUT_MS_MAX, ClientOptions
from distributedlog.model.errors import ConfigError

PREFIX: Final = "kafka."
BOOTSTRAP: Final = "bootstrap.servers"
GROUP_ID: Final = "group.id"
ISOLATION: Final = "isolation.level"
CLIENT_ID_DEFAULT: Final = "dlog-spark"
FETCH_BYTES_DEFAULT: Final = 4 * MIB
FETCH_BYTES_MAX: Final = 64 * MIB
"""A frame has at most 100 MiB, and the first batch may come on top of what was asked for."""

TAKEN: Final = (
    BOOTSTRAP,
    GROUP_ID,
    ISOLATION,
    "client.id",
    "client.rack",
    "request.timeout.ms",
    "default.api.timeout.ms",
    "socket.connection.setup.timeout.ms",
    "retry.backoff.ms",
    "retry.backoff.max.ms",
    "metadata.max.age.ms",
    "fetch.max.wait.ms",
    "fetch.max.bytes",
    "max.partition.fetch.bytes",
)
REFUSED: Final = {
    "auto.offset.reset": "say where to start with startingOffsets; a query goes on where its checkpoint says",
    "key.deserializer": "keys are read as bytes: turn them into something else with columns' functions",
    "value.deserializer": "values are read as bytes: turn them into something else with columns' functions",
    "enable.auto.commit": "Spark's checkpoint says how far a query has come",
    "interceptor.classes": "there is nothing here that could call them",
}
WITHOUT_EFFECT: Final = (
    "allow.auto.create.topics", "auto.commit.interval.ms", "auto.include.jmx.reporter", "check.crcs",
    "client.dns.lookup", "connections.max.idle.ms", "enable.metrics.push",
    "exclude.internal.topics", "fetch.min.bytes", "group.instance.id", "group.protocol",
    "group.remote.assignor", "heartbeat.interval.ms", "max.poll.interval.ms", "max.poll.records",
    "metadata.recovery.strategy", "metric.reporters", "metrics.num.samples", "metrics.recording.level",
    "metrics.sample.window.ms", "partition.assignment.strategy", "receive.buffer.bytes",
    "reconnect.backoff.max.ms", "reconnect.backoff.ms", "send.buffer.bytes", "session.timeout.ms",
    "socket.connection.setup.timeout.max.ms",
)  # fmt: skip
"""Kafka's consumer has them, and they are no misspelling of another."""
_ISOLATIONS: Final = {
    "read_uncommitted": Isolation.READ_UNCOMMITTED,
    "read_committed": Isolation.READ_COMMITTED,
}
_logger = logging.getLogger("distributedlog.spark")
_warned: set[str] = set()


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    bootstrap: str
    client: ClientOptions
    isolation: Isolation = Isolation.READ_COMMITTED
    group_id: str | None = None
    fetch_wait_ms: int = 500
    fetch_bytes_max: int = FETCH_BYTES_DEFAULT
    """The bytes of one response; each is about one partition."""
    rack: str = ""
    """Where the tasks run: leaders then name the replica to read from that is nearest (KIP-392)."""


def parse_kafka_options(options: Mapping[str, str]) -> KafkaOptions:
    """Parses these options out of all, whose names are in lower case."""
    given = {
        name.removeprefix(PREFIX): value.strip() for name, value in options.items() if name.startswith(PREFIX)
    }
    if ISOLATION in options:
        if given.get(ISOLATION, options[ISOLATION]) != options[ISOLATION]:
            raise ConfigError(f"{ISOLATION} and {PREFIX}{ISOLATION} say different things: give one of them")
        given[ISOLATION] = options[ISOLATION].strip()
    _check_names(given)
    if not given.get(BOOTSTRAP):
        raise ConfigError(f"{PREFIX}{BOOTSTRAP} is missing: write HOST:PORT of one broker or more")
    parse_bootstrap(given[BOOTSTRAP])
    group_id = given.get(GROUP_ID)
    if group_id == "":
        raise ConfigError(f"{PREFIX}{GROUP_ID} is empty")
    return KafkaOptions(
        given[BOOTSTRAP],
        _client_options(given),
        _isolation(given.get(ISOLATION, "read_committed")),
        group_id,
        _number(given, "fetch.max.wait.ms", 500, 0, TIMEOUT_MS_MAX),
        min(
            _number(given, "max.partition.fetch.bytes", FETCH_BYTES_DEFAULT, 1, 2**31 - 1),
            _number(given, "fetch.max.bytes", FETCH_BYTES_MAX, 1, 2**31 - 1),
            FETCH_BYTES_MAX,
        ),
        given.get("client.rack", ""),
    )


def _check_names(given: Mapping[str, str]) -> None:
    for name, value in given.items():
        if name in REFUSED:
            raise ConfigError(f"{PREFIX}{name} is not supported: {REFUSED[name]}")
        is_protection = name.startswith(("ssl.", "sasl."))
        if is_protection or (name == "security.protocol" and value.upper() != "PLAINTEXT"):
            raise ConfigError(f"{PREFIX}{name} is not supported: connections are not encrypted or signed in")
        if name not in TAKEN and name != "security.protocol":
            warn_once(f"the option {PREFIX}{name} has no effect here")


def warn_once(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        _logger.warning(text)


def _client_options(given: Mapping[str, str]) -> ClientOptions:
    default = ClientOptions()

    def number(name: str, otherwise: int) -> int:
        return _number(given, name, otherwise, 1, TIMEOUT_MS_MAX)

    return ClientOptions(
        client_id=given.get("client.id", CLIENT_ID_DEFAULT),
        connect_timeout_ms=number("socket.connection.setup.timeout.ms", default.connect_timeout_ms),
        request_timeout_ms=number("request.timeout.ms", default.request_timeout_ms),
        call_timeout_ms=number("default.api.timeout.ms", default.call_timeout_ms),
        retry_pause_ms=number("retry.backoff.ms", default.retry_pause_ms),
        retry_pause_ms_max=number("retry.backoff.max.ms", default.retry_pause_ms_max),
        metadata_age_ms_max=number("metadata.max.age.ms", default.metadata_age_ms_max),
        waits_for_first_contact=True,
    )


def _isolation(text: str) -> Isolation:
    found = _ISOLATIONS.get(text.lower())
    if found is None:
        raise ConfigError(f"{PREFIX}{ISOLATION} is {text!r}: write {' or '.join(_ISOLATIONS)}")
    return found


def _number(given: Mapping[str, str], name: str, otherwise: int, least: int, most: int) -> int:
    text = given.get(name)
    if text is None:
        return otherwise
    if not text.isascii() or not text.isdigit() or len(text) > 19 or not least <= int(text) <= most:
        raise ConfigError(f"{PREFIX}{name} is {text!r}: write a whole number from {least} to {most}")
    return int(text)
