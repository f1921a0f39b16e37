"""Requests that wait: acks=all for the high watermark, long-poll fetches for something to read.

Nothing is polled.  A partition's signal looks only at what is parked on that partition; everything else is
released by its deadline.  Deadlines are kept in buckets of a few milliseconds, so that parking and releasing
cost the same however many are parked, and one timer serves them all.

| parked    | released by                                                              | with               |
|-----------|--------------------------------------------------------------------------|--------------------|
| a produce | the high watermark has passed each partition's offset                    | NONE               |
|           | a partition is no longer led, or failed, or has too few replicas in sync | that, for it alone |
|           | its timeout                                                              | REQUEST_TIMED_OUT  |
| a fetch   | so many bytes more can be read, or a partition's role has changed        | the caller reads   |
|           | its longest wait                                                         | the caller reads   |

What was appended and is not known to be committed may be so yet: every error here leaves that open.

A follower's fetch is also released when the high watermark rises: it must hear of that.  A read_committed
fetch is released early, with fewer bytes than it wanted, while a transaction is open: how many of them it may
read is not known without looking.

How many may be parked is bounded, produces and fetches each by themselves: readers who wait for ever must not
keep writers from being told.  Beyond that nobody waits: a fetch is answered at once, a produce as if its time
were over.  All of it is soft state, of the data loop.
"""

import asyncio
import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from distributedlog.broker.raft_driver import Scheduler
from distributedlog.model.error_codes import ErrorCode
from distributedlog.ports.clock import Clock
from distributedlog.replication.contract import Isolation, PartitionSignals
from distributedlog.replication.partition import Partition

BUCKET_MS: Final = 4
PARKED_MAX: Final = 100_000
"""Of each kind."""
AWAITED_MAX: Final = 500_000
"""Partitions of all fetches: one of a session names them in no bytes, and yet each takes some memory."""
TIMEOUT_MS_MAX: Final = 24 * 60 * 60 * 1000
SPARE_BUCKETS: Final = 64


class AwaitedData(NamedTuple):
    """One partition of a fetch that found too little to read."""

    partition: Partition
    isolation: int = Isolation.READ_UNCOMMITTED
    is_follower: bool = False


class Parked(ABC):
    """A request that waits."""

    __slots__ = ("bucket", "is_done", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.bucket = 0
        self.is_done = False

    @abstractmethod
    def expire(self) -> None:
        """It waits no longer: it is answered with what is known."""

    @abstractmethod
    def partitions(self) -> Sequence[Partition]:
        """On which it is parked."""


class ParkedProduce(Parked):
    __slots__ = ("awaited", "codes", "done", "open_count", "places")

    def __init__(
        self,
        number: int,
        awaited: Sequence[tuple[Partition, int]],
        codes: list[ErrorCode | None],
        done: Callable[[list[ErrorCode]], None],
    ) -> None:
        super().__init__(number)
        self.awaited = awaited
        self.codes = codes
        self.open_count = codes.count(None)
        self.done = done
        self.places: dict[Partition, list[int]] = {}
        for at, (partition, _) in enumerate(awaited):
            if codes[at] is None:
                self.places.setdefault(partition, []).append(at)

    def look_at(self, partition: Partition) -> bool:
        """Takes note of what became of one partition; whether nothing is open any more."""
        codes = self.codes
        for at in self.places[partition]:
            if codes[at] is None:
                code = codes[at] = partition.acknowledged(self.awaited[at][1])
                self.open_count -= code is not None
        return self.open_count == 0

    def finish(self) -> None:
        self.done([ErrorCode.REQUEST_TIMED_OUT if code is None else code for code in self.codes])

    def expire(self) -> None:
        self.finish()

    def partitions(self) -> Sequence[Partition]:
        return list(self.places)


class ParkedFetch(Parked):
    __slots__ = ("awaited", "bytes_wanted", "done", "seen")

    def __init__(
        self, number: int, awaited: Sequence[AwaitedData], bytes_wanted: int, done: Callable[[], None]
    ) -> None:
        super().__init__(number)
        self.awaited = {each.partition: each for each in awaited}
        self.seen = {each.partition: _seen(each) for each in awaited}
        self.bytes_wanted = bytes_wanted
        self.done = done

    def look_at(self, partition: Partition) -> bool:
        """Counts what came since the last look at this partition; whether it is enough."""
        awaited = self.awaited[partition]
        seen_bytes, seen_offset = self.seen[partition]
        now_bytes, now_offset = self.seen[partition] = _seen(awaited)
        if now_offset > seen_offset:
            is_vague = awaited.isolation == Isolation.READ_COMMITTED and now_offset < partition.high_watermark
            self.bytes_wanted -= self.bytes_wanted if is_vague else max(1, now_bytes - seen_bytes)
        return self.bytes_wanted <= 0

    def expire(self) -> None:
        self.done()

    def partitions(self) -> Sequence[Partition]:
        return list(self.awaited)


def _seen(awaited: AwaitedData) -> tuple[int, int]:
    """How many bytes there have been to read so far, and up to which offset."""
    partition = awaited.partition
    if awaited.is_follower:
        return partition.appended_bytes, partition.log_end_offset
    if awaited.isolation == Isolation.READ_COMMITTED:
        return partition.committed_bytes, partition.last_stable_offset
    return partition.committed_bytes, partition.high_watermark


class Delayed:
    def __init__(
        self,
        signals: PartitionSignals,
        *,
        clock: Clock,
        scheduler: Scheduler,
        parked_max: int = PARKED_MAX,
        awaited_max: int = AWAITED_MAX,
    ) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._parked_max = parked_max
        self._awaited_max = awaited_max
        self._last_number = 0
        self._produce_count = 0
        self._fetch_count = 0
        self._awaited_count = 0
        """Partitions of all parked fetches."""
        self._produces: dict[Partition, dict[int, ParkedProduce]] = {}
        self._fetches: dict[Partition, dict[int, ParkedFetch]] = {}
        self._buckets: dict[int, dict[int, Parked]] = {}
        self._bucket_order: list[int] = []
        self._armed_bucket: int | None = None
        signals.end_advanced.append(self._end_advanced)
        signals.commit_advanced.append(self._commit_advanced)
        signals.state_changed.append(self._state_changed)

    @property
    def parked_count(self) -> int:
        return self._produce_count + self._fetch_count

    # --- parking -------------------------------------------------------------------------------

    def produce(
        self,
        awaited: Sequence[tuple[Partition, int]],
        timeout_ms: int,
        done: Callable[[list[ErrorCode]], None],
    ) -> Parked | None:
        """Calls `done` with an error code for each partition, in order, once everything below the offset of
        each is committed, or is known not to be.  Perhaps at once: nothing is parked then."""
        codes = [partition.acknowledged(end_offset) for partition, end_offset in awaited]
        self._last_number += 1
        parked = ParkedProduce(self._last_number, awaited, codes, done)
        if parked.open_count == 0 or timeout_ms <= 0 or self._produce_count >= self._parked_max:
            parked.is_done = True
            parked.finish()
            return None
        for partition in parked.places:
            self._produces.setdefault(partition, {})[parked.number] = parked
        self._produce_count += 1
        self._park(parked, timeout_ms)
        return parked

    def fetch(
        self,
        awaited: Sequence[AwaitedData],
        bytes_wanted: int,
        max_wait_ms: int,
        done: Callable[[], None],
    ) -> Parked | None:
        """Calls `done` once `bytes_wanted` more than now can be read, or something else has changed that the
        reader must see, or `max_wait_ms` are over.  Perhaps at once: nothing is parked then."""
        self._last_number += 1
        parked = ParkedFetch(self._last_number, awaited, bytes_wanted, done)
        if bytes_wanted <= 0 or max_wait_ms <= 0 or not self._has_room_for(parked):
            parked.is_done = True
            done()
            return None
        for each in awaited:
            self._fetches.setdefault(each.partition, {})[parked.number] = parked
        self._fetch_count += 1
        self._awaited_count += len(parked.awaited)
        self._park(parked, max_wait_ms)
        for each in awaited:
            each.partition.hurry()
        return parked

    def _has_room_for(self, fetch: ParkedFetch) -> bool:
        if self._fetch_count >= self._parked_max:
            return False
        return self._awaited_count + len(fetch.awaited) <= self._awaited_max

    def cancel(self, parked: Parked) -> None:
        """Nobody waits for it any more: `done` is not called."""
        self._unpark(parked)

    def produced(
        self, awaited: Sequence[tuple[Partition, int]], timeout_ms: int
    ) -> "asyncio.Future[list[ErrorCode]]":
        """As `produce`, for who runs on an asyncio loop."""
        future: asyncio.Future[list[ErrorCode]] = asyncio.get_running_loop().create_future()

        def done(codes: list[ErrorCode]) -> None:
            if not future.done():
                future.set_result(codes)

        self.produce(awaited, timeout_ms, done)
        return future

    def fetchable(
        self, awaited: Sequence[AwaitedData], bytes_wanted: int, max_wait_ms: int
    ) -> "asyncio.Future[None]":
        """As `fetch`, for who runs on an asyncio loop."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done() -> None:
            if not future.done():
                future.set_result(None)

        self.fetch(awaited, bytes_wanted, max_wait_ms, done)
        return future

    # --- signals -------------------------------------------------------------------------------

    def _end_advanced(self, partition: Partition) -> None:
        waiting = self._fetches.get(partition)
        if waiting:
            followers = [each for each in waiting.values() if each.awaited[partition].is_follower]
            self._release_fetches(followers, partition)
            partition.hurry()

    def _commit_advanced(self, partition: Partition) -> None:
        produces = self._produces.get(partition)
        if produces:
            self._release_produces(list(produces.values()), partition)
        fetches = self._fetches.get(partition)
        if fetches:
            waiting = list(fetches.values())
            self._release_fetches(
                [each for each in waiting if not each.awaited[partition].is_follower], partition
            )
            for each in waiting:
                if each.awaited[partition].is_follower:
                    self._release(each)

    def _state_changed(self, partition: Partition) -> None:
        self._release_produces(list(self._produces.get(partition, {}).values()), partition)
        for parked in list(self._fetches.get(partition, {}).values()):
            self._release(parked)

    def _release_produces(self, waiting: list[ParkedProduce], partition: Partition) -> None:
        for parked in waiting:
            if not parked.is_done and parked.look_at(partition):
                self._unpark(parked)
                parked.finish()

    def _release_fetches(self, waiting: list[ParkedFetch], partition: Partition) -> None:
        for parked in waiting:
            if not parked.is_done and parked.look_at(partition):
                self._release(parked)

    def _release(self, parked: Parked) -> None:
        if self._unpark(parked):
            parked.expire()

    # --- deadlines -----------------------------------------------------------------------------

    def _park(self, parked: Parked, timeout_ms: int) -> None:
        deadline_ms = self._clock.monotonic_ms() + min(timeout_ms, TIMEOUT_MS_MAX)
        number = parked.bucket = -(-deadline_ms // BUCKET_MS)
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = {}
            heapq.heappush(self._bucket_order, number)
        bucket[parked.number] = parked
        self._arm_for(number)

    def _arm_for(self, number: int) -> None:
        if self._armed_bucket is None or number < self._armed_bucket:
            self._armed_bucket = number
            self._scheduler.call_at(number * BUCKET_MS, lambda: self._ring(number))

    def _ring(self, number: int) -> None:
        """The timer of a bucket.  One that was armed before an earlier bucket came is of no use any more."""
        if number != self._armed_bucket:
            return
        self._armed_bucket = None
        now_ms = self._clock.monotonic_ms()
        try:
            while self._bucket_order and self._bucket_order[0] * BUCKET_MS <= now_ms:
                self._empty(heapq.heappop(self._bucket_order))
        finally:  # one that fails must not stop the clock for the others
            if self._bucket_order:
                self._arm_for(self._bucket_order[0])  # whoever was released may have parked again, for later

    def _empty(self, number: int) -> None:
        bucket = self._buckets.get(number, {})
        try:
            for parked in list(bucket.values()):
                self._release(parked)
        except BaseException:
            if self._buckets.get(number):
                heapq.heappush(self._bucket_order, number)
            raise

    def _unpark(self, parked: Parked) -> bool:
        """Takes it out of everything; False if it was out already."""
        if parked.is_done:
            return False
        parked.is_done = True
        partitions = parked.partitions()
        waiting: dict[Partition, dict[int, ParkedProduce]] | dict[Partition, dict[int, ParkedFetch]]
        if isinstance(parked, ParkedProduce):
            waiting = self._produces
            self._produce_count -= 1
        else:
            waiting = self._fetches
            self._fetch_count -= 1
            self._awaited_count -= len(partitions)
        for partition in partitions:
            on_partition = waiting.get(partition)
            if on_partition is not None:
                on_partition.pop(parked.number, None)
                if not on_partition:
                    del waiting[partition]
        self._leave_bucket(parked)
        return True

    def _leave_bucket(self, parked: Parked) -> None:
        bucket = self._buckets.get(parked.bucket)
        if bucket is None:
            return
        bucket.pop(parked.number, None)
        if not bucket:
            del self._buckets[parked.bucket]
            # Its number stays in the heap; when most are of buckets that are gone, those go too.
            if len(self._bucket_order) > 2 * len(self._buckets) + SPARE_BUCKETS:
                self._bucket_order = sorted(self._buckets)
