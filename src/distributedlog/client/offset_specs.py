"""Places in a partition, as people name them: an offset, a time, an end, the last ten.  Pure.

The special times are those of ListOffsets.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
NO_OFFSET: Final = -1


class Isolation(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class OffsetAndTimestamp(NamedTuple):
    offset: int
    """-1: there is no record at or after the time that was asked for."""
    timestamp_ms: int = -1
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class AtOffset:
    offset: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record of this time or later; the special times are the ends."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Ago:
    """The first record that is at most so old when it is looked for; behind all, if there is none."""

    duration_ms: int


@dataclass(frozen=True, slots=True)
class LastRecords:
    """The place so many offsets before the end, or as many as there are."""

    count: int


OffsetSpec = AtOffset | AtTime | Ago | LastRecords
BEGINNING: Final = AtTime(EARLIEST)
END: Final = AtTime(LATEST)
