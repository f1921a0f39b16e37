"""Fetches from one leader: requests as `replication/fetch_planner` plans them, and what responses do to logs.

Fetches are long polls: an idle partition costs nothing, and a leader responds as soon as it has something.
Responses are applied TURN_BYTES at a time, and no more is asked for of one partition, and logs truncated
TURN_TRUNCATIONS at a time, so that a follower that has much to catch up with serves its own clients
meanwhile.  The checkpoints of all logs that a response truncates (a failover) are lowered at once, before the
first of them is.

| what the leader responds                     | what is done                                                |
|----------------------------------------------|-------------------------------------------------------------|
| records                                      | appended as they are; fetched on from when they are stored  |
| a diverging epoch                            | truncated by it (`replication/following`), fetched again;   |
|                                              | anew from the leader's start if nothing above that is left  |
| OFFSET_OUT_OF_RANGE                          | the leader is asked for its start and end: what is behind   |
|                                              | its end is truncated; if its start is behind our end, the   |
|                                              | log begins anew there                                       |
| records with a wrong checksum                | fetched again, with word of it (`healing.CORRUPT_TAG`)      |
| any other error of a partition               | tried again, later each time; a new image settles most      |
| an error of the session                      | all is asked for anew, in a new session                     |
| any other error of the whole request, as     | connected, and so proved, anew, after a pause               |
| STALE_BROKER_EPOCH                           |                                                             |

Partitions that are throttled (KIP-73, `quotas/replication_quotas`) are left out of fetches while this broker
has fetched more than it may, as long as their replica here is not in sync: it is in no ISR that this broker
knows of, and the leader had more that is committed than it, as of the last response.

What fails here fails one partition: it is tried again later, except that a failed disk takes the broker out
of use (`PartitionSet`).
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from distributedlog.broker.replicas.healing import CORRUPT_TAG
from distributedlog.client.connection import Connection
from distributedlog.client.errors import as_error_code
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    ConnectionLostError,
    CorruptBatchError,
    DlogError,
    RequestTimedOutError,
)
from distributedlog.model.ids import TopicPartition, Uuid
from distributedlog.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from distributedlog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from distributedlog.replication.contract import OffsetSpec
from distributedlog.replication.fetch_planner import FetchPlanner, FetchPosition, ReplicaKey, RequestPlan
from distributedlog.replication.following import find_truncation_offset
from distributedlog.replication.partition import Partition
from distributedlog.storage.epochs import EpochEnd

if TYPE_CHECKING:
    from distributedlog.broker.replicas.replica_fetcher_manager import ReplicaFetcherManager

logger = logging.getLogger(__name__)

TURN_BYTES: Final = 1024 * 1024
"""How much is appended in one turn of the loop, if not a single batch is larger."""
TURN_TRUNCATIONS: Final = 16
"""How many logs are truncated in one turn of the loop; they are synced beside it."""
RECONNECT_MS: Final = 50
RECONNECT_MS_MAX: Final = 1_000
COMPLAINT: Final = ((CORRUPT_TAG, b""),)
_OF_SESSIONS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
"""The errors of whole requests that a full one does not meet again."""


class _PartitionResponse(NamedTuple):
    plan: RequestPlan
    key: ReplicaKey
    data: PartitionData


class ReplicaFetcher:
    """Fetches from one leader."""

    def __init__(self, fetchers: "ReplicaFetcherManager", leader_id: int) -> None:
        self._fetchers = fetchers
        self._leader_id = leader_id
        self._core = FetchPlanner()
        self._partitions: dict[ReplicaKey, Partition] = {}
        self._responses: deque[_PartitionResponse] = deque()
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._failures = 0
        self._searching: dict[asyncio.Task[None], None] = {}
        self._corrupt: set[ReplicaKey] = set()
        """The partitions of which the leader sent what is corrupt: it is told with the next fetch."""
        self._caught_up: set[ReplicaKey] = set()
        """The partitions that had all that was committed, as of their last response."""
        self._throttled_until_ms = 0
        self._armed_ms: int | None = None
        self._is_send_posted = False
        self._is_applying = False
        self._is_closed = False

    @property
    def is_idle(self) -> bool:
        return not self._partitions

    # --- what is followed ----------------------------------------------------------------------

    def follow(self, partition: Partition) -> None:
        """Follows the partition in its present leader epoch, from what it has stored."""
        key = (partition.topic_id, partition.partition_id)
        self._partitions[key] = partition
        position = self._core.position(key)
        if position is not None and position.leader_epoch == partition.leader_epoch:
            if not self._is_throttled(key, partition):  # it has joined the ISR
                self._core.end_throttle(key)
                self._send_soon()
            return  # another ISR, or another setting: nothing that it is fetched by
        self._caught_up.discard(key)
        self._fetch_on(key, partition)

    def unfollow(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.partition_id)
        if self._partitions.get(key) is partition:
            del self._partitions[key]
            self._corrupt.discard(key)
            self._caught_up.discard(key)
            self._core.unfollow(key)
            self._send_soon()

    def note_stored(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.partition_id)
        if self._partitions.get(key) is partition:
            self._fetch_on(key, partition)

    def _fetch_on(self, key: ReplicaKey, partition: Partition) -> None:
        """Fetches on from what is stored, or waits until all is."""
        position = partition.fetch_position
        if position is None:
            if key not in self._core:
                self._core.follow(key, _unknown_position(partition))
            self._core.hold(key)
        else:
            self._core.follow(key, position)
            is_over = self._throttled_until_ms > self._fetchers.clock.monotonic_ms()
            if is_over and self._is_throttled(key, partition):
                self._core.throttle(key, self._throttled_until_ms)
        self._send_soon()

    # --- throttles -----------------------------------------------------------------------------

    def _is_throttled(self, key: ReplicaKey, partition: Partition) -> bool:
        return (
            self._fetchers.quota.is_throttled(partition.topic, partition.partition_id)
            and self._fetchers.node_id not in partition.isr
            and key not in self._caught_up
        )

    def _throttle_all(self, now_ms: int) -> None:
        """Leaves throttled partitions out while the limit is exceeded.  Once for each time that it is, and
        otherwise where one is about to be fetched again."""
        wait_ms = self._fetchers.quota.wait_ms(now_ms)
        if wait_ms and now_ms + wait_ms > self._throttled_until_ms:
            self._throttled_until_ms = now_ms + wait_ms
            for key, partition in self._partitions.items():
                if key in self._core and self._is_throttled(key, partition):
                    self._core.throttle(key, self._throttled_until_ms)

    def throttles_changed(self) -> None:
        """Another limit, or other partitions: all are looked at anew."""
        self._throttled_until_ms = 0
        for key in self._partitions:
            self._core.end_throttle(key)
        self._send_soon()

    def close(self) -> None:
        self._is_closed = True
        for task in (self._connecting, *self._searching):
            if task is not None:
                task.cancel()
        if self._connection is not None:
            self._connection.close()

    # --- requests ------------------------------------------------------------------------------

    def _send_soon(self) -> None:
        """Once for all that changes in this turn of the loop: one request instead of many."""
        if not self._is_send_posted and not self._is_closed:
            self._is_send_posted = True
            self._fetchers.scheduler.post(self._send_next)

    def _send_next(self) -> None:
        self._is_send_posted = False
        if self._is_closed:
            return
        connection = self._connection
        if connection is None:
            if self._partitions and self._connecting is None:
                self._connecting = asyncio.ensure_future(self._connect())
            return
        now_ms = self._fetchers.clock.monotonic_ms()
        self._throttle_all(now_ms)
        plan = self._core.next_request(now_ms)
        if plan is not None:
            self._send(connection, plan)
        retry_ms = self._core.next_retry_ms()
        if retry_ms is not None and (self._armed_ms is None or retry_ms < self._armed_ms):
            self._armed_ms = retry_ms
            self._fetchers.scheduler.call_at(retry_ms, self._retry)

    def _retry(self) -> None:
        self._armed_ms = None
        self._send_soon()

    def _send(self, connection: Connection, plan: RequestPlan) -> None:
        request = self._make_request(plan)
        limits = self._fetchers.limits
        try:
            future = connection.submit(request, FetchResponse, timeout_ms=limits.wait_ms + limits.timeout_ms)
        except DlogError as error:
            self._lose(connection, error)
            return
        self._fetchers.counts.fetches += 1
        future.add_done_callback(lambda done: self._on_response(connection, plan, done))

    def _make_request(self, plan: RequestPlan) -> FetchRequest:
        fetchers, limits = self._fetchers, self._fetchers.limits
        return FetchRequest(
            replica_state=ReplicaState(replica_id=fetchers.node_id, replica_epoch=fetchers.broker_epoch()),
            max_wait_ms=limits.wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.response_bytes,
            session_id=plan.session_id,
            session_epoch=plan.session_epoch,
            topics=[
                FetchTopic(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in self._group_named(plan)
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic_id, partitions=[partition])
                for topic_id, partition in plan.forgotten
            ],
        )

    def _group_named(self, plan: RequestPlan) -> Iterator[tuple[Uuid, list[FetchPartition]]]:
        by_topic: dict[Uuid, list[FetchPartition]] = {}
        for (topic_id, partition), position in plan.partitions.items():
            by_topic.setdefault(topic_id, []).append(
                FetchPartition(
                    partition=partition,
                    current_leader_epoch=position.leader_epoch,
                    fetch_offset=position.offset,
                    last_fetched_epoch=position.last_fetched_epoch,
                    log_start_offset=position.log_start_offset,
                    partition_max_bytes=min(self._fetchers.limits.partition_bytes, TURN_BYTES),
                    high_watermark=position.high_watermark,
                    unknown_tags=COMPLAINT if (topic_id, partition) in self._corrupt else (),
                )
            )
        yield from by_topic.items()

    # --- the connection ------------------------------------------------------------------------

    async def _connect(self) -> None:
        """Connects once; what fails is tried again later, if something is followed then."""
        try:
            connection = await self._fetchers.connect(self._leader_id)
        except DlogError as error:
            level = logging.WARNING if self._failures in (1, 20) else logging.DEBUG
            logger.log(level, "nothing is fetched from broker %d yet: %s", self._leader_id, error)
            self._send_later()
            return
        finally:
            self._connecting = None
        if not self._is_wanted():
            connection.close()
            return
        self._connection = connection
        self._send_soon()

    def _is_wanted(self) -> bool:
        return bool(self._partitions) and not self._is_closed

    def _send_later(self) -> None:
        """Goes on after a pause, which is longer each time."""
        pause_ms = min(RECONNECT_MS_MAX, RECONNECT_MS << min(self._failures, 8))
        self._failures += 1
        self._fetchers.scheduler.call_at(self._fetchers.clock.monotonic_ms() + pause_ms, self._send_soon)

    def _lose(self, connection: Connection, error: BaseException) -> None:
        if self._connection is not connection:
            return
        logger.info("the fetches from broker %d end: %s", self._leader_id, error)
        self._connection = None
        connection.close()
        self._core.lose_connection()
        if not self._is_closed:
            self._send_later()

    # --- responses -----------------------------------------------------------------------------

    def _on_response(
        self, connection: Connection, plan: RequestPlan, done: "asyncio.Future[FetchResponse]"
    ) -> None:
        if done.cancelled():
            return
        error = done.exception()  # asked for also when nobody waits any more, or asyncio logs it as forgotten
        if self._is_closed:
            return
        if error is not None:
            self._lose(connection, error)
            return
        response = done.result()
        code = as_error_code(response.error_code)
        if code is not ErrorCode.NONE and code not in _OF_SESSIONS:
            self._core.end_request(plan, code, 0)
            self._lose(connection, ConnectionLostError(f"broker {self._leader_id} says {code.name}"))
            return
        self._failures = 0
        if self._core.end_request(plan, code, response.session_id):
            came = [
                _PartitionResponse(plan, (topic.topic_id, data.partition_index), data)
                for topic in response.responses
                for data in topic.partitions
            ]
            self._responses += came
            self._lower_checkpoints(came)
        if not self._is_applying:
            self._apply_some()

    def _lower_checkpoints(self, came: list[_PartitionResponse]) -> None:
        """Lowers the checkpoints of all logs that this response has truncated, in one write.  What cannot be
        lowered here is lowered before the log is cut, or it is not cut."""
        ends: dict[TopicPartition, int] = {}
        with contextlib.suppress(DlogError):
            for response in came:
                partition, diverging = self._partitions.get(response.key), response.data.diverging_epoch
                if partition is None or diverging is None:
                    continue
                end = EpochEnd(diverging.epoch, diverging.end_offset)
                target, _ = find_truncation_offset(partition.log, end)
                if target < partition.log.end_offset:
                    ends[partition.key] = partition.log.find_truncated_end(target)
            if len(ends) > 1:
                self._fetchers.lower_checkpoints(ends)

    def _apply_some(self) -> None:
        """Applies responses, some of them in this turn of the loop."""
        if self._is_closed:
            return
        size = 0
        try:
            while self._responses:
                response = self._responses[0]
                partition = self._partitions.get(response.key)
                is_current = self._core.is_response_current(response.plan, response.key)
                weight = _weigh(response.data) if partition is not None and is_current else 0
                if size and size + weight > TURN_BYTES:
                    break
                del self._responses[0]
                size += weight
                if partition is not None and is_current:
                    self._apply(response, partition)
        finally:  # a defect that shows in one partition must not end the fetches of all
            self._is_applying = bool(self._responses)
            if self._responses:
                self._fetchers.scheduler.post(self._apply_some)
            self._send_soon()

    def _apply(self, response: _PartitionResponse, partition: Partition) -> None:
        key, data = response.key, response.data
        try:
            code = as_error_code(data.error_code)
            if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._core.hold(key)
                self._search_range(key, partition)
            elif code is not ErrorCode.NONE:
                logger.debug("%s cannot be fetched: %s", partition.key, code.name)
                self._core.delay(key, self._fetchers.clock.monotonic_ms())
            elif data.diverging_epoch is not None:
                end = EpochEnd(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
                self._truncate(partition, end)
                self._drop_deleted(partition, data.log_start_offset)
                self._fetch_on(key, partition)
            else:
                self._append(key, partition, data)
        except DlogError as error:
            if isinstance(error, CorruptBatchError):
                self._fetchers.counts.corrupt_batches += 1
                self._corrupt.add(key)
            logger.warning("what was fetched of %s cannot be taken: %s", partition.key, error)
            self._fetch_later(key, partition)

    def _append(self, key: ReplicaKey, partition: Partition, data: PartitionData) -> None:
        position = self._core.position(key)
        assert position is not None
        now_ms = self._fetchers.clock.wall_ms()
        records, start_before = data.records, partition.log_start_offset
        if records:
            if self._is_throttled(key, partition):
                self._fetchers.quota.record(len(records), self._fetchers.clock.monotonic_ms())
            partition.append_as_follower(
                records,  # type: ignore[arg-type]  # a view of the frame it came in
                leader_epoch=position.leader_epoch,
                leader_high_watermark=data.high_watermark,
                leader_log_start=data.log_start_offset,
                now_ms=now_ms,
            )
            self._fetchers.counts.appended_bytes += len(records)
            self._corrupt.discard(key)
        else:
            partition.follow_watermarks(data.high_watermark, data.log_start_offset, now_ms)
        if partition.log_end_offset >= data.high_watermark:
            self._caught_up.add(key)
        else:
            self._caught_up.discard(key)
        if records or partition.log_start_offset > start_before:
            self._fetch_on(key, partition)
        else:
            self._core.succeed((key,))

    def _truncate(self, partition: Partition, leader_end: EpochEnd) -> None:
        end_before, before = partition.log_end_offset, partition.high_watermark
        partition.truncate_by_epoch(
            leader_end, leader_epoch=partition.leader_epoch, now_ms=self._fetchers.clock.wall_ms()
        )
        self._count_truncation(partition, end_before, before)

    def _drop_deleted(self, partition: Partition, leader_start: int) -> None:
        """Begins anew where a truncation has left nothing that the leader still has.  Of which epochs its
        deleted records were a leader does not know: what is left here may be of others."""
        if partition.log_start_offset < partition.log_end_offset <= leader_start:
            now_ms = self._fetchers.clock.wall_ms()
            partition.restart_at(leader_start, leader_epoch=partition.leader_epoch, now_ms=now_ms)

    def _count_truncation(self, partition: Partition, end_before: int, high_watermark_before: int) -> None:
        counts = self._fetchers.counts
        if partition.log_end_offset < end_before:
            counts.truncations += 1
            logger.info("%s is truncated from %d to %d", partition.key, end_before, partition.log_end_offset)
        if partition.log_end_offset < high_watermark_before:
            counts.truncations_below_hw += 1
            logger.error(
                "%s is truncated to %d although %d was committed: the leader was elected uncleanly",
                partition.key,
                partition.log_end_offset,
                high_watermark_before,
            )

    # --- a leader whose log is elsewhere -------------------------------------------------------

    def _search_range(self, key: ReplicaKey, partition: Partition) -> None:
        task = asyncio.ensure_future(self._follow_range(key, partition, partition.leader_epoch))
        self._searching[task] = None
        task.add_done_callback(self._searching.pop)

    async def _follow_range(self, key: ReplicaKey, partition: Partition, leader_epoch: int) -> None:
        """Goes where the leader's log is."""
        try:
            start = await self._list_offset(partition, leader_epoch, OffsetSpec.EARLIEST)
            end = await self._list_offset(partition, leader_epoch, OffsetSpec.LATEST)
        except DlogError as error:
            logger.debug("where the leader has %s is not known: %s", partition.key, error)
            self._fetch_later(key, partition)
            return
        if self._partitions.get(key) is not partition or partition.leader_epoch != leader_epoch:
            return
        now_ms, end_before = self._fetchers.clock.wall_ms(), partition.log_end_offset
        high_watermark_before = partition.high_watermark
        try:
            if end < end_before:
                partition.truncate_to(end, leader_epoch=leader_epoch, now_ms=now_ms)
                self._count_truncation(partition, end_before, high_watermark_before)
            elif start > end_before:
                partition.restart_at(start, leader_epoch=leader_epoch, now_ms=now_ms)
                self._fetchers.counts.restarts += 1
                logger.warning("%s begins anew at %d, where its leader's log does", partition.key, start)
            else:
                self._fetch_later(key, partition)
                return
        except DlogError as error:
            logger.warning("%s cannot follow its leader's log: %s", partition.key, error)
            self._fetch_later(key, partition)
            return
        self._fetch_on(key, partition)

    def _fetch_later(self, key: ReplicaKey, partition: Partition) -> None:
        """Fetches on from what is stored, after a while, if the partition is still followed."""
        if self._partitions.get(key) is partition:
            self._fetch_on(key, partition)
            if partition.fetch_position is not None:
                self._core.delay(key, self._fetchers.clock.monotonic_ms())

    async def _list_offset(self, partition: Partition, leader_epoch: int, spec: OffsetSpec) -> int:
        connection = self._connection
        if connection is None:
            raise ConnectionLostError(f"there is no connection to broker {self._leader_id}")
        asked = ListOffsetsPartition(
            partition_index=partition.partition_id, current_leader_epoch=leader_epoch, timestamp=spec
        )
        request = ListOffsetsRequest(
            replica_id=self._fetchers.node_id,
            topics=[ListOffsetsTopic(name=partition.topic, partitions=[asked])],
        )
        response = await connection.call(
            request, ListOffsetsResponse, timeout_ms=self._fetchers.limits.timeout_ms
        )
        found = response.topics[0].partitions[0]
        if found.error_code:
            raise RequestTimedOutError(f"the leader says {as_error_code(found.error_code).name}")
        return found.offset


def _weigh(data: PartitionData) -> int:
    """Returns how much of a turn the response takes."""
    if data.diverging_epoch is not None:
        return TURN_BYTES // TURN_TRUNCATIONS
    return len(data.records or b"")


def _unknown_position(partition: Partition) -> FetchPosition:
    """Makes the position of a partition that is not fetched before it has stored what it has."""
    return FetchPosition(partition.leader_epoch, partition.log_end_offset, -1, partition.log_start_offset, -1)
