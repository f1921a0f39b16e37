"""What the segment source can be told.  Pure.

| option                                     | here                                                          |
|--------------------------------------------|---------------------------------------------------------------|
| `segments`                                 | a data directory, a partition's (`DIR/orders-0`) or a topic's |
|                                            | (`DIR/orders`, which stands for all `DIR/orders-N`)           |
| `subscribe`, `subscribePattern`, `assign`  | which topics of it; without: all but internal ones            |
| `startingOffsets`, `endingOffsets`         | `earliest`, `latest`, or JSON that names every partition      |
| `minPartitions`                            | at least so many tasks, about                                 |
| `taskBytes`                                | at most about so many bytes of a file in a task; 128 MiB      |
| `failOnDataLoss`                           | `true`: what is lost is an error; `false`: a line in the log  |
| `isolation.level`, also with `kafka.`      | `read_committed`, the default, or `read_uncommitted`          |
| `includeHeaders`, `columns`                | as for the source                                             |

Other options that begin with `kafka.` are for brokers and passed over, so that a backfill and the stream that
follows it can share their options.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from distributedlog.client.offset_specs import EARLIEST, LATEST
from distributedlog.model.errors import ConfigError
from distributedlog.model.suggestions import nearest
from distributedlog.spark.source.columns import COLUMNS_OPTION, INCLUDE_HEADERS, columns_of
from distributedlog.spark.source.kafka_options import ISOLATION, PREFIX, warn_once
from distributedlog.spark.source.offsets import Positions, parse_positions
from distributedlog.spark.source.subscription import WAYS, Subscription, parse_subscription

SEGMENTS: Final = "segments"
STARTING: Final = "startingOffsets"
ENDING: Final = "endingOffsets"
TASKS_MIN: Final = "minPartitions"
TASK_BYTES: Final = "taskBytes"
LOSS: Final = "failOnDataLoss"
TASK_BYTES_DEFAULT: Final = 128 * 1024 * 1024
"""The bytes of a task, as Spark's own file sources have it."""
SPELLED: Final = (
    SEGMENTS, *WAYS, STARTING, ENDING, TASKS_MIN, TASK_BYTES, LOSS, ISOLATION, INCLUDE_HEADERS,
    COLUMNS_OPTION,
)  # fmt: skip
_BY_TIME: Final = (
    "startingTimestamp", "endingTimestamp", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp",
)  # fmt: skip
_KNOWN: Final = {name.lower(): name for name in SPELLED}


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentOptions:
    path: str
    subscription: Subscription | None
    """None: whatever the path has, but for internal topics."""
    start: int | Positions
    """EARLIEST for all, or a place for each."""
    end: int | Positions
    """LATEST for all, or a place for each."""
    columns: tuple[str, ...]
    is_committed_only: bool = True
    fails_on_data_loss: bool = True
    tasks_min: int = 1
    task_bytes: int = TASK_BYTES_DEFAULT


def parse_segment_options(options: Mapping[str, str]) -> SegmentOptions:
    given = {name.lower(): str(value) for name, value in options.items()}
    _check_names(given)
    path = given.get(SEGMENTS, "").strip()
    if not path:
        raise ConfigError(f"the option {SEGMENTS} is empty: name a data directory")
    start, end = _bound(given, STARTING, EARLIEST), _bound(given, ENDING, LATEST)
    _check_bounds(start, end)
    return SegmentOptions(
        path=path,
        subscription=parse_subscription(given) if any(way.lower() in given for way in WAYS) else None,
        start=start,
        end=end,
        columns=columns_of(given),
        is_committed_only=_isolation(given),
        fails_on_data_loss=_flag(given, LOSS, True),
        tasks_min=_number(given, TASKS_MIN, 1, 1_000_000),
        task_bytes=_number(given, TASK_BYTES, TASK_BYTES_DEFAULT, 2**40),
    )


def _check_names(given: Mapping[str, str]) -> None:
    for name in _BY_TIME:
        if name.lower() in given:
            raise ConfigError(f"{name} is not for segments: say where to begin and to end with offsets")
    for name in sorted(given.keys() - _KNOWN.keys()):
        if name.startswith(PREFIX):
            continue
        near = nearest(name, _KNOWN)
        if near is not None:
            raise ConfigError(f"there is no option {name}: did you mean {_KNOWN[near]}?")
        warn_once(f"the option {name} has no effect on reading segments")


def _bound(given: Mapping[str, str], name: str, otherwise: int) -> int | Positions:
    text = given.get(name.lower(), "").strip()
    if text.lower() in ("earliest", "latest"):
        return EARLIEST if text.lower() == "earliest" else LATEST
    if not text:
        return otherwise
    if not text.startswith("{"):
        raise ConfigError(f"{name} is {text!r}: write earliest, latest or JSON")
    return parse_positions(text, name)


def _check_bounds(start: int | Positions, end: int | Positions) -> None:
    starts = set(start.offsets.values()) if isinstance(start, Positions) else {start}
    ends = set(end.offsets.values()) if isinstance(end, Positions) else {end}
    if LATEST in starts or EARLIEST in ends:
        raise ConfigError(f"{STARTING} at the end, or {ENDING} at the start, leave nothing to read")


def _isolation(given: Mapping[str, str]) -> bool:
    text = given.get(ISOLATION, given.get(PREFIX + ISOLATION, "read_committed")).strip().lower()
    if text not in ("read_committed", "read_uncommitted"):
        raise ConfigError(f"{ISOLATION} is {text!r}: write read_committed or read_uncommitted")
    return text == "read_committed"


def _flag(given: Mapping[str, str], name: str, otherwise: bool) -> bool:
    text = given.get(name.lower(), str(otherwise)).strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{name} is {text!r}: write true or false")
    return text == "true"


def _number(given: Mapping[str, str], name: str, otherwise: int, most: int) -> int:
    text = given.get(name.lower(), str(otherwise)).strip()
    if not text.isascii() or not text.isdigit() or len(text) > 19 or not 0 < int(text) <= most:
        raise ConfigError(f"{name} is {text!r}: write a whole number from 1 to {most}")
    return int(text)
