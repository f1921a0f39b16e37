"""Which record may be handled now, and what may be committed.  Pure.

Records of one key wait in a lane and are handled one after the other; lanes are handled side by side, so many
at a time as `concurrency` says.

    add --> waiting in its lane --(start: it is the lane's first, and its time has come)--> under way
                                                                            --(finish)--> done

| order       | records that are handled one after the other                                  |
|-------------|-------------------------------------------------------------------------------|
| `key`       | those of one key in one partition; those without a key wait for nobody        |
| `partition` | those of one partition                                                        |

**What may be committed** of a partition is the offset behind the last record before which all are done.  So a
crash repeats what was under way, and what was done behind it; it loses nothing.

A partition that is dropped is forgotten: what is under way of it may finish, and counts for nothing, also if
the partition comes back meanwhile.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Collection, Hashable, Iterator
from typing import Literal

from distributedlog.client.faces.records import ConsumerRecord
from distributedlog.model.errors import ConfigError
from distributedlog.model.ids import TopicPartition

Order = Literal["key", "partition"]


class _Progress:
    """How far a partition is handled."""

    __slots__ = ("done", "offsets", "safe", "under_way")

    def __init__(self) -> None:
        self.offsets: deque[int] = deque()
        """What was added and has not left the front, in order."""
        self.done: set[int] = set()
        self.safe: int | None = None
        """The offset behind all that is done, once something is."""
        self.under_way = 0

    def finish(self, offset: int) -> None:
        self.done.add(offset)
        while self.offsets and self.offsets[0] in self.done:
            first = self.offsets.popleft()
            self.done.remove(first)
            self.safe = first + 1


class Ticket:
    """A record in hand."""

    __slots__ = ("_lane", "_progress", "ready_ms", "record")

    def __init__(self, record: ConsumerRecord, ready_ms: int, progress: _Progress, lane: Hashable) -> None:
        self.record = record
        self.ready_ms = ready_ms
        self._progress = progress
        self._lane = lane


class Lanes:
    def __init__(self, concurrency: int, order: Order = "key") -> None:
        if concurrency < 1:
            raise ConfigError(f"concurrency is at least 1, not {concurrency}")
        if order not in ("key", "partition"):
            raise ConfigError(f"there is no order {order!r}: key or partition")
        self._concurrency = concurrency
        self._by_key = order == "key"
        self._lanes: dict[Hashable, deque[Ticket]] = {}
        """Those that have records; the first of each is waiting or under way."""
        self._waiting: list[tuple[int, int, Hashable]] = []
        """Lanes whose first is not under way: its time, a number that keeps the order, the lane."""
        self._numbers = itertools.count()
        self._progress: dict[TopicPartition, _Progress] = {}
        self.under_way = 0

    @property
    def in_hand(self) -> int:
        """How many records wait or are under way."""
        return sum(map(len, self._lanes.values()))

    def add(self, record: ConsumerRecord, ready_ms: int = 0) -> None:
        """Takes a record that is to be handled, not before `ready_ms`; those of a partition in order."""
        place = TopicPartition(record.topic, record.partition)
        progress = self._progress.get(place)
        if progress is None:
            progress = self._progress[place] = _Progress()
        progress.offsets.append(record.offset)
        name = self._lane_of(record)
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = deque()
            heapq.heappush(self._waiting, (ready_ms, next(self._numbers), name))
        lane.append(Ticket(record, ready_ms, progress, name))

    def _lane_of(self, record: ConsumerRecord) -> Hashable:
        if not self._by_key:
            return (record.topic, record.partition)
        if record.key is None:
            return next(self._numbers)
        return (record.topic, record.partition, record.key)

    def start(self, now_ms: int) -> Iterator[Ticket]:
        """Gives those that may be handled now; each has to be finished."""
        while self._waiting and self.under_way < self._concurrency and self._waiting[0][0] <= now_ms:
            _, _, name = heapq.heappop(self._waiting)
            ticket = self._lanes[name][0]
            ticket._progress.under_way += 1
            self.under_way += 1
            yield ticket

    @property
    def next_ready_ms(self) -> int | None:
        """When the next one may be handled, if there is room for it."""
        has_room = self._waiting and self.under_way < self._concurrency
        return self._waiting[0][0] if has_room else None

    def finish(self, ticket: Ticket) -> None:
        """The record is dealt with: the next one of its lane may follow."""
        self.under_way -= 1
        ticket._progress.under_way -= 1
        ticket._progress.finish(ticket.record.offset)
        lane = self._lanes[ticket._lane]
        lane.popleft()
        if lane:
            heapq.heappush(self._waiting, (lane[0].ready_ms, next(self._numbers), ticket._lane))
        else:
            del self._lanes[ticket._lane]

    def safe_offsets(self) -> dict[TopicPartition, int]:
        """What may be committed of each partition of which something is done."""
        return {each: at.safe for each, at in self._progress.items() if at.safe is not None}

    def under_way_of(self, partitions: Collection[TopicPartition]) -> int:
        return sum(at.under_way for each, at in self._progress.items() if each in partitions)

    def unready(self, now_ms: int) -> set[TopicPartition]:
        """The partitions of which a record has to wait for its time."""
        found = set()
        for ready_ms, _, name in self._waiting:
            if ready_ms > now_ms:
                record = self._lanes[name][0].record
                found.add(TopicPartition(record.topic, record.partition))
        return found

    def retire(self, partitions: Collection[TopicPartition]) -> None:
        """Forgets what waits of these; what is under way still counts."""
        for name, lane in list(self._lanes.items()):
            record = lane[0].record
            if TopicPartition(record.topic, record.partition) in partitions:
                is_waiting = any(name == waiting for _, _, waiting in self._waiting)
                if is_waiting:
                    del self._lanes[name]
                else:
                    self._lanes[name] = deque([lane[0]])
        self._waiting = [each for each in self._waiting if each[2] in self._lanes]
        heapq.heapify(self._waiting)

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Forgets these partitions."""
        self.retire(partitions)
        for each in partitions:
            self._progress.pop(each, None)
