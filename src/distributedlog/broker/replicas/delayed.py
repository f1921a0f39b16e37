"""Requests that wait: acks=all for the high watermark, long-poll fetches for something to read.

Nothing is polled.  A partition's signal looks only at what waits for that partition; everything else is
released by its deadline.  Deadlines are kept in buckets of a few milliseconds, so that adding and releasing
cost the same however many wait, and one timer serves them all.

| operation | released by                                                              | with               |
|-----------|--------------------------------------------------------------------------|--------------------|
| a produce | the high watermark has passed each partition's offset                    | NONE               |
|           | a partition is no longer led, or failed, or has too few replicas in sync | that, for it alone |
|           | its timeout                                                              | REQUEST_TIMED_OUT  |
| a deletion| every replica in sync has deleted the records                            | NONE               |
|           | a partition is no longer led, or failed                                  | that, for it alone |
|           | its timeout                                                              | REQUEST_TIMED_OUT  |
| a fetch   | so many bytes more can be read, or a partition's role has changed        | the caller reads   |
|           | its longest wait                                                         | the caller reads   |

What was appended and is not known to be committed may be so yet: every error here leaves that open.

A follower's fetch is also released when the high watermark or the log's start rises: it must hear of that.
That is done once for all that rise in a turn of the loop (`release_soon`).  A read_committed
fetch is released early, with fewer bytes than it wanted, while a transaction is open: how many of them it may
read is not known without looking.

A follower that was just sent records pauses (`fetch_sessions`): what nobody waits for does not release its
fetch before the pause is over, unless there is much of it.  Whoever begins to wait ends the pause at once.

A fetch of a session waits for its idle partitions too, without being listed for each (`idle_partitions`): a
signal wakes them first, and has the fetch wait for that partition from then on (`await_also`).

An operation knows partitions, offsets and whom to call back, and neither requests nor a loop: a request's
place on its connection is `net.pending`'s, and some operations serve no response of their own (who asks for
an end waits for the sync first).

How many may wait is bounded, produces and fetches each by themselves: readers who wait for ever must
not keep writers from their responses.  Beyond that nobody waits: a fetch is answered at once, a produce as if
its time were over.  All of it is soft state, of the data loop.
"""

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from distributedlog.broker.replicas.idle_partitions import IdlePartition, IdlePartitions
from distributedlog.model.error_codes import ErrorCode
from distributedlog.ports.clock import Clock
from distributedlog.ports.scheduler import Scheduler
from distributedlog.replication.contract import Isolation, PartitionSignals
from distributedlog.replication.partition import Partition

BUCKET_MS: Final = 4
DELAYED_MAX: Final = 100_000
"""Operations of each kind."""
AWAITED_MAX: Final = 500_000
"""Partitions of all fetches: one of a session names them in no bytes, and yet each takes some memory."""
TIMEOUT_MS_MAX: Final = 24 * 60 * 60 * 1000
SPARE_BUCKETS: Final = 64
PAUSE_BYTES_MAX: Final = 256 * 1024
"""So much is sent to a follower whether it pauses or not."""


class AwaitedData(NamedTuple):
    """One partition of a fetch that found too little to read."""

    partition: Partition
    isolation: int = Isolation.READ_UNCOMMITTED
    is_follower: bool = False


class DelayedOperation(ABC):
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
        """The partitions that it waits for."""


Check = Callable[[Partition, int], ErrorCode | None]
"""Returns what became of a partition at an offset; None: that is not known yet."""


class DelayedProduce(DelayedOperation):
    """A produce, or a deletion of records: it waits until something holds of every partition."""

    __slots__ = ("awaited", "check", "codes", "done", "open_count", "places")

    def __init__(
        self,
        number: int,
        awaited: Sequence[tuple[Partition, int]],
        check: Check,
        done: Callable[[list[ErrorCode]], None],
    ) -> None:
        super().__init__(number)
        self.awaited = awaited
        self.check = check
        codes = self.codes = [check(partition, offset) for partition, offset in awaited]
        self.open_count = codes.count(None)
        self.done = done
        self.places: dict[Partition, list[int]] = {}
        for at, (partition, _) in enumerate(awaited):
            if codes[at] is None:
                self.places.setdefault(partition, []).append(at)

    def note_progress(self, partition: Partition) -> bool:
        """Notes what became of one partition; returns whether nothing is open any more."""
        codes = self.codes
        for at in self.places[partition]:
            if codes[at] is None:
                code = codes[at] = self.check(*self.awaited[at])
                self.open_count -= code is not None
        return self.open_count == 0

    def finish(self) -> None:
        self.done([ErrorCode.REQUEST_TIMED_OUT if code is None else code for code in self.codes])

    def expire(self) -> None:
        self.finish()

    def partitions(self) -> Sequence[Partition]:
        return list(self.places)


class DelayedFetch(DelayedOperation):
    __slots__ = ("awaited", "bytes_wanted", "done", "is_paused", "paused_until_ms", "seen")

    def __init__(
        self,
        number: int,
        awaited: Sequence[AwaitedData],
        bytes_wanted: int,
        done: Callable[[], None],
        paused_until_ms: int | None = None,
    ) -> None:
        super().__init__(number)
        self.paused_until_ms = paused_until_ms
        self.is_paused = False
        """There is something to send, and nobody waits for it."""
        self.awaited = {each.partition: each for each in awaited}
        self.seen = {each.partition: count_seen(each) for each in awaited}
        self.bytes_wanted = bytes_wanted
        self.done = done

    def note_progress(self, partition: Partition) -> bool:
        """Counts what came to this partition since it was last counted; returns whether it is enough."""
        awaited = self.awaited[partition]
        seen_bytes, seen_offset = self.seen[partition]
        now_bytes, now_offset = self.seen[partition] = count_seen(awaited)
        if now_offset > seen_offset:
            is_vague = awaited.isolation == Isolation.READ_COMMITTED and now_offset < partition.high_watermark
            self.bytes_wanted -= self.bytes_wanted if is_vague else max(1, now_bytes - seen_bytes)
        return self.bytes_wanted <= 0

    def can_pause(self, now_ms: int) -> bool:
        """Returns whether what nobody waits for may be sent later."""
        until_ms = self.paused_until_ms
        return until_ms is not None and now_ms < until_ms and self.bytes_wanted > -PAUSE_BYTES_MAX

    def expire(self) -> None:
        self.done()

    def partitions(self) -> Sequence[Partition]:
        return list(self.awaited)


def count_seen(awaited: AwaitedData) -> tuple[int, int]:
    """Returns how many bytes there have been to read so far, and up to which offset."""
    partition = awaited.partition
    if awaited.is_follower:
        return partition.appended_bytes, partition.log_end_offset
    if awaited.isolation == Isolation.READ_COMMITTED:
        return partition.committed_bytes, partition.last_stable_offset
    return partition.committed_bytes, partition.high_watermark


class Purgatory:
    def __init__(
        self,
        signals: PartitionSignals,
        *,
        clock: Clock,
        scheduler: Scheduler,
        delayed_max: int = DELAYED_MAX,
        awaited_max: int = AWAITED_MAX,
    ) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._delayed_max = delayed_max
        self._awaited_max = awaited_max
        self._last_number = 0
        self._produce_count = 0
        self._fetch_count = 0
        self._awaited_count = 0
        """Partitions of all delayed fetches."""
        self._produces: dict[Partition, dict[int, DelayedProduce]] = {}
        self._fetches: dict[Partition, dict[int, DelayedFetch]] = {}
        self._buckets: dict[int, dict[int, DelayedOperation]] = {}
        self._bucket_order: list[int] = []
        self._armed_bucket: int | None = None
        self._released_soon: dict[int, DelayedOperation] = {}
        self.idle = IdlePartitions()
        """What the fetch sessions of this broker have read to its end."""
        signals.end_advanced.append(self._end_advanced)
        signals.commit_advanced.append(self._commit_advanced)
        signals.start_advanced.append(self._start_advanced)
        signals.commit_awaited.append(self._commit_awaited)
        signals.state_changed.append(self._state_changed)
        signals.log_changed.append(self.idle.wake)

    @property
    def delayed_count(self) -> int:
        return self._produce_count + self._fetch_count

    # --- adding ---------------------------------------------------------------------------------

    def add_produce(
        self,
        awaited: Sequence[tuple[Partition, int]],
        timeout_ms: int,
        done: Callable[[list[ErrorCode]], None],
    ) -> DelayedOperation | None:
        """Calls `done` with an error code for each partition, in order, once everything below the offset of
        each is committed, or is known not to be.  Perhaps at once: nothing is delayed then."""
        for partition, offset in awaited:
            if partition.awaited_end_offset < offset:  # it was appended when nobody waited
                partition.request_sync()
        return self._add_until(Partition.check_acknowledged, awaited, timeout_ms, done)

    def add_deletion(
        self,
        awaited: Sequence[tuple[Partition, int]],
        timeout_ms: int,
        done: Callable[[list[ErrorCode]], None],
    ) -> DelayedOperation | None:
        """Calls `done` with an error code for each partition, in order, once every replica in sync has
        deleted everything below the offset of each.  Perhaps at once: nothing is delayed then."""
        return self._add_until(Partition.check_deleted, awaited, timeout_ms, done)

    def _add_until(
        self,
        check: Check,
        awaited: Sequence[tuple[Partition, int]],
        timeout_ms: int,
        done: Callable[[list[ErrorCode]], None],
    ) -> DelayedOperation | None:
        self._last_number += 1
        operation = DelayedProduce(self._last_number, awaited, check, done)
        if operation.open_count == 0 or timeout_ms <= 0 or self._produce_count >= self._delayed_max:
            operation.is_done = True
            operation.finish()
            return None
        for partition in operation.places:
            self._produces.setdefault(partition, {})[operation.number] = operation
        self._produce_count += 1
        self._add(operation, timeout_ms)
        return operation

    def add_fetch(
        self,
        awaited: Sequence[AwaitedData],
        bytes_wanted: int,
        max_wait_ms: int,
        done: Callable[[], None],
        *,
        paused_until_ms: int | None = None,
        is_paused: bool = False,
    ) -> DelayedFetch | None:
        """Calls `done` once `bytes_wanted` more than now can be read, or something else has changed that the
        reader must see, or `max_wait_ms` are over.  Perhaps at once: nothing is delayed then.

        A follower may pause until a time; with `is_paused` there is something to send already.
        """
        self._last_number += 1
        operation = DelayedFetch(self._last_number, awaited, bytes_wanted, done, paused_until_ms)
        is_due = (bytes_wanted <= 0 and not is_paused) or max_wait_ms <= 0
        if is_due or not self._has_room_for(operation):
            operation.is_done = True
            done()
            return None
        for each in awaited:
            self._fetches.setdefault(each.partition, {})[operation.number] = operation
        self._fetch_count += 1
        self._awaited_count += len(operation.awaited)
        self._add(operation, max_wait_ms)
        if is_paused:
            self._pause(operation)
        for each in awaited:
            if not each.is_follower:
                each.partition.request_sync()
        return operation

    def await_also(self, operation: DelayedOperation, awaited: AwaitedData, idle: IdlePartition) -> None:
        """Has a fetch that waits wait for one more partition, of which it has seen so much."""
        assert isinstance(operation, DelayedFetch)
        partition = awaited.partition
        if not operation.is_done and partition not in operation.awaited:
            operation.awaited[partition] = awaited
            operation.seen[partition] = idle.seen_bytes, idle.seen_offset
            self._fetches.setdefault(partition, {})[operation.number] = operation
            self._awaited_count += 1

    def _has_room_for(self, fetch: DelayedFetch) -> bool:
        if self._fetch_count >= self._delayed_max:
            return False
        return self._awaited_count + len(fetch.awaited) <= self._awaited_max

    def release(self, operation: DelayedOperation) -> None:
        """Answers it now, with what is known, unless that was done."""
        if self._remove(operation):
            operation.expire()

    def release_soon(self, operation: DelayedOperation) -> None:
        """Answers it in the next turn of the loop: together with all that happens in this one."""
        if not self._released_soon:
            self._scheduler.post(self._release_gathered)
        self._released_soon[operation.number] = operation

    def _release_gathered(self) -> None:
        gathered, self._released_soon = self._released_soon, {}
        for operation in gathered.values():
            self.release(operation)

    def cancel(self, operation: DelayedOperation) -> None:
        """Nobody waits for it any more: `done` is not called."""
        self._remove(operation)

    # --- signals -------------------------------------------------------------------------------

    def _end_advanced(self, partition: Partition) -> None:
        self.idle.wake(partition)
        waiting = self._fetches.get(partition)
        if waiting:
            followers = [each for each in waiting.values() if each.awaited[partition].is_follower]
            if len(followers) < len(waiting):  # first: followers are told that someone waits for it
                partition.request_sync()
            for operation in followers:
                self._note_appended(operation, partition)

    def _note_appended(self, operation: DelayedFetch, partition: Partition) -> None:
        if operation.is_done:
            return
        is_enough = operation.note_progress(partition)
        if not is_enough and not operation.is_paused:
            return
        if not partition.is_commit_awaited and operation.can_pause(self._clock.monotonic_ms()):
            self._pause(operation)
        else:
            self.release(operation)

    def _pause(self, operation: DelayedFetch) -> None:
        """Releases it when its pause is over, or at its deadline if that is earlier."""
        if not operation.is_paused:
            assert operation.paused_until_ms is not None
            operation.is_paused = True
            number = -(-operation.paused_until_ms // BUCKET_MS)
            if number < operation.bucket:
                self._leave_bucket(operation)
                self._enter_bucket(operation, number)

    def _commit_awaited(self, partition: Partition) -> None:
        """Somebody begins to wait for what was appended before."""
        for operation in list(self._fetches.get(partition, {}).values()):
            if operation.is_paused:
                self.release(operation)

    def _commit_advanced(self, partition: Partition) -> None:
        self.idle.wake(partition)
        produces = self._produces.get(partition)
        if produces:
            self._release_produces(list(produces.values()), partition)
        fetches = self._fetches.get(partition)
        if fetches:
            waiting = list(fetches.values())
            self._release_fetches(
                [each for each in waiting if not each.awaited[partition].is_follower], partition
            )
            self._tell_commit(waiting, partition)

    def _start_advanced(self, partition: Partition) -> None:
        """Followers hear of it: until they have deleted the records, a failover brings them back."""
        self.idle.wake(partition)
        self._release_produces(list(self._produces.get(partition, {}).values()), partition)
        self._release_followers_soon(self._fetches.get(partition, {}).values(), partition)

    def _state_changed(self, partition: Partition) -> None:
        self.idle.wake(partition)
        self._release_produces(list(self._produces.get(partition, {}).values()), partition)
        for operation in list(self._fetches.get(partition, {}).values()):
            self.release(operation)

    def _release_followers_soon(self, waiting: Iterable[DelayedFetch], partition: Partition) -> None:
        for operation in waiting:
            if operation.awaited[partition].is_follower:
                self.release_soon(operation)

    def _tell_commit(self, waiting: Iterable[DelayedFetch], partition: Partition) -> None:
        """Followers hear of a high watermark in the next turn, or after their pause."""
        now_ms = self._clock.monotonic_ms()
        for operation in waiting:
            if not operation.is_done and operation.awaited[partition].is_follower:
                if operation.can_pause(now_ms):
                    self._pause(operation)
                else:
                    self.release_soon(operation)

    def _release_produces(self, waiting: list[DelayedProduce], partition: Partition) -> None:
        for operation in waiting:
            if not operation.is_done and operation.note_progress(partition):
                self._remove(operation)
                operation.finish()

    def _release_fetches(self, waiting: list[DelayedFetch], partition: Partition) -> None:
        for operation in waiting:
            if not operation.is_done and operation.note_progress(partition):
                self.release(operation)

    # --- deadlines -----------------------------------------------------------------------------

    def _add(self, operation: DelayedOperation, timeout_ms: int) -> None:
        deadline_ms = self._clock.monotonic_ms() + min(timeout_ms, TIMEOUT_MS_MAX)
        self._enter_bucket(operation, -(-deadline_ms // BUCKET_MS))

    def _enter_bucket(self, operation: DelayedOperation, number: int) -> None:
        operation.bucket = number
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = {}
            heapq.heappush(self._bucket_order, number)
        bucket[operation.number] = operation
        self._arm_for(number)

    def _arm_for(self, number: int) -> None:
        if self._armed_bucket is None or number < self._armed_bucket:
            self._armed_bucket = number
            self._scheduler.call_at(number * BUCKET_MS, lambda: self._fire(number))

    def _fire(self, number: int) -> None:
        """The timer of a bucket.  One that was armed before an earlier bucket came is of no use any more."""
        if number != self._armed_bucket:
            return
        self._armed_bucket = None
        now_ms = self._clock.monotonic_ms()
        try:
            while self._bucket_order and self._bucket_order[0] * BUCKET_MS <= now_ms:
                self._expire_bucket(heapq.heappop(self._bucket_order))
        finally:  # one that fails must not stop the clock for the others
            if self._bucket_order:
                # Whoever was released may be delayed again, for later.
                self._arm_for(self._bucket_order[0])

    def _expire_bucket(self, number: int) -> None:
        bucket = self._buckets.get(number, {})
        try:
            for operation in list(bucket.values()):
                self.release(operation)
        except BaseException:
            if self._buckets.get(number):
                heapq.heappush(self._bucket_order, number)
            raise

    def _remove(self, operation: DelayedOperation) -> bool:
        """Takes it out of everything; False if it was out already."""
        if operation.is_done:
            return False
        operation.is_done = True
        partitions = operation.partitions()
        waiting: dict[Partition, dict[int, DelayedProduce]] | dict[Partition, dict[int, DelayedFetch]]
        if isinstance(operation, DelayedProduce):
            waiting = self._produces
            self._produce_count -= 1
        else:
            waiting = self._fetches
            self._fetch_count -= 1
            self._awaited_count -= len(partitions)
        for partition in partitions:
            on_partition = waiting.get(partition)
            if on_partition is not None:
                on_partition.pop(operation.number, None)
                if not on_partition:
                    del waiting[partition]
        self._leave_bucket(operation)
        return True

    def _leave_bucket(self, operation: DelayedOperation) -> None:
        bucket = self._buckets.get(operation.bucket)
        if bucket is None:
            return
        bucket.pop(operation.number, None)
        if not bucket:
            del self._buckets[operation.bucket]
            # Its number stays in the heap; when most are of buckets that are gone, those go too.
            if len(self._bucket_order) > 2 * len(self._buckets) + SPARE_BUCKETS:
                self._bucket_order = sorted(self._buckets)
