"""Members of groups that send as much metadata as they may: what a broker keeps of it is bounded.

A good client writes and reads beside them, and is served as in `test_hostile`.
"""

import re
import select
import time
from collections.abc import Callable, Iterator

import pytest

from distributedlog.model.config import MIB
from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.framing import decode_response
from distributedlog.protocol.messages.find_coordinator import FindCoordinatorRequest
from distributedlog.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from tests.system.enemies import Enemy, frame_of, read_frame
from tests.system.hostile_stage import HostileStage
from tests.system.server_process import TIMEOUT_SECONDS

JOINS_AT_ONCE = 3
"""The last version in which a member joins without an id."""
NEEDS_ID = 4
METADATA_BYTES = 900_000
MEMBERS = 100
OF_A_GROUP = 9
"""So many fit `group.max.bytes`; twice as many `group.client.max.bytes`."""
SETTINGS = {
    "group.max.bytes": 8 * MIB,
    "group.client.max.bytes": 16 * MIB,
    "group.initial.rebalance.delay.ms": 600_000,  # who is let in waits: an answer is a refusal
    "offsets.topic.num.partitions": 1,
    "queued.bytes.max": 512 * MIB,  # else requests that wait are the bound
}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileStage]:
    with HostileStage(tmp_path_factory.mktemp("hostile-groups"), SETTINGS) as stage:
        with Enemy(stage.address, "127.0.4.1") as client:
            client.ask(FindCoordinatorRequest(key="any"), 0)
            await_coordinator(client)
        yield stage
        assert "Traceback" not in stage.server.log


def join(group_id: str, metadata: bytes) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=metadata)]
    return JoinGroupRequest(
        group_id=group_id, session_timeout_ms=60_000, rebalance_timeout_ms=600_000, member_id="",
        protocol_type="consumer", protocols=protocols,
    )  # fmt: skip


def code_of(frame: bytes, version: int) -> ErrorCode:
    _, response = decode_response(JoinGroupResponse, version, frame)
    return ErrorCode(response.error_code)


def await_coordinator(client: Enemy) -> None:
    give_up = time.monotonic() + TIMEOUT_SECONDS
    connection = client.connect()[0]
    while (code := code_of(client.ask(join("any", b""), NEEDS_ID, connection), NEEDS_ID)) is not (
        ErrorCode.MEMBER_ID_REQUIRED
    ):
        assert time.monotonic() < give_up, code
        time.sleep(0.05)


def refuse_members(enemy: Enemy, group_of: Callable[[int], str], *, fitting: int) -> None:
    """All but so many members are refused, and the others wait."""
    waiting = enemy.connect(MEMBERS)
    enemy.send_each(waiting, lambda at: frame_of(join(group_of(at), bytes(METADATA_BYTES)), JOINS_AT_ONCE))
    while len(waiting) > fitting:
        answered, _, _ = select.select(waiting, (), (), TIMEOUT_SECONDS)
        assert answered, f"{len(waiting)} members were let in"
        for each in answered:
            assert code_of(read_frame(each), JOINS_AT_ONCE) is ErrorCode.GROUP_MAX_SIZE_REACHED
            waiting.remove(each)


def held_bytes(stage: HostileStage) -> int:
    found = re.search(r"^dlog_group_member_bytes(?:{[^}]*})? ([\d.e+]+)", stage.metrics(), re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


def test_metadata_of_members_is_bounded_per_group_and_per_address(stage: HostileStage) -> None:
    with stage.meanwhile("large members") as seen, Enemy(stage.address, "127.0.4.2") as enemy:
        refuse_members(enemy, lambda _: "one", fitting=OF_A_GROUP)
        refuse_members(enemy, lambda at: f"group-{at}", fitting=OF_A_GROUP)
        assert held_bytes(stage) <= 16 * MIB
        with Enemy(stage.address, "127.0.4.3") as neighbour:
            refuse_members(neighbour, lambda _: "neighbours", fitting=OF_A_GROUP)
    seen.check()
