"""Loads on a group coordinator: `python -m tests.bench.groups_load KIND PORT PID`; prints JSON.

The same for every broker that speaks Kafka's protocol, in a process of its own.

    rebalances   ten members of one group, each on its connection, come to one generation after the other: the
                 leader joins again, the others hear of it by a heartbeat and join, the leader assigns a
                 hundred partitions, all sync; timed from the leader's join to the last assignment
    commits      four connections, sixteen commits under way on each, of ten positions, each connection for a
                 group of its own; frames are encoded beforehand, of an answer the length is read, and of the
                 last one all codes
    thousand     a thousand groups of one member are formed, one hundred at a time; then their members' beats
                 are sent, as many as are answered in a second

Versions are those that both brokers have; topics are named by name.
"""

import asyncio
import json
import select
import socket
import statistics
import sys
import time
from struct import Struct as Layout
from typing import Any, Final

from distributedlog.client.connection import Connection, connect
from distributedlog.protocol.codec import join_parts
from distributedlog.protocol.framing import decode_response, encode_request
from distributedlog.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
)
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
from distributedlog.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from distributedlog.protocol.versioned import encode_versioned
from tests.bench.broker_load import connect as connect_socket
from tests.bench.broker_load import cpu_seconds

TOPIC: Final = "grouped"
PARTITIONS: Final = 100
MEMBERS: Final = 10
GROUPS: Final = 1_000
TOGETHER: Final = 100
REBALANCES: Final = 30
CONNECTIONS: Final = 4
WINDOW: Final = 16
POSITIONS: Final = 10
SECONDS: Final = 2.0
TIMEOUT_MS: Final = 60_000
SESSION_MS: Final = 30_000
JOIN_VERSION: Final = 3
"""The last in which a member is let in without an id of its own."""
BEAT_VERSION: Final = 4
COMMIT_VERSION: Final = 8
RETRIABLE: Final = (14, 15, 16)
"""Loading, not available, not the coordinator."""
REBALANCE_IN_PROGRESS: Final = 27
_SIZE: Final = Layout(">i")
_SUBSCRIPTION: Final = encode_versioned(ConsumerProtocolSubscription(topics=[TOPIC]), 0)


async def opened(port: int) -> Connection:
    return await connect("127.0.0.1", port, client_id="bench", timeout_ms=TIMEOUT_MS)


async def found(connection: Connection, group: str) -> None:
    """Until the group has a coordinator: the first one asked for makes the topic."""
    while True:
        answer = await connection.call(
            FindCoordinatorRequest(coordinator_keys=[group]), FindCoordinatorResponse, timeout_ms=TIMEOUT_MS
        )
        if answer.coordinators[0].error_code == 0:
            return
        await asyncio.sleep(0.05)


async def joined(connection: Connection, group: str, member_id: str = "") -> JoinGroupResponse:
    request = JoinGroupRequest(
        group_id=group, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=SESSION_MS, member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=_SUBSCRIPTION)],
    )  # fmt: skip
    while True:
        answer = await connection.call(
            request, JoinGroupResponse, timeout_ms=TIMEOUT_MS, version=JOIN_VERSION
        )
        if answer.error_code == 0:
            return answer
        assert answer.error_code in RETRIABLE, answer
        await asyncio.sleep(0.02)


async def synced(connection: Connection, group: str, told: JoinGroupResponse) -> None:
    given = []
    if told.leader == told.member_id:
        members = [each.member_id for each in told.members]
        for at, member_id in enumerate(members):
            owned = TopicPartitions(topic=TOPIC, partitions=list(range(at, PARTITIONS, len(members))))
            data = encode_versioned(ConsumerProtocolAssignment(assigned_partitions=[owned]), 0)
            given.append(SyncGroupRequestAssignment(member_id=member_id, assignment=data))
    request = SyncGroupRequest(
        group_id=group, generation_id=told.generation_id, member_id=told.member_id,
        protocol_type="consumer", protocol_name="range", assignments=given,
    )  # fmt: skip
    answer = await connection.call(request, SyncGroupResponse, timeout_ms=TIMEOUT_MS)
    assert answer.error_code == 0, answer
    assert len(answer.assignment) > 0


async def is_rebalancing(connection: Connection, group: str, member_id: str, generation: int) -> bool:
    request = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)
    answer = await connection.call(request, HeartbeatResponse, timeout_ms=TIMEOUT_MS, version=BEAT_VERSION)
    assert answer.error_code in (0, REBALANCE_IN_PROGRESS), answer
    return answer.error_code == REBALANCE_IN_PROGRESS


# --- rebalances --------------------------------------------------------------------------------


async def rebalances(port: int, pid: int) -> dict[str, Any]:
    connections = [await opened(port) for _ in range(MEMBERS)]
    group = f"bench-{time.monotonic_ns()}"
    await found(connections[0], group)
    ids: list[str] = []

    async def come(at: int, number: int) -> JoinGroupResponse:
        """When it has heard that it must."""
        while not await is_rebalancing(connections[at], group, ids[at], number):
            await asyncio.sleep(0)
        return await joined(connections[at], group, ids[at])

    async def share(told: list[JoinGroupResponse]) -> None:
        assert len({each.generation_id for each in told}) == 1
        await asyncio.gather(*(synced(connections[at], group, each) for at, each in enumerate(told)))

    for at in range(MEMBERS):  # one comes after the other
        coming = asyncio.ensure_future(joined(connections[at], group))
        told = list(await asyncio.gather(*(come(each, at) for each in range(at)), coming))
        ids.append(told[-1].member_id)
        await share(told)
    seconds = []
    cpu = cpu_seconds(pid)
    for _ in range(REBALANCES):
        began = time.perf_counter()
        leading = asyncio.ensure_future(joined(connections[0], group, ids[0]))
        number = told[0].generation_id
        following = await asyncio.gather(*(come(at, number) for at in range(1, MEMBERS)))
        told = [await leading, *following]
        await share(told)
        seconds.append(time.perf_counter() - began)
    cpu = cpu_seconds(pid) - cpu
    return {"ms": statistics.median(seconds) * 1000, "cpu_ms": cpu * 1000 / REBALANCES}


# --- commits -----------------------------------------------------------------------------------


def commit_frame(group: str) -> bytes:
    places = [
        OffsetCommitRequestPartition(partition_index=at, committed_offset=at, committed_metadata="")
        for at in range(POSITIONS)
    ]
    request = OffsetCommitRequest(
        group_id=group, member_id="", topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=places)]
    )
    return bytes(join_parts(encode_request(request, COMMIT_VERSION, 1, "bench")))


def answer_from(connection: socket.socket) -> bytes:
    head = connection.recv(4, socket.MSG_WAITALL)
    assert len(head) == 4, "it hung up"
    return connection.recv(_SIZE.unpack(head)[0], socket.MSG_WAITALL)


def codes_in(answer: bytes) -> set[int]:
    response = decode_response(OffsetCommitResponse, COMMIT_VERSION, bytearray(answer))[1]
    return {each.error_code for topic in response.topics for each in topic.partitions}


def settle(connection: socket.socket, frame: bytes) -> None:
    """Until a commit is taken."""
    while True:
        connection.sendall(frame)
        codes = codes_in(answer_from(connection))
        if codes == {0}:
            return
        assert codes <= set(RETRIABLE), codes
        time.sleep(0.05)


def commits(port: int, pid: int) -> dict[str, Any]:
    async def make() -> None:
        connection = await opened(port)
        for at in range(CONNECTIONS):
            await found(connection, f"committing-{at}")
        connection.close()

    asyncio.run(make())
    frames = [commit_frame(f"committing-{at}") for at in range(CONNECTIONS)]
    sockets = [connect_socket(port) for _ in range(CONNECTIONS)]
    for connection, frame in zip(sockets, frames, strict=True):
        settle(connection, frame)
    lanes = dict(zip(sockets, frames, strict=True))
    cpu, began, count = cpu_seconds(pid), time.perf_counter(), 0
    for connection, frame in lanes.items():
        connection.sendall(frame * WINDOW)
    deadline = began + SECONDS
    while time.perf_counter() < deadline:
        for connection in select.select(sockets, [], [], 1.0)[0]:
            last = answer_from(connection)
            count += 1
            connection.sendall(lanes[connection])
    seconds, cpu = time.perf_counter() - began, cpu_seconds(pid) - cpu
    assert codes_in(last) == {0}
    for connection in sockets:
        connection.close()
    return {"per_second": count / seconds, "cpu_us": cpu * 1e6 / max(count, 1)}


# --- a thousand groups -------------------------------------------------------------------------


async def thousand(port: int, pid: int) -> dict[str, Any]:
    connections = [await opened(port) for _ in range(TOGETHER)]
    prefix = f"thousand-{time.monotonic_ns()}"
    await found(connections[0], prefix)
    members: list[tuple[str, str]] = []

    async def form(connection: Connection, group: str) -> None:
        told = await joined(connection, group)
        await synced(connection, group, told)
        members.append((group, told.member_id))

    began = time.perf_counter()
    for first in range(0, GROUPS, TOGETHER):
        await asyncio.gather(*(form(each, f"{prefix}-{first + at}") for at, each in enumerate(connections)))
    formed = time.perf_counter() - began
    for each in connections:
        each.close()
    beats = await asyncio.to_thread(_beats, port, pid, members)
    return {"formed_seconds": formed, **beats}


def _beats(port: int, pid: int, members: list[tuple[str, str]]) -> dict[str, float]:
    frames = [
        bytes(
            join_parts(
                encode_request(
                    HeartbeatRequest(group_id=group, generation_id=1, member_id=member), BEAT_VERSION, 1, "b"
                )
            )
        )
        for group, member in members
    ]
    sockets = [connect_socket(port) for _ in range(CONNECTIONS)]
    cpu, began, count, sent = cpu_seconds(pid), time.perf_counter(), 0, 0
    last = b""
    for connection in sockets:
        connection.sendall(b"".join(frames[sent : sent + WINDOW]))
        sent += WINDOW
    while time.perf_counter() < began + SECONDS:
        for connection in select.select(sockets, [], [], 1.0)[0]:
            last = answer_from(connection)
            connection.sendall(frames[sent % len(frames)])
            count, sent = count + 1, sent + 1
    seconds, cpu = time.perf_counter() - began, cpu_seconds(pid) - cpu
    assert decode_response(HeartbeatResponse, BEAT_VERSION, bytearray(last))[1].error_code == 0
    for connection in sockets:
        connection.close()
    return {"beats_per_second": count / seconds, "beat_cpu_us": cpu * 1e6 / max(count, 1)}


def main() -> None:
    kind, port, pid = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if kind == "commits":
        figures = commits(port, pid)
    else:
        figures = asyncio.run({"rebalances": rebalances, "thousand": thousand}[kind](port, pid))
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
