"""A follower's fetches, with a leader whose answers the test writes: what is appended, truncated, retried."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any, cast

from distributedlog.broker.quotas.replication_quotas import ReplicationQuota
from distributedlog.broker.replicas.healing import CORRUPT_TAG
from distributedlog.broker.replicas.replica_fetcher import TURN_BYTES, TURN_TRUNCATIONS
from distributedlog.broker.replicas.replica_fetcher_manager import FetchLimits, ReplicaFetcherManager
from distributedlog.client.connection import Connection
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import BrokerUnreachableError, ConnectionLostError
from distributedlog.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from distributedlog.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from distributedlog.protocol.schema import Message
from distributedlog.replication.contract import OffsetSpec
from distributedlog.replication.partition import Partition
from distributedlog.storage.checkpoints import RECOVERY_POINT_FILE, decode_offsets
from tests.simulation.disk import SimDisk
from tests.unit.broker.partition_stage import ME, OTHER, ROOT, Stage, topic_id
from tests.unit.replication.support import follower_batch
from tests.unit.storage.support import batch_of, open_store, value_of, values_in

NUMBER = 7
MANY = 8
SESSION = 5
OWN_EPOCH = 40


class Leader:
    """The other end of the one connection: it keeps what was asked until the test answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[FetchRequest, asyncio.Future[FetchResponse]]] = []
        self.ranges: list[ListOffsetsRequest] = []
        self.start, self.end = 0, 0
        self.is_closed = False

    def version_for(self, request: type[Message], at_most: int | None = None) -> int:
        return request.versions[1]

    def submit(
        self, request: Message, response: type[Message], *, timeout_ms: int
    ) -> asyncio.Future[FetchResponse]:
        if self.is_closed:
            raise ConnectionLostError("it is closed")
        assert isinstance(request, FetchRequest)
        future: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()
        self.asked.append((request, future))
        return future

    async def call(
        self, request: Message, response: type[Message], *, timeout_ms: int
    ) -> ListOffsetsResponse:
        assert isinstance(request, ListOffsetsRequest)
        self.ranges.append(request)
        spec = request.topics[0].partitions[0].timestamp
        found = ListOffsetsPartitionResponse(
            partition_index=0, offset=self.start if spec == OffsetSpec.EARLIEST else self.end
        )
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[found])])

    def close(self) -> None:
        self.is_closed = True


class Follower:
    """Broker 1 follows the other one in the one partition of `t`."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.leaders: list[Leader] = []
        self.refuses = 0
        self.quota = ReplicationQuota()
        self.fetchers = ReplicaFetcherManager(
            self.stage.partitions.signals,
            node_id=ME,
            broker_epoch=lambda: OWN_EPOCH,
            connect=self._connect,
            clock=self.stage.clock,
            scheduler=self.stage.scheduler,
            limits=FetchLimits(),
            lower_checkpoints=self.stage.partitions.maintenance.lower,
            quota=self.quota,
        )
        self.stage.metadata.create("t", NUMBER, replicas=(ME, OTHER), leader=OTHER, epoch=3)
        self.stage.apply()

    async def _connect(self, broker_id: int) -> Connection:
        assert broker_id == OTHER
        if self.refuses:
            self.refuses -= 1
            raise BrokerUnreachableError("nobody listens")
        self.leaders.append(Leader())
        return cast(Connection, self.leaders[-1])

    @property
    def leader(self) -> Leader:
        return self.leaders[-1]

    @property
    def partition(self) -> Partition:
        return self.stage["t"]

    async def turn(self) -> None:
        """Lets everything happen that can without time going on."""
        for _ in range(10):
            await asyncio.sleep(0)
            self.stage.settle()

    async def advance(self, elapsed_ms: int) -> None:
        self.stage.scheduler.advance(elapsed_ms)
        await self.turn()

    async def answer(self, data: PartitionData | None = None, *, error: ErrorCode = ErrorCode.NONE) -> None:
        topics = (
            [] if data is None else [FetchableTopicResponse(topic_id=topic_id(NUMBER), partitions=[data])]
        )
        self.leader.asked[-1][1].set_result(
            FetchResponse(error_code=error, session_id=SESSION, responses=topics)
        )
        await self.turn()

    async def answer_all(self, number: int, given: list[PartitionData], *, turns: bool = True) -> None:
        """Answers for each partition of a topic; without `turns` only the first turn of the loop is made."""
        for partition_id, each in enumerate(given):
            each.partition_index = partition_id
        topics = [FetchableTopicResponse(topic_id=topic_id(number), partitions=given)]
        self.leader.asked[-1][1].set_result(FetchResponse(session_id=SESSION, responses=topics))
        await (self.turn() if turns else asyncio.sleep(0))

    def last(self) -> tuple[int, int, int]:
        """What the last request names of the partition: leader epoch, offset, and the epoch before it."""
        ((named,),) = (topic.partitions for topic in self.leader.asked[-1][0].topics)
        return named.current_leader_epoch, named.fetch_offset, named.last_fetched_epoch


def data(
    records: bytes | bytearray = b"",
    *,
    mark: int = 0,
    start: int = 0,
    error: ErrorCode = ErrorCode.NONE,
    diverging: tuple[int, int] | None = None,
) -> PartitionData:
    end = None if diverging is None else EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
    return PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=mark,
        log_start_offset=start,
        diverging_epoch=end,
        aborted_transactions=None,
        records=memoryview(records),
    )


def play(story: Callable[[Follower], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        follower = Follower()
        await follower.turn()
        await story(follower)
        follower.fetchers.close()
        await follower.turn()

    asyncio.run(run())


def test_what_comes_is_appended_and_fetched_on_from_when_it_is_stored() -> None:
    async def story(follower: Follower) -> None:
        request = follower.leader.asked[0][0]
        assert request.replica_state is not None
        assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (ME, OWN_EPOCH)
        assert follower.last() == (3, 0, -1)
        await follower.answer(data(follower_batch(0, 1, 2, leader_epoch=2), mark=1))
        assert values_in(follower.partition.log) == [value_of(1), value_of(2)]
        assert follower.partition.high_watermark == 1
        assert follower.last() == (3, 2, 2)
        await follower.answer(data(mark=2))
        assert follower.partition.high_watermark == 2
        assert follower.leader.asked[-1][0].topics == [], "nothing changed that the session does not know"

    play(story)


def test_a_diverging_log_is_truncated_and_fetched_again() -> None:
    async def story(follower: Follower) -> None:
        await follower.answer(
            data(follower_batch(0, 1, leader_epoch=1) + follower_batch(1, 2, leader_epoch=2))
        )
        await follower.answer(data(diverging=(1, 1)))
        assert values_in(follower.partition.log) == [value_of(1)]
        assert follower.last() == (3, 1, 1)
        assert follower.fetchers.counts.truncations == 1
        assert follower.fetchers.counts.truncations_below_hw == 0

    play(story)


def test_a_diverging_log_of_which_the_leader_has_deleted_the_rest_begins_anew() -> None:
    """The leader has deleted offset 0 in epoch 2, and does not know any more that ours is not its own."""

    async def story(follower: Follower) -> None:
        await follower.answer(
            data(follower_batch(0, 1, leader_epoch=0) + follower_batch(1, 2, leader_epoch=1), mark=0)
        )
        await follower.answer(data(start=1, diverging=(0, 1)))
        assert values_in(follower.partition.log) == []
        assert (follower.partition.log_start_offset, follower.partition.log_end_offset) == (1, 1)
        assert follower.last() == (3, 1, -1)
        assert follower.fetchers.counts.truncations_below_hw == 0

    play(story)


def test_many_logs_are_truncated_some_in_a_turn_with_checkpoints_lowered_once_for_all() -> None:
    """A power cut at any operation of it leaves logs that reach as far as their recovery points."""
    count = 2 * TURN_TRUNCATIONS + 1

    async def story(follower: Follower) -> None:
        stage, disk = follower.stage, follower.stage.sim
        stage.apply(stage.metadata.create("many", MANY, count, replicas=(ME, OTHER), leader=OTHER, epoch=3))
        await follower.answer()  # of the request before, which makes the session
        records = follower_batch(0, 1, leader_epoch=1) + follower_batch(1, 2, leader_epoch=2)
        await follower.answer_all(MANY, [data(records) for _ in range(count)])
        await follower.advance(61_000)
        points = f"{ROOT}/{RECOVERY_POINT_FILE}"
        assert sorted(decode_offsets(disk.files()[points], points).values()) == [0] + [2] * count
        written: list[str] = []
        forks: list[SimDisk] = []

        def note(operation: str, path: str) -> None:
            forks.append(disk.fork(0))
            if operation == "write":
                written.append(path)

        disk.on_operation = note
        await follower.answer_all(MANY, [data(diverging=(1, 1)) for _ in range(count)], turns=False)
        assert follower.fetchers.counts.truncations == TURN_TRUNCATIONS, "others have their turn"
        await follower.turn()
        assert follower.fetchers.counts.truncations == count
        assert len([path for path in written if path.startswith(points)]) == 1
        assert all(each.log_end_offset == 1 for each in stage.partitions if each.topic == "many")
        for fork in forks:
            fork.crash("drop")
            store = open_store(fork)
            assert all(report.is_sound for report in store.reports.values())
            store.abandon()

    play(story)


def test_of_what_comes_for_many_partitions_at_most_a_turns_bytes_are_appended_in_a_turn() -> None:
    async def story(follower: Follower) -> None:
        stage = follower.stage
        stage.apply(stage.metadata.create("many", MANY, 5, replicas=(ME, OTHER), leader=OTHER, epoch=3))
        await follower.answer()  # of the request before, which makes the session
        large = batch_of([bytes(TURN_BYTES * 2 // 5)])
        whole = batch_of([bytes(TURN_BYTES)])
        assert len(whole) > TURN_BYTES, "one batch is taken whatever its size"
        given = [data(each) for each in (large, large, large, whole, large)]
        counts = follower.fetchers.counts
        await follower.answer_all(MANY, given, turns=False)
        turns = [counts.appended_bytes]
        for _ in range(3):
            stage.scheduler.run_turn()
            turns.append(counts.appended_bytes - sum(turns))
        assert turns == [2 * len(large), len(large), len(whole), len(large)], "others have their turn between"

    play(story)


def test_a_follower_makes_room_on_a_full_disk_and_goes_on_when_there_is_some() -> None:
    async def story(follower: Follower) -> None:
        disk, partition = follower.stage.sim, follower.partition
        records = b"".join(bytes(follower_batch(at, at, leader_epoch=3)) for at in range(40))
        await follower.answer(data(records, mark=40))
        await follower.answer(data(mark=40, start=30))
        assert partition.log_start_offset == 30
        disk.capacity_bytes = disk.used_bytes
        await follower.answer(data(follower_batch(40, 40, leader_epoch=3), mark=40))
        assert partition.log_end_offset == 41, "segments that the leader has deleted made room"
        assert follower.last() == (3, 41, 3)
        disk.capacity_bytes = disk.used_bytes
        await follower.answer(data(follower_batch(41, 41, leader_epoch=3), mark=41))
        assert (partition.log_end_offset, partition.failure) == (41, None)
        requests = len(follower.leader.asked)
        disk.capacity_bytes *= 2
        await follower.advance(61_000)
        assert len(follower.leader.asked) > requests
        await follower.answer(data(follower_batch(41, 41, leader_epoch=3), mark=41))
        assert partition.log_end_offset == 42

    play(story)


def test_a_leader_that_begins_behind_our_end_is_followed_from_its_start() -> None:
    async def story(follower: Follower) -> None:
        follower.leader.start, follower.leader.end = 100, 120
        await follower.answer(data(error=ErrorCode.OFFSET_OUT_OF_RANGE))
        assert [request.replica_id for request in follower.leader.ranges] == [ME, ME]
        assert follower.partition.log_start_offset == 100
        assert follower.last() == (3, 100, -1)
        assert follower.fetchers.counts.restarts == 1

    play(story)


def test_what_is_behind_the_end_of_an_uncleanly_elected_leader_goes_and_is_counted() -> None:
    async def story(follower: Follower) -> None:
        batches = follower_batch(0, 1, leader_epoch=1) + follower_batch(1, 2, leader_epoch=1)
        await follower.answer(data(batches, mark=2))
        follower.leader.end = 1
        await follower.answer(data(error=ErrorCode.OFFSET_OUT_OF_RANGE))
        assert values_in(follower.partition.log) == [value_of(1)]
        assert follower.fetchers.counts.truncations_below_hw == 1

    play(story)


def test_an_error_of_the_partition_is_tried_again_after_a_while() -> None:
    async def story(follower: Follower) -> None:
        await follower.answer(data(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        assert len(follower.leader.asked) == 1
        await follower.advance(200)
        assert follower.last() == (3, 0, -1)

    play(story)


def test_an_error_of_a_later_version_is_tried_again_too() -> None:
    async def story(follower: Follower) -> None:
        unknown = data()
        unknown.error_code = 30_000
        await follower.answer(unknown)
        await follower.advance(200)
        assert follower.last() == (3, 0, -1)
        follower.leader.asked[-1][1].set_result(FetchResponse(error_code=30_000, responses=[]))
        await follower.turn()
        await follower.advance(200)
        assert len(follower.leaders) == 2
        assert follower.last() == (3, 0, -1)

    play(story)


def test_a_damaged_batch_is_not_taken_counted_and_told_to_the_leader() -> None:
    async def story(follower: Follower) -> None:
        def told() -> object:
            return follower.leader.asked[-1][0].topics[0].partitions[0].unknown_tags

        assert told() == ()
        damaged = bytearray(follower_batch(0, 1, leader_epoch=2))
        damaged[-1] ^= 1
        await follower.answer(data(damaged))
        assert follower.partition.log_end_offset == 0
        assert follower.fetchers.counts.corrupt_batches == 1
        await follower.advance(200)
        assert told() == ((CORRUPT_TAG, b""),)
        await follower.answer(data(follower_batch(0, 1, leader_epoch=2)))
        assert follower.partition.log_end_offset == 1
        assert told() == ()

    play(story)


def test_a_lost_connection_is_made_anew_and_everything_named_again() -> None:
    async def story(follower: Follower) -> None:
        await follower.answer(data(follower_batch(0, 1, leader_epoch=2)))
        follower.refuses = 1
        follower.leader.asked[-1][1].set_exception(ConnectionLostError("it is gone"))
        await follower.turn()
        await follower.advance(1_000)
        assert follower.refuses == 0
        await follower.advance(1_000)
        assert len(follower.leaders) == 2
        assert follower.leader.asked[0][0].session_id == 0
        assert follower.last() == (3, 1, 2)

    play(story)


def test_who_registered_anew_proves_it_on_another_connection() -> None:
    async def story(follower: Follower) -> None:
        await follower.answer(error=ErrorCode.STALE_BROKER_EPOCH)
        await follower.advance(1_000)
        assert len(follower.leaders) == 2
        assert follower.leaders[0].is_closed

    play(story)


def test_what_fails_as_a_whole_is_tried_again_after_a_pause_and_a_lost_session_at_once() -> None:
    async def story(follower: Follower) -> None:
        await follower.answer()
        await follower.answer(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        assert (len(follower.leaders), len(follower.leader.asked)) == (1, 3)
        await follower.answer(error=ErrorCode.UNKNOWN_SERVER_ERROR)
        asked = sum(len(each.asked) for each in follower.leaders)
        assert asked == 3, "it would fail again and again"
        await follower.advance(1_000)
        assert sum(len(each.asked) for each in follower.leaders) == 4
        assert follower.last() == (3, 0, -1)

    play(story)


def test_what_fails_again_on_each_connection_is_tried_less_and_less_often() -> None:
    async def story(follower: Follower) -> None:
        for pause_ms in (50, 100, 200):
            before = len(follower.leaders)
            await follower.answer(error=ErrorCode.UNKNOWN_SERVER_ERROR)
            await follower.advance(pause_ms - 1)
            assert len(follower.leaders) == before
            await follower.advance(1)
            assert len(follower.leaders) == before + 1
        await follower.answer()
        await follower.answer(error=ErrorCode.UNKNOWN_SERVER_ERROR)
        await follower.advance(50)
        assert len(follower.leaders) == 5, "it went well meanwhile"

    play(story)


def test_an_answer_of_an_earlier_leader_epoch_changes_nothing() -> None:
    async def story(follower: Follower) -> None:
        late = follower.leader.asked[-1][1]
        follower.stage.metadata.change(NUMBER, leader=OTHER)
        follower.stage.apply()
        await follower.turn()
        topic = FetchableTopicResponse(
            topic_id=topic_id(NUMBER), partitions=[data(follower_batch(0, 1, leader_epoch=2))]
        )
        late.set_result(FetchResponse(session_id=SESSION, responses=[topic]))
        await follower.turn()
        assert follower.partition.log_end_offset == 0
        assert follower.last() == (4, 0, -1)

    play(story)


def test_who_leads_now_fetches_no_more() -> None:
    async def story(follower: Follower) -> None:
        follower.stage.metadata.change(NUMBER, leader=ME)
        follower.stage.apply()
        await follower.turn()
        assert follower.fetchers.leaders == []
        assert follower.leader.is_closed

    play(story)


def test_a_sync_may_end_when_nothing_is_fetched_any_more() -> None:
    async def story(follower: Follower) -> None:
        partition = follower.partition
        partition.append_as_follower(
            follower_batch(0, 1, leader_epoch=3), leader_epoch=3, leader_high_watermark=0, now_ms=0
        )
        follower.fetchers.close()
        follower.stage.settle()
        assert partition.is_stored

    play(story)


def test_a_fetch_that_is_cut_off_because_nothing_is_followed_any_more_is_not_logged_as_forgotten() -> None:
    async def story(follower: Follower) -> None:
        forgotten: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, about: forgotten.append(about))
        follower.stage.metadata.change(NUMBER, leader=ME)
        follower.stage.apply()
        follower.leader.asked.pop()[1].set_exception(ConnectionLostError("it was closed"))
        await follower.turn()
        gc.collect()
        assert not forgotten

    play(story)
