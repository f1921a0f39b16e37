"""A partition of `__consumer_offsets` with a copy on each simulated broker: what coordinators write to.

    leader      appends to its own copy
    followers   take what the leader of the newest epoch has, a while later
    committed   what every copy in the ISR has; a leader of an older epoch commits nothing any more
    election    somebody in the ISR leads in a new epoch; copies that differ from the new leader's are cut

A leader that was not told of its successor goes on as if nothing had happened: it takes requests, appends,
and waits for a high watermark that never rises.  A crash takes what was not committed, or a part of it.

`Copy` stands in for `replication.partition.Partition`: it has what a coordinator asks of one.
"""

from collections.abc import Callable
from typing import NamedTuple

from distributedlog.model.buffers import MutableBuffer
from distributedlog.model.config import LogConfig
from distributedlog.model.errors import NotLeaderError
from distributedlog.model.internal_topics import OFFSETS_TOPIC
from distributedlog.records.batch import read_header, stamp


class Batch(NamedTuple):
    base_offset: int
    next_offset: int
    data: bytes


class Region:
    """Bytes that were read, as a file's region would give them."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __enter__(self) -> "Region":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def read(self) -> bytes:
        return self._data


class Read(NamedTuple):
    region: Region | None


class Appended(NamedTuple):
    base_offset: int


class View(NamedTuple):
    is_under_min_isr: bool


class Copy:
    """One broker's replica; also its own `log`."""

    topic = OFFSETS_TOPIC
    partition_id = 0
    key = f"{OFFSETS_TOPIC}-0"
    log_start_offset = 0
    is_isolated = False

    def __init__(self, broker_id: int, appended: Callable[["Copy"], None]) -> None:
        self.broker_id = broker_id
        self.config = LogConfig()
        self.batches: list[Batch] = []
        self.is_leader = False
        self.leader_epoch = 0
        self.high_watermark = 0
        self.synced_offset = 0
        """A crash takes nothing below it."""
        self.view = View(is_under_min_isr=False)
        self._appended = appended

    @property
    def log(self) -> "Copy":
        return self

    @property
    def log_end_offset(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0

    def append(self, batch: MutableBuffer, *_: object) -> Appended:
        if not self.is_leader:
            raise NotLeaderError(f"{self.key} is led elsewhere")
        base_offset = self.log_end_offset
        stamp(batch, 0, base_offset, self.leader_epoch)
        self.batches.append(Batch(base_offset, read_header(batch).next_offset, bytes(batch)))
        self._appended(self)
        return Appended(base_offset)

    def read(self, offset: int, bytes_max: int) -> Read:
        found = b""
        for batch in self.batches:
            if batch.next_offset > offset and (not found or len(found) + len(batch.data) <= bytes_max):
                found += batch.data
            elif found:
                break
        return Read(Region(found) if found else None)

    def take(self, leader: "Copy") -> None:
        """Becomes what the leader has: its own batches stay as far as they are the same."""
        self.batches = list(leader.batches)
        self.synced_offset = self.log_end_offset
        self.high_watermark = max(self.high_watermark, min(leader.high_watermark, self.log_end_offset))

    def cut(self, offset: int) -> None:
        """A crash: only what is below was on the disk."""
        self.batches = [batch for batch in self.batches if batch.next_offset <= offset]
        self.synced_offset = self.log_end_offset
