"""What is asked of a partition and what it answers, as data; and the signals that it sends.

Whoever waits for something subscribes to `PartitionSignals`, which all partitions of a broker share.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from distributedlog.storage.epochs import EpochEnd
from distributedlog.storage.files import FileRegion
from distributedlog.storage.txn_index import AbortedTransaction

if TYPE_CHECKING:
    from distributedlog.replication.partition import Partition

ACKS_ALL: Final = -1
NO_LEADER: Final = -1
UNCHECKED: Final = -1
"""A leader epoch that the asker does not know, or does not care about."""
HIGH_WATERMARK: Final = -1
"""DeleteRecords: all that is committed."""


class Isolation(IntEnum):
    """As Kafka numbers them."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class OffsetSpec(IntEnum):
    """The times that are no times, as Kafka numbers them."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


class ListedOffset(NamedTuple):
    offset: int = -1
    timestamp_ms: int = -1
    leader_epoch: int = -1


NOT_FOUND: Final = ListedOffset()


class PartitionRead(NamedTuple):
    region: FileRegion | None
    """None when there is nothing to read yet.  Close it when it is sent."""
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: Sequence[AbortedTransaction] | None = None
    """Those that a read_committed reader drops; None for others."""
    diverging: EpochEnd | None = None
    """The follower's log and ours part before the offset asked for: it must truncate by this."""

    @property
    def length(self) -> int:
        return 0 if self.region is None else self.region.length


Listener = Callable[["Partition"], None]


@dataclass(slots=True)
class PartitionSignals:
    """Who is told what of all partitions.  Listeners look at the partition; they must not raise."""

    end_advanced: list[Listener] = field(default_factory=list)
    commit_advanced: list[Listener] = field(default_factory=list)
    """The high watermark rose, and with it perhaps the last stable offset."""
    state_changed: list[Listener] = field(default_factory=list)
    """It leads, follows, is stopped or failed, or its ISR is another one."""
