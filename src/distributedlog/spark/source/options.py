"""What a reader can be told, under the names and with the meaning of Spark's Kafka source.  Pure.

| option                                 | here                                                             |
|----------------------------------------|------------------------------------------------------------------|
| `subscribe`                            | topics, with commas between                                      |
| `subscribePattern`                     | a regular expression found in a topic's name                     |
| `assign`                               | `{"orders":[0,1]}`                                               |
| `startingOffsets`                      | `earliest`, `latest`, JSON, or a relative time (`-10m`)          |
| `startingTimestamp`                    | one time for all partitions: milliseconds, `-10m`, ISO           |
| `startingOffsetsByTimestamp`           | JSON, a time for each partition                                  |
| `startingOffsetsByTimestampStrategy`   | `error` or `latest`: when no record is so young                  |
| `ending…` of the same three            | of a bounded read                                                |
| `maxOffsetsPerTrigger`                 | so many offsets in a micro-batch at most                         |
| `maxBytesPerTrigger`                   | about so many bytes, as they are stored                          |
| `minOffsetsPerTrigger`                 | fewer wait, until `maxTriggerDelay` (15m) has passed             |
| `minPartitions`                        | at least so many tasks, about                                    |
| `maxRecordsPerPartition`               | at most so many offsets in a task                                |
| `failOnDataLoss`                       | `true`: what is lost is an error; `false`: a line in the log     |
| `includeHeaders`                       | `true`: a column `headers`                                       |
| `columns`                              | only these, in this order                                        |
| `groupIdPrefix`, `kafka.group.id`      | the group to which progress is committed                         |
| `commitOffsets`                        | `false`: it is committed to none                                 |
| `fetchOffset.numRetries`               | how often what seems lost is looked for                          |
| `fetchOffset.retryIntervalMs`          | and how far apart                                                |
| `kafkaConsumer.pollTimeoutMs`          | how long a task waits for a broker, restarts included            |
| `partition.metadata.cache.ttl.ms`      | how often new topics and partitions are looked for               |

Names may be written in any case.  A name that is nearly one of these is an error that says which; other
names are passed over with a warning.  Where two options say where to start, the first of *timestamp*,
*by timestamp*, *offsets* counts, as in Spark's source.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from distributedlog.client.offset_specs import EARLIEST, LATEST
from distributedlog.client.timestamps import TimestampSpec, is_relative, parse_duration_ms, parse_timestamp
from distributedlog.model.errors import ConfigError
from distributedlog.model.ids import TopicPartition
from distributedlog.model.suggestions import nearest
from distributedlog.spark.source.columns import COLUMNS_OPTION, INCLUDE_HEADERS, columns_of
from distributedlog.spark.source.kafka_options import (
    ISOLATION,
    PREFIX,
    REFUSED,
    TAKEN,
    WITHOUT_EFFECT,
    KafkaOptions,
    parse_kafka_options,
    warn_once,
)
from distributedlog.spark.source.offsets import Positions, parse_by_partition, parse_positions
from distributedlog.spark.source.subscription import Subscription, parse_subscription

NUMBER_MAX: Final = 2**63 - 1
POLL_TIMEOUT_MS_DEFAULT: Final = 120_000
METADATA_MS_DEFAULT: Final = 1_000
NO_MATCH: Final = "startingOffsetsByTimestampStrategy"
MOMENTS_EXAMPLE: Final = '{"topicA":{"0":1769860800000,"1":"-10m"}}'

SPELLED: Final = (
    "subscribe", "subscribePattern", "assign",
    "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp",
    NO_MATCH,
    "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
    "minPartitions", "maxRecordsPerPartition", "failOnDataLoss", INCLUDE_HEADERS, COLUMNS_OPTION,
    "groupIdPrefix", "commitOffsets", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs", "partition.metadata.cache.ttl.ms", ISOLATION,
)  # fmt: skip
"""All options of ours, as they are written in the documentation."""
_KNOWN: Final = {name.lower(): name for name in (*SPELLED, *(f"{PREFIX}{each}" for each in TAKEN))}
_OF_KAFKA: Final = frozenset(f"{PREFIX}{each}" for each in (*WITHOUT_EFFECT, *REFUSED, "security.protocol"))
_OF_STREAMS: Final = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_OF_BATCHES: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")


# --- where to begin and to end -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AtEnd:
    """EARLIEST or LATEST of `places`, for every partition."""

    which: int


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    timestamp: TimestampSpec


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    timestamps: Mapping[TopicPartition, TimestampSpec]


@dataclass(frozen=True, slots=True)
class AtOffsets:
    positions: Positions
    """-1 and -2 stand for the ends."""


Bound = AtEnd | AtTimestamp | AtTimestamps | AtOffsets


def is_relative_to_now(bound: Bound) -> bool:
    """Returns whether it means something else each time it is looked at: the end, or so long ago."""
    match bound:
        case AtEnd(which):
            return which == LATEST
        case AtTimestamp(timestamp):
            return timestamp.is_ago
        case AtTimestamps(timestamps):
            return any(each.is_ago for each in timestamps.values())
        case AtOffsets(positions):
            return LATEST in positions.offsets.values()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one micro-batch."""

    offsets_max: int | None = None
    bytes_max: int | None = None
    offsets_min: int | None = None
    delay_ms_max: int = 15 * 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    kafka: KafkaOptions
    subscription: Subscription
    columns: tuple[str, ...]
    start: Bound
    end: Bound = AtEnd(LATEST)
    is_no_match_latest: bool = False
    """Where no record is as young as a starting time: begin at the end, instead of an error."""
    limits: Limits = Limits()
    tasks_min: int | None = None
    task_offsets_max: int | None = None
    fails_on_data_loss: bool = True
    group_id: str = ""
    """Empty: progress is committed to no group."""
    loss_tries: int = 3
    loss_pause_ms: int = 1_000
    poll_timeout_ms: int = POLL_TIMEOUT_MS_DEFAULT
    metadata_ms: int = METADATA_MS_DEFAULT


def parse_stream_options(options: Mapping[str, str]) -> ReadOptions:
    given = _lowered(options)
    for name in _OF_BATCHES:
        if name.lower() in given:
            raise ConfigError(f"{name} is for bounded reads: a stream has no end")
    return _parse(given, AtEnd(LATEST))


def parse_batch_options(options: Mapping[str, str]) -> ReadOptions:
    given = _lowered(options)
    for name in _OF_STREAMS:
        if name.lower() in given:
            warn_once(f"the option {name} has no effect on a bounded read")
    found = _parse(given, AtEnd(EARLIEST))
    _check_bounds(found.start, found.end)
    return found


def check_read_options(options: Mapping[str, str]) -> None:
    """Checks what can be checked before it is known whether the read is bounded."""
    _parse(_lowered(options), AtEnd(EARLIEST))


# --- names -------------------------------------------------------------------------------------


def _lowered(options: Mapping[str, str]) -> dict[str, str]:
    given = {name.lower(): str(value) for name, value in options.items()}
    if given.get("path"):
        raise ConfigError(f"load({given['path']!r}) names a path: topics are named with subscribe")
    for name in sorted(given.keys() - _KNOWN.keys() - _OF_KAFKA - {"path"}):
        near = nearest(name, _KNOWN)
        if near is not None:
            raise ConfigError(f"there is no option {name}: did you mean {_KNOWN[near]}?")
        if not name.startswith(PREFIX):
            warn_once(f"the option {name} has no effect here")
    return given


def _check_bounds(start: Bound, end: Bound) -> None:
    if start == AtEnd(LATEST):
        raise ConfigError("a bounded read cannot start at latest: there would be nothing to read")
    if end == AtEnd(EARLIEST):
        raise ConfigError("a bounded read cannot end at earliest: there would be nothing to read")
    if isinstance(start, AtOffsets) and LATEST in start.positions.offsets.values():
        raise ConfigError("startingOffsets of a bounded read cannot have -1: there would be nothing to read")
    if isinstance(end, AtOffsets) and EARLIEST in end.positions.offsets.values():
        raise ConfigError("endingOffsets cannot have -2: there would be nothing to read")
    if isinstance(start, AtOffsets) and isinstance(end, AtOffsets):
        begins, ends = start.positions.offsets, end.positions.offsets
        if begins.keys() != ends.keys():
            odd = ", ".join(map(str, sorted(begins.keys() ^ ends.keys())))
            raise ConfigError(f"startingOffsets and endingOffsets must name the same partitions: {odd}")
        for partition in begins:
            if begins[partition] > ends[partition] >= 0:
                raise ConfigError(
                    f"{partition} would start at {begins[partition]} and end at {ends[partition]}"
                )


# --- values ------------------------------------------------------------------------------------


def _parse(given: Mapping[str, str], start_default: Bound) -> ReadOptions:
    kafka = parse_kafka_options(given)
    subscription = parse_subscription(given)
    limits = Limits(
        offsets_max=_number(given, "maxOffsetsPerTrigger"),
        bytes_max=_number(given, "maxBytesPerTrigger"),
        offsets_min=_number(given, "minOffsetsPerTrigger"),
        delay_ms_max=parse_duration_ms(given.get("maxtriggerdelay", "15m"), "maxTriggerDelay"),
    )
    if (limits.offsets_min or 0) > (limits.offsets_max or NUMBER_MAX):
        raise ConfigError(
            f"minOffsetsPerTrigger is {limits.offsets_min}, above maxOffsetsPerTrigger ({limits.offsets_max})"
        )
    found = ReadOptions(
        kafka=kafka,
        subscription=subscription,
        columns=columns_of(given),
        start=_bound(given, "starting") or start_default,
        end=_bound(given, "ending") or AtEnd(LATEST),
        is_no_match_latest=_choice(given, "startingOffsetsByTimestampStrategy", ("error", "latest"))
        == "latest",
        limits=limits,
        tasks_min=_number(given, "minPartitions", most=1_000_000),
        task_offsets_max=_number(given, "maxRecordsPerPartition"),
        fails_on_data_loss=_flag(given, "failOnDataLoss", True),
        group_id=_group_id(given, kafka, subscription) if _flag(given, "commitOffsets", True) else "",
        loss_tries=_number(given, "fetchOffset.numRetries", most=1_000) or 3,
        loss_pause_ms=_number(given, "fetchOffset.retryIntervalMs", most=3_600_000) or 1_000,
        poll_timeout_ms=_number(given, "kafkaConsumer.pollTimeoutMs", most=2**31 - 1)
        or POLL_TIMEOUT_MS_DEFAULT,
        metadata_ms=_metadata_ms(given),
    )
    _check_partitions(found)
    return found


def _check_partitions(found: ReadOptions) -> None:
    """Partitions that are assigned and those that are given a place are the same ones."""
    if found.subscription.partitions is None:
        return
    assigned = set(found.subscription.partitions)
    for name, bound in (("starting", found.start), ("ending", found.end)):
        named: set[TopicPartition] | None = None
        if isinstance(bound, AtOffsets):
            named = set(bound.positions.offsets)
        elif isinstance(bound, AtTimestamps):
            named = set(bound.timestamps)
        if named is not None and named != assigned:
            odd = ", ".join(map(str, sorted(named ^ assigned)))
            raise ConfigError(f"assign and the {name} offsets must name the same partitions: {odd}")


def _bound(given: Mapping[str, str], which: str) -> Bound | None:
    at_time, by_time, at_offsets = (
        f"{which}Timestamp", f"{which}OffsetsByTimestamp", f"{which}Offsets",
    )  # fmt: skip
    if at_time.lower() in given:
        return AtTimestamp(parse_timestamp(given[at_time.lower()], at_time))
    if by_time.lower() in given:
        texts = parse_by_partition(given[by_time.lower()], by_time, MOMENTS_EXAMPLE)
        return AtTimestamps(
            {each: parse_timestamp(text, f"{by_time} of {each}") for each, text in texts.items()}
        )
    text = given.get(at_offsets.lower())
    if text is None:
        return None
    text = text.strip()
    if text.lower() in ("earliest", "latest"):
        return AtEnd(EARLIEST if text.lower() == "earliest" else LATEST)
    if is_relative(text):
        return AtTimestamp(parse_timestamp(text, at_offsets))
    if not text.startswith("{"):
        raise ConfigError(f"{at_offsets} is {text!r}: write earliest, latest, -10m, or JSON")
    return AtOffsets(parse_positions(text, at_offsets))


def _group_id(given: Mapping[str, str], kafka: KafkaOptions, subscription: Subscription) -> str:
    """A name that stays the same from run to run, so that a query has one line in the list of groups."""
    if kafka.group_id is not None:
        return kafka.group_id
    return f"{given.get('groupidprefix', 'spark')}-{subscription.label}"


def _metadata_ms(given: Mapping[str, str]) -> int:
    if given.get("partition.metadata.cache.ttl.ms", "").strip() == "-1":
        return METADATA_MS_DEFAULT
    return _number(given, "partition.metadata.cache.ttl.ms") or METADATA_MS_DEFAULT


def _number(given: Mapping[str, str], name: str, most: int = NUMBER_MAX) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    text = text.strip()
    if not text.isascii() or not text.isdigit() or len(text) > 19 or not 0 < int(text) <= most:
        raise ConfigError(f"{name} is {text!r}: write a whole number from 1 to {most}")
    return int(text)


def _flag(given: Mapping[str, str], name: str, otherwise: bool) -> bool:
    return _choice(given, name, ("true", "false"), str(otherwise).lower()) == "true"


def _choice(
    given: Mapping[str, str], name: str, allowed: tuple[str, ...], otherwise: str | None = None
) -> str | None:
    text = given.get(name.lower())
    if text is None:
        return otherwise
    if text.strip().lower() not in allowed:
        raise ConfigError(f"{name} is {text!r}: write {' or '.join(allowed)}")
    return text.strip().lower()
