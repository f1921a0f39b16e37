"""What the sink can be told, under the names of Spark's Kafka sink.  Pure.

| option                          | it is                                                                    |
|---------------------------------|--------------------------------------------------------------------------|
| `kafka.bootstrap.servers`       | where the cluster is; the only one that must be there                    |
| `topic`                         | where all rows go, whatever a column `topic` says; without it that column|
| `delivery`                      | `exactly-once`, the default, which brokers of ours offer; for others     |
|                                 | `at-least-once` has to be chosen                                         |
| `writeId`                       | names a batch write for good, or a write in `foreachBatch`; only with    |
|                                 | `exactly-once`                                                           |
| `batchId`                       | beside `writeId`: the batch of a query that a batch write is             |
| `kafka.` with a producer's name | the settings of Kafka's producer, as far as they mean something here     |

A name with `kafka.` before it is used (`_KNOWN`), or known and without effect (`IGNORED`: said once), or
refused because obeying it is impossible and ignoring it would change what is written (`_REFUSED`).  A name
that is nearly one of these is a slip of the pen, and refused with the name that was meant.  Any other has no
effect, as in Spark's Kafka sink, and is said so once.

Names of options do not care about case, as all of Spark's do not.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from distributedlog.client.addresses import parse_bootstrap
from distributedlog.client.options import TIMEOUT_MS_MAX, ClientOptions
from distributedlog.client.producer import ACKS_ALL, ProducerOptions
from distributedlog.client.sinks import BATCH_TIMEOUT_MS
from distributedlog.model.errors import ConfigError, DlogError
from distributedlog.model.ids import check_topic_name
from distributedlog.model.suggestions import nearest
from distributedlog.records.compression import Codec

PREFIX: Final = "kafka."
BOOTSTRAP: Final = "kafka.bootstrap.servers"
TOPIC: Final = "topic"
DELIVERY: Final = "delivery"
WRITE_ID: Final = "writeId"
WRITE_ID_BYTES_MAX: Final = 200
BATCH_ID: Final = "batchId"
BATCH_ID_MAX: Final = 2**63 - 1
BATCH_TIMEOUT: Final = "transaction.timeout.ms"
AT_LEAST_ONCE: Final = "at-least-once"
EXACTLY_ONCE: Final = "exactly-once"
OTHERS: Final = frozenset(
    {"checkpointlocation", "path", "queryname", "includeheaders", "outputmode", "kafka.security.protocol"}
)
"""Spark passes these on although they are none of a sink's business; `includeHeaders` stands in pipelines
that share their options between source and sink."""

IGNORED: Final = frozenset(
    {
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "linger.ms",
        "max.in.flight.requests.per.connection",
        "metadata.max.idle.ms",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retries",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.max.ms",
    }
)
"""Nothing of what is written depends on them.  Rows are there when a task has them, so nothing lingers; how
long a batch is tried again is said by `delivery.timeout.ms`."""

_REFUSED: Final[Mapping[str, str]] = {
    "key.serializer": "keys are written as the bytes that they are: cast the column to string or binary",
    "value.serializer": "values are written as the bytes that they are: cast the column to string or binary",
    "transactional.id": f"the sink names its transactions itself: write with {DELIVERY}={EXACTLY_ONCE}",
    "partitioner.class": "no Java class is loaded here: compute a column named partition instead",
    "partitioner.ignore.keys": "keys always decide: compute a column named partition instead",
    "interceptor.classes": "no Java class is loaded here: transform the rows before they are written",
}
_ENCRYPTED: Final = ("ssl.", "sasl.")

BATCH_BYTES_DEFAULT: Final = 256 * 1024
REQUEST_BYTES_DEFAULT: Final = 16 * 1024 * 1024
BUFFER_BYTES_DEFAULT: Final = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Two sinks with equal options can share a producer."""

    bootstrap: str
    topic: str | None
    client: ClientOptions
    producer: ProducerOptions
    is_exactly_once: bool = True
    write_id: str | None = None
    batch_id: int | None = field(default=None, compare=False)
    """Another one for each batch, which all have their producer in common."""
    batch_timeout_ms: int = BATCH_TIMEOUT_MS
    """How long a batch stays open without a sign of life."""
    without_effect: tuple[str, ...] = ()
    """Settings that were given and do nothing."""


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Raises `ConfigError` that names the option and what to do about it."""
    given = {name.lower(): value for name, value in options.items()}
    unused = _unused_names(given)
    is_exactly_once = _is_exactly_once(given.get(DELIVERY, EXACTLY_ONCE))
    bootstrap = given.get(BOOTSTRAP, "").strip()
    if not bootstrap:
        raise ConfigError(f"the option {BOOTSTRAP} is missing: say where the cluster is, as HOST:PORT")
    parse_bootstrap(bootstrap)
    settings = {name.removeprefix(PREFIX): value for name, value in given.items() if name.startswith(PREFIX)}
    if is_exactly_once:
        _check_acknowledged(settings)
    else:
        _check_not_for_others(given)
    timeout_ms = settings.get(BATCH_TIMEOUT)
    return SinkOptions(
        bootstrap=bootstrap,
        topic=_topic(given.get(TOPIC)),
        client=_client_options(settings),
        producer=_producer_options(settings),
        is_exactly_once=is_exactly_once,
        write_id=_write_id(given.get(WRITE_ID.lower())),
        batch_id=_batch_id(given.get(BATCH_ID.lower()), has_name=WRITE_ID.lower() in given),
        batch_timeout_ms=BATCH_TIMEOUT_MS if timeout_ms is None else _number(1)(BATCH_TIMEOUT, timeout_ms),
        without_effect=unused,
    )


def _topic(name: str | None) -> str | None:
    if name is None:
        return None
    try:
        return check_topic_name(name)
    except DlogError as error:
        raise ConfigError(f"the option {TOPIC}: {error}") from None


def _is_exactly_once(delivery: str) -> bool:
    if delivery not in (AT_LEAST_ONCE, EXACTLY_ONCE):
        raise ConfigError(f"{DELIVERY} is {delivery!r}; it can be {AT_LEAST_ONCE} or {EXACTLY_ONCE}")
    return delivery == EXACTLY_ONCE


def _check_acknowledged(settings: Mapping[str, str]) -> None:
    """A lease needs both."""
    advice = f"leave the option out, or choose {DELIVERY}={AT_LEAST_ONCE}"
    if _acks("acks", settings.get("acks", "all")) != ACKS_ALL:
        raise ConfigError(f"{DELIVERY}={EXACTLY_ONCE}, the default, needs {PREFIX}acks=all: {advice}")
    if not _truth("enable.idempotence", settings.get("enable.idempotence", "true")):
        raise ConfigError(
            f"{DELIVERY}={EXACTLY_ONCE}, the default, needs {PREFIX}enable.idempotence=true: {advice}"
        )


def _check_not_for_others(given: Mapping[str, str]) -> None:
    for name in (WRITE_ID, BATCH_ID, PREFIX + BATCH_TIMEOUT):
        if name.lower() in given:
            raise ConfigError(
                f"the option {name} is for {DELIVERY}={EXACTLY_ONCE}: choose that, or leave it out"
            )


def _write_id(given: str | None) -> str | None:
    if given is not None and not 0 < len(given.encode()) <= WRITE_ID_BYTES_MAX:
        raise ConfigError(
            f"the option {WRITE_ID} has {len(given.encode())} bytes; it may have 1 to {WRITE_ID_BYTES_MAX}"
        )
    return given


def _batch_id(given: str | None, *, has_name: bool) -> int | None:
    if given is None:
        return None
    if not has_name:
        raise ConfigError(f"the option {BATCH_ID} needs the option {WRITE_ID}: the name of the write")
    if not (given.isascii() and given.isdecimal()) or int(given) > BATCH_ID_MAX:
        raise ConfigError(f"the option {BATCH_ID} is {given!r}; it must be a number from 0 to {BATCH_ID_MAX}")
    return int(given)


# --- names -------------------------------------------------------------------------------------


def _unused_names(given: Mapping[str, str]) -> tuple[str, ...]:
    """Those without effect.  Raises for what is refused, and for what is misspelt."""
    unused = []
    for name, value in sorted(given.items()):
        if name.startswith(PREFIX):
            _check_refused(name.removeprefix(PREFIX), value)
        if name in OTHERS or name in _KNOWN:
            continue
        near = nearest(name, _KNOWN)
        if near and name.removeprefix(PREFIX) not in IGNORED:
            raise ConfigError(f"there is no option {name}: did you mean {near}?")
        unused.append(name)
    return tuple(unused)


def _check_refused(name: str, value: str) -> None:
    if name in _REFUSED:
        raise ConfigError(f"the option {PREFIX}{name} is not supported: {_REFUSED[name]}")
    if name.startswith(_ENCRYPTED) or (name == "security.protocol" and value.upper() != "PLAINTEXT"):
        raise ConfigError(f"the option {PREFIX}{name} is not supported: only PLAINTEXT connections are")


# --- values ------------------------------------------------------------------------------------


def _number(low: int, high: int = TIMEOUT_MS_MAX) -> Callable[[str, str], int]:
    def parse(name: str, text: str) -> int:
        if not text.strip().lstrip("-").isdecimal() or not low <= int(text) <= high:
            raise ConfigError(f"{PREFIX}{name} is {text!r}; it must be a number from {low} to {high}")
        return int(text)

    return parse


def _acks(name: str, text: str) -> int:
    found = {"all": ACKS_ALL, "-1": ACKS_ALL, "1": 1, "0": 0}.get(text.strip().lower())
    if found is None:
        raise ConfigError(f"{PREFIX}{name} is {text!r}; it can be all, 1 or 0")
    return found


def _codec(name: str, text: str) -> Codec:
    try:
        return Codec[text.strip().upper()]
    except KeyError:
        names = ", ".join(codec.name.lower() for codec in Codec)
        raise ConfigError(f"{PREFIX}{name} is {text!r}; it can be {names}") from None


def _truth(name: str, text: str) -> bool:
    found = {"true": True, "false": False}.get(text.strip().lower())
    if found is None:
        raise ConfigError(f"{PREFIX}{name} is {text!r}; it can be true or false")
    return found


def _text(name: str, text: str) -> str:
    return text


_CLIENT: Final[Mapping[str, tuple[str, Callable[[str, str], Any]]]] = {
    "client.id": ("client_id", _text),
    "request.timeout.ms": ("request_timeout_ms", _number(1)),
    "max.block.ms": ("call_timeout_ms", _number(1)),
    "retry.backoff.ms": ("retry_pause_ms", _number(1)),
    "retry.backoff.max.ms": ("retry_pause_ms_max", _number(1)),
    "metadata.max.age.ms": ("metadata_age_ms_max", _number(1)),
    "socket.connection.setup.timeout.ms": ("connect_timeout_ms", _number(1)),
}
_PRODUCER: Final[Mapping[str, tuple[str, Callable[[str, str], Any]]]] = {
    "acks": ("acks", _acks),
    "compression.type": ("codec", _codec),
    "enable.idempotence": ("idempotent", _truth),
    "batch.size": ("batch_bytes_max", _number(0, 2**30)),
    "max.request.size": ("request_bytes_max", _number(1, 2**30)),
    "buffer.memory": ("buffer_bytes_max", _number(1, 2**40)),
    "delivery.timeout.ms": ("delivery_timeout_ms", _number(1)),
}
_KNOWN: Final = (
    TOPIC,
    DELIVERY,
    WRITE_ID.lower(),
    BATCH_ID.lower(),
    BOOTSTRAP,
    *(PREFIX + name for name in (*_CLIENT, *_PRODUCER, BATCH_TIMEOUT)),
)


def _client_options(settings: Mapping[str, str]) -> ClientOptions:
    given = {
        field: parse(name, settings[name]) for name, (field, parse) in _CLIENT.items() if name in settings
    }
    return ClientOptions(**{"client_id": "dlog-spark-sink", "waits_for_first_contact": True, **given})


def _producer_options(settings: Mapping[str, str]) -> ProducerOptions:
    """Makes the producer's options; those that were not given yield to those that were: the three sizes must
    rise."""
    given = {
        field: parse(name, settings[name]) for name, (field, parse) in _PRODUCER.items() if name in settings
    }
    batch = max(1, given.get("batch_bytes_max", BATCH_BYTES_DEFAULT))
    request = given.get("request_bytes_max", max(batch, REQUEST_BYTES_DEFAULT))
    if "batch_bytes_max" not in given:
        batch = min(batch, request)
    given["batch_bytes_max"], given["request_bytes_max"] = batch, request
    given.setdefault("buffer_bytes_max", max(request, BUFFER_BYTES_DEFAULT))
    try:
        return ProducerOptions(**given)
    except ConfigError as error:
        raise ConfigError(
            f"{error} ({', '.join(PREFIX + name for name in _PRODUCER if name in settings)})"
        ) from None
