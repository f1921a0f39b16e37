"""The arguments and results of a partition's methods, and the signals that it sends.

Whoever waits for something subscribes to `PartitionSignals`, which all partitions of a broker share.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple

from distributedlog.storage.epochs import EpochEnd
from distributedlog.storage.files import FileRegion
from distributedlog.storage.txn_index import AbortedTransaction

ACKS_ALL: Final = -1
NO_LEADER: Final = -1
NO_FOLLOWER: Final = -1
"""The follower's id of a reader that is a consumer."""
UNCHECKED: Final = -1
"""The leader epoch of a request that knows none."""
HIGH_WATERMARK: Final = -1
"""The offset of DeleteRecords that means the high watermark."""


class Isolation(IntEnum):
    """Isolation levels, as Kafka numbers them."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class OffsetSpec(IntEnum):
    """The timestamps of ListOffsets that name an offset, as Kafka numbers them."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


class ListedOffset(NamedTuple):
    offset: int = -1
    timestamp_ms: int = -1
    leader_epoch: int = -1


NOT_FOUND: Final = ListedOffset()


class Corruption(NamedTuple):
    """Where a log holds what was sound once and is so no longer."""

    base_offset: int
    """The first offset of the segment that is concerned."""
    leader_epoch: int
    """The leader epoch in which it was found: the last one in which this replica may have fetched."""
    reason: str


NO_REPLICA: Final = -1


class PartitionRead(NamedTuple):
    region: FileRegion | None
    """None when there is nothing to read yet.  Close it when it is sent."""
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: Sequence[AbortedTransaction] | None = None
    """The aborted transactions that a read_committed reader drops; None for others."""
    diverging: EpochEnd | None = None
    """The follower's log and ours diverge before the requested offset: it must truncate by this."""
    preferred_read_replica: int = NO_REPLICA
    """The broker that the reader should read from instead; nothing was read here."""

    @property
    def length(self) -> int:
        return 0 if self.region is None else self.region.length


Listener = Callable[[Any], None]
"""Is called with the `Partition`."""


@dataclass(slots=True)
class PartitionSignals:
    """The listeners of all partitions.  They look at the partition and must not raise."""

    end_advanced: list[Listener] = field(default_factory=list)
    commit_advanced: list[Listener] = field(default_factory=list)
    """The high watermark rose, and with it perhaps the last stable offset."""
    start_advanced: list[Listener] = field(default_factory=list)
    """The log start of a leader rose, or that of one of its followers."""
    start_followed: list[Listener] = field(default_factory=list)
    """The log start of a follower rose: it is to be checkpointed, and the leader is told then."""
    end_stored: list[Listener] = field(default_factory=list)
    """A follower has stored all that it has: it may be fetched on from its end."""
    commit_awaited: list[Listener] = field(default_factory=list)
    """Someone begins to wait until what was appended before is committed: followers are to hear of it."""
    out_of_sync_follower_fetched: list[Listener] = field(default_factory=list)
    """A follower that is not in the ISR has fetched, and may be in sync by now."""
    log_changed: list[Listener] = field(default_factory=list)
    """Its log changed in a way that no other signal tells of: retention, a truncation, other settings."""
    state_changed: list[Listener] = field(default_factory=list)
    """It leads, follows, is stopped or failed, or its ISR is another one."""
