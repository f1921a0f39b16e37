"""What members hold is bounded, per group, per client host and per broker, and free when they go."""

import pytest

from distributedlog.groups.config import GroupConfig
from distributedlog.groups.machine import GroupMachine
from distributedlog.groups.member_bytes import Holder, Holding, MemberBytes
from distributedlog.groups.requests import SupportedProtocol
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import GroupFullError
from tests.unit.groups.consumer.stage import SESSION_MS as CONSUMER_SESSION_MS
from tests.unit.groups.consumer.stage import ConsumerStage, Topics
from tests.unit.groups.stage import REBALANCE_MS, SESSION_MS, Stage

LARGE = (SupportedProtocol("range", bytes(40_000)),)
SMALL = (SupportedProtocol("range", b"small"),)
TWO_LARGE = 100_000
"""Room for two of them."""
FULL = ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize(
    "config",
    [
        GroupConfig(group_bytes_max=TWO_LARGE),
        GroupConfig(client_bytes_max=TWO_LARGE),
        GroupConfig(coordinator_bytes_max=TWO_LARGE),
    ],
)
def test_a_member_that_would_exceed_a_limit_is_refused_and_nothing_of_it_kept(config: GroupConfig) -> None:
    stage = Stage(config)
    for _ in range(2):
        assert not stage.join(protocols=LARGE).is_answered, "it waits for others"
    before = stage.machine.member_bytes.total
    assert stage.join(protocols=LARGE).code is FULL
    assert stage.join(protocols=LARGE, instance="i").code is FULL
    assert stage.machine.member_bytes.total == before
    other = stage.join(group="other", protocols=LARGE)
    if config.group_bytes_max == TWO_LARGE:
        assert not other.is_answered
    else:
        assert other.code is FULL
        assert "other" not in stage.machine.groups
    assert not stage.join(protocols=SMALL).is_answered


def test_what_members_held_is_free_when_they_leave_and_when_their_sessions_end() -> None:
    stage = Stage(GroupConfig(group_bytes_max=TWO_LARGE, initial_rebalance_delay_ms=0))
    first = stage.join(protocols=LARGE).joined
    stage.sync(first.member_id, 1, {first.member_id: b"all"})
    stage.leave(first.member_id)
    assert stage.machine.member_bytes.total == 0
    stage.join(protocols=LARGE)
    stage.join(must_know_id=True)
    stage.advance(REBALANCE_MS + SESSION_MS)
    assert stage.machine.member_bytes.total == 0
    assert not stage.machine.member_bytes._charges


def test_ids_that_are_given_out_count() -> None:
    stage = Stage(GroupConfig(coordinator_bytes_max=12_000))
    codes = [stage.join(group=f"g{at}", must_know_id=True).code for at in range(20)]
    assert codes.count(ErrorCode.MEMBER_ID_REQUIRED) == 11
    assert codes.count(FULL) == 9
    assert len(stage.machine.groups) == 11


def test_a_member_that_does_not_grow_is_never_refused() -> None:
    stage = Stage(GroupConfig(initial_rebalance_delay_ms=0))
    first = stage.join(instance="i", protocols=LARGE).joined
    stage.sync(first.member_id, 1, {first.member_id: b"all"})
    stage.config = GroupConfig(initial_rebalance_delay_ms=0, group_bytes_max=1)
    stage.failover()
    assert stage.machine.member_bytes.total > 40_000, "what is read back is kept"
    restarted = stage.join(instance="i", protocols=LARGE).joined
    assert stage.join(restarted.member_id, instance="i", protocols=SMALL).code is ErrorCode.NONE
    assert stage.join(restarted.member_id, instance="i", protocols=LARGE).code is FULL


def test_assignments_count() -> None:
    stage = Stage(GroupConfig(initial_rebalance_delay_ms=0, group_bytes_max=TWO_LARGE))
    first = stage.join(protocols=LARGE).joined
    assert stage.sync(first.member_id, 1, {first.member_id: bytes(90_000)}).code is FULL
    assert stage.sync(first.member_id, 1, {first.member_id: bytes(30_000)}).code is ErrorCode.NONE
    assert stage.join(protocols=LARGE).code is FULL


def test_members_of_consumer_groups_are_bounded_likewise() -> None:
    stage = ConsumerStage(Topics(t=4), GroupConfig(group_bytes_max=20_000))
    many = tuple(f"topic-{at:090}" for at in range(100))
    large = stage.member("large", *many)
    other = stage.member("other", "t")
    other.topics, other.must_say_all = many, True
    assert other.beat() is FULL, "it grows"
    assert stage.group.members["other"].topics == ("t",)
    assert large.beat() is ErrorCode.NONE
    stage.advance(CONSUMER_SESSION_MS)
    assert stage.machine.member_bytes.total == 0


def test_the_machines_of_a_broker_share_its_limit() -> None:
    config = GroupConfig(coordinator_bytes_max=TWO_LARGE)
    machines: list[GroupMachine] = []
    for _ in range(2):
        machines.append(
            GroupMachine(config, str, lambda: 0, bytes_of_broker=lambda: (m.member_bytes for m in machines))
        )
    one, two = (machine.member_bytes for machine in machines)
    one.charge(Holder(Holding.CLASSIC, "g", "m"), "/host", 60_000)
    with pytest.raises(GroupFullError, match=r"this broker hold 60000 bytes; 60000 more would exceed 100000"):
        two.check("other", "/elsewhere", 60_000, config)
    one.release(Holder(Holding.CLASSIC, "g", "m"))
    two.check("other", "/elsewhere", 60_000, config)


def test_one_client_host_leaves_room_for_others() -> None:
    held, config = MemberBytes(), GroupConfig(client_bytes_max=50_000, coordinator_bytes_max=TWO_LARGE)
    held.charge(Holder(Holding.CLASSIC, "g", "m"), "/hostile", 50_000)
    with pytest.raises(GroupFullError, match="client host /hostile"):
        held.check("other", "/hostile", 1, config)
    held.check("other", "/elsewhere", 50_000, config)
