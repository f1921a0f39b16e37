"""A coordinator that is killed while somebody joins, waits for an assignment, or commits.

Spoken by hand, so that the kill comes exactly where it is meant: the request is on its way or waits at the
barrier, and its answer has not come.  Afterwards a position is what was acknowledged, or later; the answer
may be COORDINATOR_LOAD_IN_PROGRESS for a while, and is never that there is none.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from distributedlog.client.admin.admin import Admin, NewTopic
from distributedlog.client.connection import Connection, connect
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from distributedlog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from distributedlog.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from distributedlog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from distributedlog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from distributedlog.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.ports import free_port
from tests.system.server_process import ServerProcess

T = TypeVar("T")

GROUP, TOPIC, PARTITIONS = "workers", "orders", 50
NAMED_VERSION, JOIN_VERSION = 9, 3
TIMEOUT_MS = 30_000
TIMEOUT_SECONDS = 60.0
METADATA = "m" * 4_000
"""Makes the log so large that it takes a while to read it back."""
TRY_AGAIN = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class Node:
    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self._node = ServerProcess(
            directory / "node",
            {
                "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
                "offsets.topic.num.partitions": 1,
                "group.initial.rebalance.delay.ms": 0,
                "controller.quorum.election.timeout.ms": 400,
            },
        )

    async def __aenter__(self) -> "Node":
        self._node.__enter__()
        async with Admin.connect(f"127.0.0.1:{self.port}") as admin:
            await admin.create_topic(NewTopic(TOPIC, PARTITIONS, 1))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._node.__exit__(None, None, None)

    def kill(self) -> None:
        assert self._node.stop(signal.SIGKILL) == -signal.SIGKILL

    def start(self) -> None:
        self._node.start()

    async def restart(self) -> None:
        self.kill()
        self._node.start()
        await asyncio.to_thread(self._node.wait_until_ready)

    async def connection(self) -> Connection:
        """Connects as soon as it listens, and once the topic of the groups is there."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                try:
                    connection = await connect(
                        "127.0.0.1", self.port, client_id="by hand", timeout_ms=TIMEOUT_MS
                    )
                    found = await connection.call(
                        FindCoordinatorRequest(coordinator_keys=[GROUP]),
                        FindCoordinatorResponse,
                        timeout_ms=TIMEOUT_MS,
                    )
                    if found.coordinators[0].error_code == ErrorCode.NONE:
                        return connection
                    connection.close()
                except DlogError:
                    await asyncio.sleep(0.005)


# --- what a member says ------------------------------------------------------------------------


def join(member_id: str = "") -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    return JoinGroupRequest(
        group_id=GROUP, session_timeout_ms=10_000, rebalance_timeout_ms=30_000, member_id=member_id,
        protocol_type="consumer", protocols=protocols,
    )  # fmt: skip


async def joined(connection: Connection, member_id: str = "") -> JoinGroupResponse:
    """Joins in a version that is taken at once."""
    return await connection.call(
        join(member_id), JoinGroupResponse, timeout_ms=TIMEOUT_MS, version=JOIN_VERSION
    )


def sync(member_id: str, generation: int, *assigned: tuple[str, bytes]) -> SyncGroupRequest:
    given = [SyncGroupRequestAssignment(member_id=each, assignment=data) for each, data in assigned]
    return SyncGroupRequest(
        group_id=GROUP, generation_id=generation, member_id=member_id, protocol_type="consumer",
        protocol_name="range", assignments=given,
    )  # fmt: skip


async def beats(connection: Connection, member_id: str, generation: int) -> ErrorCode:
    request = HeartbeatRequest(group_id=GROUP, generation_id=generation, member_id=member_id)
    answer = await patiently(
        lambda: connection.call(request, HeartbeatResponse, timeout_ms=TIMEOUT_MS),
        lambda response: response.error_code,
    )
    return ErrorCode(answer.error_code)


def commit(offset: int, member_id: str = "", generation: int = -1) -> OffsetCommitRequest:
    places = [
        OffsetCommitRequestPartition(partition_index=at, committed_offset=offset, committed_metadata=METADATA)
        for at in range(PARTITIONS)
    ]
    return OffsetCommitRequest(
        group_id=GROUP, generation_id_or_member_epoch=generation, member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=places)],
    )  # fmt: skip


async def committed(connection: Connection, request: OffsetCommitRequest) -> set[int]:
    answer = await connection.call(
        request, OffsetCommitResponse, timeout_ms=TIMEOUT_MS, version=NAMED_VERSION
    )
    return {each.error_code for topic in answer.topics for each in topic.partitions}


async def patiently(ask: Callable[[], Awaitable[T]], code: Callable[[T], int]) -> T:
    """The first answer that is not a request to try again."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while code(answer := await ask()) in TRY_AGAIN:
            await asyncio.sleep(0.005)
        return answer


async def positions(connection: Connection) -> tuple[set[int], set[ErrorCode]]:
    """Where the group stands, and what was answered before that."""
    wanted = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(range(PARTITIONS)))
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=[wanted])])
    refused: set[ErrorCode] = set()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            answer = await connection.call(
                request, OffsetFetchResponse, timeout_ms=TIMEOUT_MS, version=NAMED_VERSION
            )
            (group,) = answer.groups
            if group.error_code == ErrorCode.NONE:
                places = [each for topic in group.topics for each in topic.partitions]
                assert len(places) == PARTITIONS
                return {each.committed_offset for each in places}, refused
            refused.add(ErrorCode(group.error_code))


# --- the kills ---------------------------------------------------------------------------------


@pytest.mark.timeout(120)
def test_a_coordinator_killed_while_commits_are_under_way_has_every_one_it_acknowledged(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with Node(tmp_path) as node:
            connection = await node.connection()
            assert await patiently_committed(connection, 0) == {ErrorCode.NONE}
            acknowledged = 0
            refused: set[ErrorCode] = set()
            for life in range(3):
                first = acknowledged + 1
                asked = [
                    asyncio.ensure_future(committed(connection, commit(offset)))
                    for offset in range(first, first + 40)
                ]
                await asked[10 + life * 7]
                node.kill()  # what stands behind it is on its way, written, or synced
                outcomes = await asyncio.gather(*asked, return_exceptions=True)
                done = [first + at for at, each in enumerate(outcomes) if each == {ErrorCode.NONE}]
                acknowledged = max(done)
                node.start()
                connection = await node.connection()
                stands, before = await positions(connection)
                refused |= before
                assert len(stands) == 1, f"a commit is there as a whole, or not at all: {stands}"
                assert acknowledged <= min(stands) < first + 40, (acknowledged, stands)
                acknowledged = min(stands)
            assert refused <= set(TRY_AGAIN)
            assert ErrorCode.COORDINATOR_LOAD_IN_PROGRESS in refused, "the log was not large enough"

    asyncio.run(story())


async def patiently_committed(connection: Connection, offset: int) -> set[int]:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while (codes := await committed(connection, commit(offset))) & set(TRY_AGAIN):
            await asyncio.sleep(0.01)
        return codes


@pytest.mark.timeout(120)
def test_a_coordinator_killed_at_the_barrier_goes_on_with_the_generation_before(tmp_path: Path) -> None:
    """First while somebody waits to join; then while one waits for what the leader has not assigned."""

    async def story() -> None:
        async with Node(tmp_path) as node:
            connection, other = await node.connection(), await node.connection()
            assert await patiently_committed(connection, 5) == {ErrorCode.NONE}
            alone = await patiently(lambda: joined(connection), lambda answer: answer.error_code)
            a = alone.member_id
            synced = await connection.call(sync(a, 1, (a, b"all")), SyncGroupResponse, timeout_ms=TIMEOUT_MS)
            assert (synced.error_code, bytes(synced.assignment)) == (ErrorCode.NONE, b"all")
            assert await committed(connection, commit(6, a, 1)) == {ErrorCode.NONE}
            waits = asyncio.ensure_future(joined(other))
            await until_rebalancing(connection, a)
            await node.restart()
            with pytest.raises(DlogError):
                await waits
            connection, other = await node.connection(), await node.connection()
            assert await beats(connection, a, 1) is ErrorCode.NONE, "it is a member as before"
            assert (await positions(connection))[0] == {6}
            # Now both come to the next generation, and the second waits for its part.
            joining = asyncio.ensure_future(joined(other))
            await until_rebalancing(connection, a)
            leading, following = await joined(connection, a), await joining
            assert leading.generation_id == following.generation_id == 2
            waits_for_part = asyncio.ensure_future(
                other.call(sync(following.member_id, 2), SyncGroupResponse, timeout_ms=TIMEOUT_MS)
            )
            await asyncio.sleep(0)
            await node.restart()
            with pytest.raises(DlogError):
                await waits_for_part
            connection = await node.connection()
            assert await beats(connection, a, 1) is ErrorCode.NONE, (
                "nobody has owned anything in generation 2"
            )
            assert await beats(connection, a, 2) is ErrorCode.ILLEGAL_GENERATION
            assert await beats(connection, following.member_id, 2) is ErrorCode.UNKNOWN_MEMBER_ID
            assert (await positions(connection))[0] == {6}

    asyncio.run(story())


async def until_rebalancing(connection: Connection, member_id: str) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while await beats(connection, member_id, 1) is not ErrorCode.REBALANCE_IN_PROGRESS:
            await asyncio.sleep(0.01)
