"""Keyword arguments of producers, consumers and admins, with Kafka's names, to options of the core.  Pure.

A name that is not known is an error that names the nearest one.  Times are in milliseconds, sizes in bytes.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, TypeVar, cast

from distributedlog.client.fetcher import FetchOptions
from distributedlog.client.offset_specs import BEGINNING, END, Ago, Isolation, OffsetSpec
from distributedlog.client.options import ClientOptions
from distributedlog.client.partitioner import ChoosePartition, PartitionerName
from distributedlog.client.producer import ACKS_ALL, ProducerOptions
from distributedlog.model.errors import ConfigError, InvalidRecordError
from distributedlog.model.iso_durations import duration_nanoseconds
from distributedlog.model.suggestions import nearest
from distributedlog.records.compression import Codec
from distributedlog.records.kernel import new_record
from distributedlog.records.layout import NO_TIMESTAMP
from distributedlog.records.record import Header, Record

if TYPE_CHECKING:
    from distributedlog.client.groups.membership import GroupOptions

BOOTSTRAP_DEFAULT: Final = "127.0.0.1:9092"
MAX_BLOCK_MS: Final = 60_000

Bytes = bytes | bytearray | memoryview
Serializer = Callable[[Any], Bytes | None]
Deserializer = Callable[[bytes], Any]
Headers = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]
T = TypeVar("T")


class ClientSettings(TypedDict, total=False):
    client_id: str
    connect_timeout_ms: int
    request_timeout_ms: int
    default_api_timeout_ms: int
    """The time for one call with all its retries."""
    metadata_max_age_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    """How long a broker that could not be reached is not tried again: twice as long after each failure."""
    reconnect_backoff_max_ms: int
    metadata_recovery_strategy: Literal["rebootstrap", "none"]
    """Whether `bootstrap` is asked again when no broker that is known can be reached (KIP-899)."""
    metadata_recovery_rebootstrap_trigger_ms: int
    """The time without new metadata after which that is done in any case (KIP-1102)."""
    wait_for_cluster: bool
    """Whether a cluster that was never reached is waited for; without it a wrong address is told at once."""


class ProducerSettings(ClientSettings, total=False):
    acks: Literal["all", -1, 0, 1]
    enable_idempotence: bool | None
    """None: as far as `acks` and the broker allow it."""
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    compression_level: int | None
    linger_ms: int
    batch_size: int
    buffer_memory: int
    """The undelivered bytes from which on `send` waits."""
    max_block_ms: int
    """How long `send` waits for room and for a topic's metadata."""
    max_request_size: int
    delivery_timeout_ms: int
    max_in_flight: int
    """How many batches of a partition may be under way at once: 5, or 1 without idempotence."""
    partitioner: PartitionerName | ChoosePartition
    key_serializer: Serializer
    value_serializer: Serializer
    allow_auto_create_topics: bool
    transactional_id: str | None
    """The name under which it has transactions; a new producer of that name fences the one before it."""
    transaction_timeout_ms: int


class ConsumerSettings(ClientSettings, total=False):
    group_id: str | None
    """None: no group; partitions are assigned by the program, and nothing can be committed."""
    topics: Iterable[str]
    """What to subscribe to at once."""
    group_protocol: Literal["classic", "consumer"]
    """`consumer` (KIP-848): the coordinator assigns, and says how long sessions are."""
    group_remote_assignor: str | None
    """The coordinator's assignor to ask for, with `group_protocol="consumer"`: `uniform` or `range`."""
    group_instance_id: str | None
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    max_poll_records: int
    assignor: str | Sequence[str]
    auto_offset_reset: str
    """`earliest`, `latest`, `none`, or `by_duration:PT1H` (KIP-1106): the first record of the last hour."""
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    isolation_level: Literal["read_uncommitted", "read_committed"]
    fetch_max_wait_ms: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    client_rack: str
    """Where the consumer is: it reads from a replica there, if the brokers offer one (KIP-392)."""
    key_deserializer: Deserializer
    value_deserializer: Deserializer


_CLIENT: Final = {
    "client_id": "client_id",
    "connect_timeout_ms": "connect_timeout_ms",
    "request_timeout_ms": "request_timeout_ms",
    "default_api_timeout_ms": "call_timeout_ms",
    "metadata_max_age_ms": "metadata_age_ms_max",
    "retry_backoff_ms": "retry_pause_ms",
    "retry_backoff_max_ms": "retry_pause_ms_max",
    "reconnect_backoff_ms": "reconnect_pause_ms",
    "reconnect_backoff_max_ms": "reconnect_pause_ms_max",
    "metadata_recovery_rebootstrap_trigger_ms": "rebootstrap_after_ms",
    "wait_for_cluster": "waits_for_first_contact",
}
_PRODUCER: Final = {
    "enable_idempotence": "idempotent",
    "linger_ms": "linger_ms",
    "delivery_timeout_ms": "delivery_timeout_ms",
    "max_in_flight": "in_flight_max",
    "partitioner": "partitioner",
    "allow_auto_create_topics": "allow_creation",
    "transactional_id": "transactional_id",
    "transaction_timeout_ms": "transaction_timeout_ms",
}

_SIZES: Final = {
    "batch_size": "batch_bytes_max",
    "max_request_size": "request_bytes_max",
    "buffer_memory": "buffer_bytes_max",
}


def check_names(settings: Mapping[str, Any], known: Iterable[str], whose: str) -> None:
    names = set(known)
    for name in settings:
        if name not in names:
            near = nearest(name, names)
            hint = f": do you mean {near}?" if near else ""
            raise ConfigError(f"{whose} has no setting {name!r}{hint}")


def of_every_client(settings: Mapping[str, Any]) -> ClientSettings:
    """Those of them that are not only for one kind of client."""
    found = {name: value for name, value in settings.items() if name in ClientSettings.__annotations__}
    return cast(ClientSettings, found)


@contextmanager
def _by_their_names(names: Mapping[str, str]) -> Iterator[None]:
    """What is wrong is told of the settings that the program has made."""
    try:
        yield
    except ConfigError as error:
        settings = {ours: name for name, ours in names.items()}
        words = re.split(r"(\w+)", str(error))
        raise ConfigError("".join(settings.get(each, each) for each in words)) from None


def client_options(settings: Mapping[str, Any]) -> ClientOptions:
    given = {ours: settings[name] for name, ours in _CLIENT.items() if name in settings}
    strategy = settings.get("metadata_recovery_strategy", "rebootstrap")
    if strategy not in ("rebootstrap", "none"):
        raise ConfigError(f"there is no metadata_recovery_strategy {strategy!r}: rebootstrap or none")
    with _by_their_names(_CLIENT):
        return ClientOptions(rebootstraps=strategy == "rebootstrap", **given)


def producer_options(settings: Mapping[str, Any]) -> ProducerOptions:
    given = {ours: settings[name] for name, ours in _PRODUCER.items() if name in settings}
    acks = settings.get("acks", "all")
    usual = ProducerOptions()
    buffer_bytes = settings.get("buffer_memory", usual.buffer_bytes_max)
    request_bytes = settings.get("max_request_size", min(usual.request_bytes_max, buffer_bytes))
    with _by_their_names(_PRODUCER | _SIZES):
        return ProducerOptions(
            acks=ACKS_ALL if acks == "all" else acks,
            codec=codec_named(settings.get("compression", "none")),
            codec_level=settings.get("compression_level"),
            buffer_bytes_max=buffer_bytes,
            request_bytes_max=request_bytes,
            batch_bytes_max=settings.get("batch_size", min(usual.batch_bytes_max, request_bytes)),
            **given,
        )


_GROUP: Final = {
    "group_protocol": "protocol",
    "group_remote_assignor": "remote_assignor",
    "client_rack": "rack",
    "group_instance_id": "instance_id",
    "session_timeout_ms": "session_timeout_ms",
    "heartbeat_interval_ms": "heartbeat_interval_ms",
    "max_poll_interval_ms": "max_poll_interval_ms",
}
_FETCH: Final = {
    "fetch_max_wait_ms": "wait_ms_max",
    "fetch_min_bytes": "bytes_min",
    "fetch_max_bytes": "bytes_max",
    "max_partition_fetch_bytes": "partition_bytes_max",
    "client_rack": "rack",
}
RESETS: Final[Mapping[str, OffsetSpec | None]] = {"earliest": BEGINNING, "latest": END, "none": None}
BY_DURATION: Final = "by_duration:"


def group_options(settings: Mapping[str, Any]) -> "GroupOptions | None":
    """What makes a member of a group is imported only where there is one: it takes its time."""
    if "group_protocol" in settings or "group_remote_assignor" in settings:
        _check_protocol(settings)
    group_id = settings.get("group_id")
    if group_id is None:
        return None
    from distributedlog.client.groups.membership import GroupOptions

    given = {ours: settings[name] for name, ours in _GROUP.items() if name in settings}
    assignor = settings.get("assignor")
    if assignor is not None:
        given["assignors"] = (assignor,) if isinstance(assignor, str) else tuple(assignor)
    return GroupOptions(group_id=group_id, **given)


_CLASSIC_ONLY: Final = {
    "session_timeout_ms": "the broker's group.consumer.session.timeout.ms says it",
    "heartbeat_interval_ms": "the broker's group.consumer.heartbeat.interval.ms says it",
    "assignor": "the coordinator assigns: use group_remote_assignor",
}


def _check_protocol(settings: Mapping[str, Any]) -> None:
    from distributedlog.client.groups.membership import CLASSIC, CONSUMER

    if settings.get("group_protocol", CLASSIC) == CONSUMER:
        for name, hint in _CLASSIC_ONLY.items():
            if name in settings:
                raise ConfigError(f"{name} is not for group_protocol='consumer': {hint}")
    elif settings.get("group_remote_assignor") is not None:
        raise ConfigError("group_remote_assignor is for group_protocol='consumer': use assignor")


def fetch_options(settings: Mapping[str, Any]) -> FetchOptions:
    name = settings.get("isolation_level", "read_uncommitted")
    if not isinstance(name, str) or name.upper() not in Isolation.__members__:
        raise ConfigError(f"there is no isolation_level {name!r}: read_uncommitted or read_committed")
    given = {ours: settings[name] for name, ours in _FETCH.items() if name in settings}
    return FetchOptions(isolation=Isolation[name.upper()], **given)


def reset_of(settings: Mapping[str, Any]) -> OffsetSpec | None:
    """Where a partition without a position begins; None: nowhere, it is an error."""
    name = settings.get("auto_offset_reset", "latest")
    if isinstance(name, str) and name.startswith(BY_DURATION):
        nanoseconds = duration_nanoseconds(name.removeprefix(BY_DURATION))
        if nanoseconds is not None:
            return Ago(nanoseconds // 1_000_000)
    elif name in RESETS:
        return RESETS[name]
    raise ConfigError(
        f"there is no auto_offset_reset {name!r}: earliest, latest, none, or by_duration:PnDTnHnMn.nS, "
        "such as by_duration:PT1H for an hour"
    )


def checked_most(records: int) -> int:
    """How many records a poll gives out at most."""
    if records < 1:
        raise ConfigError(f"max_poll_records, or max_records, is {records}; it must be at least 1")
    return records


def codec_named(name: str) -> Codec:
    try:
        return Codec[name.upper()]
    except (AttributeError, KeyError) as error:
        known = ", ".join(each.name.lower() for each in Codec)
        raise ConfigError(f"there is no compression {name!r}: there are {known}") from error


def as_bytes(what: Any) -> bytes | None:
    """The serializer without another: bytes as they are, text as UTF-8."""
    if what is None or type(what) is bytes:
        return what
    if isinstance(what, str):
        return what.encode()
    if isinstance(what, bytes | bytearray | memoryview):
        return bytes(what)
    raise InvalidRecordError(
        f"a key or value is {type(what).__name__}: give bytes or str, "
        "or set key_serializer and value_serializer"
    )


NO_HEADERS: Final[tuple[Header, ...]] = ()


def as_headers(headers: Headers | None) -> tuple[Header, ...]:
    if not headers:
        return NO_HEADERS
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple(Header(name, as_bytes(value)) for name, value in pairs)


class Serializers:
    """Makes records of what programs send."""

    __slots__ = ("_key", "_value")

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._key: Serializer | None = settings.get("key_serializer")
        self._value: Serializer | None = settings.get("value_serializer")

    def record(self, value: Any, key: Any, headers: Headers | None, timestamp_ms: int | None) -> Record:
        if self._value is not None:
            value = self._value(value)
        if type(value) is not bytes:
            value = as_bytes(value)
        if self._key is not None:
            key = self._key(key)
        if key is not None:
            key = as_bytes(key)
        if timestamp_ms is None:
            timestamp_ms = NO_TIMESTAMP
        made: Record = new_record(value, key, as_headers(headers) if headers else NO_HEADERS, timestamp_ms)
        return made
