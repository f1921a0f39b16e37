"""A consumer of partitions that it is told: sends what the fetcher says, one request to a leader at a time.

`poll` gives what has come.  Before it opens a response, the next request is sent: the headers of the batches
say from where on.  So the brokers work while responses are decoded, and while the caller works on what `poll`
has returned.  More than one response per broker is never held, besides the one that is opened.  Of that, a
few partitions at a time are made records: all at once would be more than a processor's caches hold.

| a partition's answer        | then                                                              |
|-----------------------------|-------------------------------------------------------------------|
| records                     | its position moves on                                             |
| retriable                   | it pauses; after `call_timeout_ms` of nothing else every `poll`   |
|                             | raises, once it has tried again or its time is over               |
| out of range                | as `on_out_of_range` says: an end of the log, or `poll` raises    |
| another, or bytes unsound   | `poll` raises; the position stays                                 |

Before anything is fetched from a new leader, positions are held against its log (`positions.epochs`).  A log
that was truncated is an error without `on_out_of_range`; with it the partition goes on where the logs part.

What `poll` has to raise waits until what came beside it was given out.

Groups are not known here: nobody else decides what is read, and nothing is committed.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType, TracebackType
from typing import Any, Final, NamedTuple

from distributedlog.client.errors import error_from, is_retriable, is_stale_view
from distributedlog.client.fetcher import Arrived, Fetched, Fetcher, FetchOptions, PreparedFetch
from distributedlog.client.metadata import Cluster
from distributedlog.client.offset_specs import EARLIEST, LATEST, Isolation, OffsetSpec
from distributedlog.client.offsets import list_offsets, resolve
from distributedlog.client.positions.epochs import Truncation, truncation_of
from distributedlog.client.positions.validation import Unsure, epoch_ends
from distributedlog.client.reports import FetchMetrics
from distributedlog.client.view import ClusterView
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, LogTruncationError, OffsetOutOfRangeError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.fetch import FetchRequest, FetchResponse
from distributedlog.protocol.messages.offset_for_leader_epoch import EpochEndOffset

OPENED_RECORDS: Final = 8_000
"""The records after which a poll opens no further partition."""

_logger: Final = logging.getLogger(__name__)


class _FailingPartition(NamedTuple):
    """A partition that does not answer as it should."""

    since_ms: int
    tries: int
    again_ms: int
    overdue: DlogError | None = None
    """What it last failed with, if `poll` raises that: also where it ends before the pause."""


class Consumer:
    """A consumer without a group, used with `async with`.  `on_out_of_range` is where a partition goes on
    whose position is not in its log; None: nowhere, it is an error."""

    def __init__(
        self,
        cluster: Cluster,
        options: FetchOptions | None = None,
        *,
        on_out_of_range: OffsetSpec | None = None,
        tells_empty: bool = False,
    ) -> None:
        self.on_truncated: Callable[[TopicPartition, int], object] = lambda partition, offset: None
        """Called when a partition goes on at an earlier offset, for what was before is not in its log."""
        self.truncations = 0
        self._validations: dict[int, asyncio.Task[dict[TopicPartition, EpochEndOffset] | None]] = {}
        self._unsure: dict[int, dict[TopicPartition, Unsure]] = {}
        self._tells_empty = tells_empty
        """Whether also those are given out that only moved on: behind markers, or aborted records."""
        self._cluster = cluster
        self._fetcher = Fetcher(options)
        self._on_out_of_range = on_out_of_range
        self._fetches: dict[int, asyncio.Task[tuple[PreparedFetch, FetchResponse]]] = {}
        """The fetches in flight, by leader."""
        self._asked: dict[int, set[TopicPartition]] = {}
        self._failing: dict[TopicPartition, _FailingPartition] = {}
        self._looked_ms = 0
        """When it was last looked at whose pauses are over."""
        self._failures: dict[TopicPartition, DlogError] = {}
        """What `poll` has to raise, unless the partition is moved or dropped before."""
        self._arrived: list[Arrived] = []
        """What has come and was not opened."""
        self._ready: list[Fetched] = []
        """What was opened and was not given out: a poll that is cancelled loses nothing."""
        self.metrics = FetchMetrics()
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
        tasks: list[asyncio.Task[Any]] = [*self._fetches.values(), *self._validations.values()]
        self._fetches.clear()
        self._validations.clear()
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

    def seek(
        self,
        offsets: Mapping[TopicPartition, int],
        epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> None:
        """Sets positions as `assign` does, for whoever knows the offsets already; and the epochs of the last
        records before them, where these are known."""
        self._moved(offsets)
        self._fetcher.assign(offsets, epochs)
        self.nudge()

    def epoch_before(self, partition: TopicPartition, offset: int) -> int:
        """The leader epoch of the last record before the offset, which commits carry; -1: not known."""
        return self._fetcher.epochs.epoch_before(partition, offset)

    def _moved(self, offsets: Collection[TopicPartition]) -> None:
        self._arrived = [each for each in self._arrived if each.partition not in offsets]
        self._ready = [each for each in self._ready if each.partition not in offsets]
        for each in offsets:
            self._failures.pop(each, None)
            if each in self._failing:
                self._failing[each] = self._failing[each]._replace(overdue=None)

    def make_rows(self) -> None:
        """Records come as rows of Arrow from now on."""
        self._fetcher.makes_rows = True

    def make(self, kind: type) -> None:
        """Records come as such named tuples from now on, as `Fetcher.makes` says."""
        self._fetcher.makes = kind

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Gives out nothing of these, and fetches nothing for them, until they are resumed."""
        paused = set(partitions)
        self._fetcher.paused |= paused
        for each in self._arrived:
            if each.partition in paused:
                self._fetcher.give_back(each)
        self._arrived = [each for each in self._arrived if each.partition not in paused]

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._fetcher.paused.difference_update(partitions)
        self.nudge()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(self._fetcher.paused)

    def nudge(self) -> None:
        """Ends a poll that is under way, wherever it waits: there is something else to do."""
        self._is_nudged = True
        if self._nudge is not None and not self._nudge.done():
            self._nudge.set_result(None)

    def drop(self, partition: TopicPartition) -> None:
        self._fetcher.drop(partition)
        self._failing.pop(partition, None)
        self._nearer.pop(partition, None)
        self.metrics.ends.pop(partition, None)
        self._moved((partition,))

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The offset of the next record of each partition that `poll` gives out."""
        if not self._arrived:
            return self._fetcher.positions
        return {**self._fetcher.positions, **{each.partition: each.offset for each in self._arrived}}

    # --- reading -------------------------------------------------------------------------------

    async def poll(self, timeout_ms: int) -> list[Fetched]:
        """Returns what has come, or nothing after the timeout or a nudge.  Only what has records is in it,
        unless it `tells_empty`."""
        deadline_ms = self._cluster.clock.monotonic_ms() + timeout_ms
        self._is_nudged = False
        while True:
            await self._start_fetches()
            left_ms = deadline_ms - self._cluster.clock.monotonic_ms()
            if not self._arrived and not self._ready:
                await self._wait(max(0, left_ms))
            if self._arrived or self._ready:
                await self._start_fetches()
                await asyncio.sleep(0)  # they are sent before the loop is busy with what has come
                self._open_arrived()
                fetched, self._ready = self._ready, []
                if fetched:
                    return fetched
            if self._failures:
                failure = next(iter(self._failures.values()))
                self._failures.clear()  # what is still so is found again
                raise failure
            if self._is_nudged:
                return []
            if left_ms <= 0:
                self._raise_overdue()
                return []

    def _raise_overdue(self) -> None:
        for each in self._failing.values():
            if each.overdue is not None:
                raise each.overdue

    async def _wait(self, wait_ms: int) -> None:
        """Waits for a response, and takes what it brings."""
        if self._failures or self._is_nudged:
            return
        now_ms = self._cluster.clock.monotonic_ms()
        pausing = [each.again_ms for each in self._failing.values() if each.again_ms > self._looked_ms]
        wait_ms = min([wait_ms, *(max(0, again_ms - now_ms) for again_ms in pausing)])
        self._nudge = asyncio.get_running_loop().create_future()
        tasks = (*self._fetches.values(), *self._validations.values())
        waited: list[asyncio.Future[Any]] = [*tasks, self._nudge]
        await asyncio.wait(waited, timeout=wait_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        self._nudge = None
        for leader in [leader for leader, task in self._fetches.items() if task.done()]:
            await self._collect(leader)
        for leader in [leader for leader, task in self._validations.items() if task.done()]:
            await self._collect_validation(leader)

    async def _start_fetches(self) -> None:
        self._looked_ms = now_ms = self._cluster.clock.monotonic_ms()
        busy = set().union(*(self._asked[leader] for leader in self._fetches), *self._unsure.values())
        led: dict[int, list[TopicPartition]] = {}
        unsure: dict[int, dict[TopicPartition, Unsure]] = {}
        for partition in [each for each in self._fetcher.positions if each not in self._fetcher.paused]:
            failing = self._failing.get(partition)
            if partition in busy or (failing is not None and failing.again_ms > now_ms):
                continue
            try:
                view = await self._cluster.partition(partition)
            except DlogError as error:
                self._note_failure(partition, error)
                continue
            offset = self._fetcher.positions.get(partition)
            if offset is not None and self._fetcher.epochs.must_validate(
                partition, offset, view.leader_epoch
            ):
                epoch = self._fetcher.epochs.epoch_before(partition, offset)
                if epoch > view.leader_epoch:  # what the view knows is older than what was read
                    about = (
                        f"{partition}, read up to leader epoch {epoch}, is led in epoch {view.leader_epoch}"
                    )
                    self._note_failure(partition, error_from(ErrorCode.UNKNOWN_LEADER_EPOCH, about))
                else:
                    found = unsure.setdefault(view.leader_id, {})
                    found[partition] = Unsure(offset, epoch, view.leader_epoch)
                continue
            led.setdefault(self._node_for(partition, view.leader_id, now_ms), []).append(partition)
        for leader, asked in unsure.items():
            if leader not in self._validations:
                self._unsure[leader] = asked
                self._validations[leader] = asyncio.create_task(epoch_ends(self._cluster, leader, asked))
        for leader, wanted in led.items():
            latest = self._cluster.view
            here = [each for each in wanted if each in self._fetcher.positions]
            partitions = [each for each in here if self._is_valid_in(latest, each)]
            for partition in set(here) - set(partitions):
                self._pause(partition)
            if partitions and leader not in self._fetches:
                prepared = self._fetcher.prepare(partitions, latest)
                self._asked[leader] = set(partitions)
                self._fetches[leader] = asyncio.create_task(self._fetch(leader, prepared))

    def _is_valid_in(self, view: ClusterView, partition: TopicPartition) -> bool:
        """Whether a leader is known in whose log the position is valid: since it was looked up, the look for
        another partition may have brought another view."""
        found = view.partition(partition)
        if found is None or not found.has_leader:
            return False
        offset = self._fetcher.positions[partition]
        return not self._fetcher.epochs.must_validate(partition, offset, found.leader_epoch)

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
        begun_ms = self._cluster.clock.monotonic_ms()
        response = await connection.call(
            prepared.request, FetchResponse, timeout_ms=timeout_ms, version=version
        )
        found = (len(data.records or b"") for _, data in prepared.partitions_of(response))
        self.metrics.count(sum(found), self._cluster.clock.monotonic_ms() - begun_ms)
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
        arrived, refused = self._fetcher.take(prepared, response)
        self._arrived += (each for each in arrived if each.batches)
        is_committed = self._fetcher.options.isolation is Isolation.READ_COMMITTED
        for each in arrived:
            self._failing.pop(each.partition, None)
            end = each.last_stable_offset if is_committed else each.high_watermark
            self.metrics.ends[each.partition] = end
        self._learn(prepared, response)
        for partition, error, is_final in refused:
            if is_final:
                self._note_unsound(partition, error)
            elif self._nearer.pop(partition, None) is not None:
                self._pause(partition)  # then the leader is asked
            elif is_stale_view(error) and self._cluster.view.leader_of(partition) not in (None, leader):
                continue  # another leader is known by now
            elif isinstance(error, OffsetOutOfRangeError):
                try:
                    await self._out_of_range(partition)
                except DlogError as reason:  # not at once: positions have moved on behind what came beside it
                    self._failures[partition] = reason
            else:
                self._note_failure(partition, error)

    def _open_arrived(self) -> None:
        """Opens until there is enough to give out.  Whatever is raised, the others are opened by the next
        poll."""
        opened = 0
        while self._arrived and opened < OPENED_RECORDS:
            each = self._arrived.pop(0)
            try:
                fetched = self._fetcher.open(each)
            except DlogError as error:
                self._note_unsound(each.partition, error)
                continue
            opened += len(fetched.records) + len(fetched.placed)
            has_moved = self._tells_empty and fetched.next_offset > each.offset
            if has_moved or not fetched.is_empty:
                self._ready.append(fetched)

    def _note_unsound(self, partition: TopicPartition, error: DlogError) -> None:
        """What came cannot be read: `poll` raises, unless a replica has sent it; then the leader is asked."""
        if self._nearer.pop(partition, None) is not None:
            self._pause(partition)
        else:
            self._failures[partition] = error

    async def _collect_validation(self, leader: int) -> None:
        task, asked = self._validations.pop(leader), self._unsure.pop(leader)
        failure = task.exception()
        if failure is not None and not isinstance(failure, DlogError):
            raise failure
        ends = None if failure is not None else task.result()
        for partition, (offset, _, leader_epoch) in asked.items():
            if self._fetcher.positions.get(partition) != offset:
                continue  # it was moved or dropped meanwhile
            answer = None if ends is None else ends.get(partition)
            if isinstance(failure, DlogError):
                self._note_failure(partition, failure)
            elif ends is None:
                self._fetcher.epochs.validated(partition, leader_epoch)
            elif answer is None or answer.error_code != ErrorCode.NONE:
                code = ErrorCode.UNKNOWN_SERVER_ERROR if answer is None else answer.error_code
                self._note_failure(partition, error_from(code, f"the leader epochs of {partition}"))
            else:
                self._failing.pop(partition, None)
                truncation = truncation_of(offset, answer.leader_epoch, answer.end_offset)
                if truncation is None:
                    self._fetcher.epochs.validated(partition, leader_epoch)
                else:
                    await self._on_truncation(partition, offset, truncation, leader_epoch)

    async def _on_truncation(
        self, partition: TopicPartition, offset: int, truncation: Truncation, leader_epoch: int
    ) -> None:
        """Goes on where the logs part, or has it raised."""
        self.truncations += 1
        diverging = truncation.diverging_offset
        where = "it is not known where" if diverging is None else f"the logs part at {diverging}"
        text = f"the log of {partition} was truncated before offset {offset}, which was read: {where}"
        if self._on_out_of_range is None:
            self._failures[partition] = LogTruncationError(f"{text}; seek to where to go on")
            return
        _logger.warning("%s", text)
        if diverging is None:
            try:
                await self._out_of_range(partition)
            except DlogError as reason:
                self._failures[partition] = reason
                return
            diverging = self._fetcher.positions[partition]
        else:
            self._fetcher.assign({partition: diverging}, {partition: truncation.leader_epoch})
        self._fetcher.epochs.validated(partition, leader_epoch)
        self._moved({partition: diverging})
        self.on_truncated(partition, diverging)

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

    def _pause(self, partition: TopicPartition, error: DlogError | None = None) -> None:
        now_ms = self._cluster.clock.monotonic_ms()
        before = self._failing.get(partition, _FailingPartition(now_ms, 0, 0))
        again_ms = now_ms + self._cluster.pause_ms(before.tries + 1, error)
        self._failing[partition] = _FailingPartition(before.since_ms, before.tries + 1, again_ms)

    def _note_failure(self, partition: TopicPartition, error: DlogError) -> None:
        """It pauses, unless it has been in trouble for too long or there is no use in waiting."""
        now_ms = self._cluster.clock.monotonic_ms()
        before = self._failing.get(partition, _FailingPartition(now_ms, 0, 0))
        if is_stale_view(error):
            self._cluster.mark_stale()
        self._pause(partition, error)
        if not is_retriable(error) or now_ms - before.since_ms > self._cluster.options.call_timeout_ms:
            self._failures[partition] = error
            self._failing[partition] = self._failing[partition]._replace(overdue=error)

    async def _out_of_range(self, partition: TopicPartition) -> None:
        """Decides by what is there now where a partition goes on, or what the caller gets."""
        isolation = self._fetcher.options.isolation
        asked = self._fetcher.positions[partition]
        if self._on_out_of_range is not None:
            wanted = {partition: self._on_out_of_range}
            found = (await resolve(self._cluster, wanted, isolation))[partition]
            self._fetcher.assign({partition: found})
            if self._tells_empty:  # where it stands now, also if no record ever comes
                self._ready.append(Fetched(partition, [], found, found, found, found))
            return
        first = (await list_offsets(self._cluster, {partition: EARLIEST}))[partition].offset
        end = (await list_offsets(self._cluster, {partition: LATEST}))[partition].offset
        raise OffsetOutOfRangeError(f"{partition} has no offset {asked}: it goes from {first} to {end}")
