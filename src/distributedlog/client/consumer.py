"""A consumer of partitions that it is told: sends what the fetcher says, one request to a leader at a time.

`poll` gives what has come.  When it returns, the next requests are already under way, so that the brokers
work while the caller does; more than one response per broker is never held.

| a partition's answer        | then                                                              |
|-----------------------------|-------------------------------------------------------------------|
| records                     | its position moves on                                             |
| retriable                   | it pauses; after `call_timeout_ms` of nothing else `poll` raises  |
| out of range                | as `on_out_of_range` says: an end of the log, or `poll` raises    |
| another, or bytes unsound   | `poll` raises; the position stays                                 |

What `poll` has to raise waits until what came beside it was given out.

Groups are not known here: nobody else decides what is read, and nothing is committed.
"""

import asyncio
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, NamedTuple

from distributedlog.client.errors import is_retriable, is_stale_view
from distributedlog.client.fetcher import Fetched, Fetcher, FetchOptions, PreparedFetch
from distributedlog.client.metadata import Cluster
from distributedlog.client.offset_specs import EARLIEST, LATEST, OffsetSpec
from distributedlog.client.offsets import list_offsets, resolve
from distributedlog.model.errors import DlogError, OffsetOutOfRangeError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.fetch import FetchRequest, FetchResponse


class _FailingPartition(NamedTuple):
    """A partition that does not answer as it should."""

    since_ms: int
    tries: int
    again_ms: int


class Consumer:
    """A consumer without a group, used with `async with`.  `on_out_of_range` is None, or EARLIEST or LATEST
    of `places`."""

    def __init__(
        self,
        cluster: Cluster,
        options: FetchOptions | None = None,
        *,
        on_out_of_range: int | None = None,
        tells_empty: bool = False,
    ) -> None:
        self._tells_empty = tells_empty
        """Whether also those are given out that only moved on: behind markers, or aborted records."""
        self._cluster = cluster
        self._fetcher = Fetcher(options)
        self._on_out_of_range = on_out_of_range
        self._fetches: dict[int, asyncio.Task[tuple[PreparedFetch, FetchResponse]]] = {}
        """The fetches in flight, by leader."""
        self._asked: dict[int, set[TopicPartition]] = {}
        self._failing: dict[TopicPartition, _FailingPartition] = {}
        self._failure: DlogError | None = None
        self._ready: list[Fetched] = []
        """What has come and was not given out: a poll that is cancelled loses nothing."""
        self._nearer: dict[TopicPartition, tuple[int, int]] = {}
        """The replicas that leaders have named as nearer, and until when they are asked."""
        self._nudge: asyncio.Future[None] | None = None
        self._is_nudged = False

    async def __aenter__(self) -> "Consumer":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        self.nudge()
        tasks = list(self._fetches.values())
        self._fetches.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- what to read --------------------------------------------------------------------------

    async def assign(self, places: Mapping[TopicPartition, OffsetSpec]) -> dict[TopicPartition, int]:
        """Adds partitions, or moves them; the offsets at which they begin."""
        offsets = await resolve(self._cluster, places, self._fetcher.options.isolation)
        self._moved(offsets)
        self._fetcher.assign(offsets)
        return offsets

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Sets positions as `assign` does, for whoever knows the offsets already."""
        self._moved(offsets)
        self._fetcher.assign(offsets)
        self.nudge()

    def _moved(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._ready = [each for each in self._ready if each.partition not in offsets]

    def make_rows(self) -> None:
        """Records come as rows of Arrow from now on."""
        self._fetcher.makes_rows = True

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetches nothing for these until they are resumed."""
        self._fetcher.paused.update(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._fetcher.paused.difference_update(partitions)
        self.nudge()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(self._fetcher.paused)

    def nudge(self) -> None:
        """Ends a poll that waits: there is something else to do."""
        if self._nudge is not None and not self._nudge.done():
            self._is_nudged = True
            self._nudge.set_result(None)

    def drop(self, partition: TopicPartition) -> None:
        self._fetcher.drop(partition)
        self._failing.pop(partition, None)
        self._nearer.pop(partition, None)
        self._ready = [each for each in self._ready if each.partition != partition]

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The offset of the next record of each partition."""
        return self._fetcher.positions

    # --- reading -------------------------------------------------------------------------------

    async def poll(self, timeout_ms: int) -> list[Fetched]:
        """Returns what has come, or nothing after the timeout or a nudge.  Only what has records is in it,
        unless it `tells_empty`."""
        deadline_ms = self._cluster.clock.monotonic_ms() + timeout_ms
        while True:
            await self._start_fetches()
            left_ms = deadline_ms - self._cluster.clock.monotonic_ms()
            if not self._ready:
                await self._wait(max(0, left_ms))
            if self._ready:
                await self._start_fetches()
                fetched, self._ready = self._ready, []
                if fetched:
                    return fetched
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if left_ms <= 0 or self._is_nudged:
                self._is_nudged = False
                return []

    async def _wait(self, wait_ms: int) -> None:
        """Waits for a response, and takes what it brings."""
        if self._failure is not None:
            return
        now_ms = self._cluster.clock.monotonic_ms()
        pauses_ms = [each.again_ms - now_ms for each in self._failing.values()]
        wait_ms = min([wait_ms, *(each for each in pauses_ms if each > 0)])
        self._nudge = asyncio.get_running_loop().create_future()
        waited: list[asyncio.Future[Any]] = [*self._fetches.values(), self._nudge]
        await asyncio.wait(waited, timeout=wait_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        self._nudge = None
        for leader in [leader for leader, task in self._fetches.items() if task.done()]:
            await self._collect(leader)

    async def _start_fetches(self) -> None:
        now_ms = self._cluster.clock.monotonic_ms()
        busy = set().union(*(self._asked[leader] for leader in self._fetches))
        led: dict[int, list[TopicPartition]] = {}
        for partition in [each for each in self._fetcher.positions if each not in self._fetcher.paused]:
            failing = self._failing.get(partition)
            if partition in busy or (failing is not None and failing.again_ms > now_ms):
                continue
            try:
                view = await self._cluster.partition(partition)
            except DlogError as error:
                self._note_failure(partition, error)
                continue
            led.setdefault(self._node_for(partition, view.leader_id, now_ms), []).append(partition)
        for leader, found in led.items():
            partitions = [each for each in found if each in self._fetcher.positions]
            if partitions and leader not in self._fetches:
                prepared = self._fetcher.prepare(partitions, self._cluster.view)
                self._asked[leader] = set(partitions)
                self._fetches[leader] = asyncio.create_task(self._fetch(leader, prepared))

    def _node_for(self, partition: TopicPartition, leader: int, now_ms: int) -> int:
        """The broker to fetch from: its leader, or for a while the replica that this has named."""
        node_id, until_ms = self._nearer.get(partition, (leader, 0))
        if now_ms < until_ms and node_id in self._cluster.view.brokers:
            return node_id
        self._nearer.pop(partition, None)
        return leader

    async def _fetch(self, leader: int, prepared: PreparedFetch) -> tuple[PreparedFetch, FetchResponse]:
        connection = await self._cluster.connection(leader)
        version = connection.version_for(FetchRequest, prepared.version_max)
        timeout_ms = self._cluster.options.request_timeout_ms + self._fetcher.options.wait_ms_max
        response = await connection.call(
            prepared.request, FetchResponse, timeout_ms=timeout_ms, version=version
        )
        return prepared, response

    async def _collect(self, leader: int) -> None:
        task = self._fetches.pop(leader)
        asked = self._asked.pop(leader)
        failure = task.exception()
        if isinstance(failure, DlogError):
            for partition in asked & self._fetcher.positions.keys():
                self._nearer.pop(partition, None)
                self._note_failure(partition, failure)
            return
        prepared, response = task.result()
        fetched, refused = self._fetcher.accept(prepared, response)
        before = prepared.offsets
        self._ready += (
            each
            for each in fetched
            if each.records
            or each.rows is not None
            or (self._tells_empty and each.next_offset > before[each.partition])
        )
        for each in fetched:
            self._failing.pop(each.partition, None)
        self._learn(prepared, response)
        for partition, error, is_final in refused:
            if self._nearer.pop(partition, None) is not None:
                self._pause(partition)  # then the leader is asked
            elif is_stale_view(error) and self._cluster.view.leader_of(partition) not in (None, leader):
                continue  # another leader is known by now
            elif isinstance(error, OffsetOutOfRangeError):
                try:
                    await self._out_of_range(partition)
                except DlogError as reason:  # not at once: positions have moved on behind what came beside it
                    self._failure = reason
            elif is_final:
                self._failure = error
            else:
                self._note_failure(partition, error)

    def _learn(self, prepared: PreparedFetch, response: FetchResponse) -> None:
        """Takes over what a response says of other brokers: new leaders, and nearer replicas."""
        until_ms = self._cluster.clock.monotonic_ms() + self._cluster.options.metadata_age_ms_max
        for partition, data in prepared.partitions_of(response):
            self._cluster.learn_leader(partition, data.current_leader, response.node_endpoints)
            if data.preferred_read_replica >= 0 and partition in self._fetcher.positions:
                self._nearer[partition] = (data.preferred_read_replica, until_ms)
                if data.preferred_read_replica not in self._cluster.view.brokers:
                    # The leader would only name it again: where it is has to be asked for.
                    self._cluster.mark_stale()
                    self._pause(partition)

    def _pause(self, partition: TopicPartition) -> None:
        now_ms = self._cluster.clock.monotonic_ms()
        before = self._failing.get(partition, _FailingPartition(now_ms, 0, 0))
        again_ms = now_ms + self._cluster.pause_ms(before.tries + 1)
        self._failing[partition] = _FailingPartition(before.since_ms, before.tries + 1, again_ms)

    def _note_failure(self, partition: TopicPartition, error: DlogError) -> None:
        """It pauses, unless it has been in trouble for too long or there is no use in waiting."""
        now_ms = self._cluster.clock.monotonic_ms()
        before = self._failing.get(partition, _FailingPartition(now_ms, 0, 0))
        if not is_retriable(error) or now_ms - before.since_ms > self._cluster.options.call_timeout_ms:
            self._failure = error
            return
        if is_stale_view(error):
            self._cluster.mark_stale()
        self._pause(partition)

    async def _out_of_range(self, partition: TopicPartition) -> None:
        """Decides by what is there now where a partition goes on, or what the caller gets."""
        isolation = self._fetcher.options.isolation
        asked = self._fetcher.positions[partition]
        if self._on_out_of_range is not None:
            wanted = {partition: self._on_out_of_range}
            self._fetcher.assign(
                {
                    each: at.offset
                    for each, at in (await list_offsets(self._cluster, wanted, isolation)).items()
                }
            )
            return
        first = (await list_offsets(self._cluster, {partition: EARLIEST}))[partition].offset
        end = (await list_offsets(self._cluster, {partition: LATEST}))[partition].offset
        raise OffsetOutOfRangeError(f"{partition} has no offset {asked}: it goes from {first} to {end}")
