"""Settings that a group has for itself: they count from its members' next heartbeats on."""

import pytest

from distributedlog.groups.config import GroupConfig
from distributedlog.groups.consumer.settings import check, resolve_config
from distributedlog.groups.requests import ConsumerHeartbeatReply
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import ConfigError
from distributedlog.model.group_settings import HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from tests.unit.groups.consumer.stage import Client, ConsumerStage
from tests.unit.groups.stage import GROUP

CONFIG = GroupConfig(initial_rebalance_delay_ms=0)
SHORT = {SESSION_TIMEOUT: "46000", HEARTBEAT_INTERVAL: "7000"}


def interval_ms(stage: ConsumerStage, client: Client) -> int:
    reply = stage.ask(client.request())
    assert isinstance(reply, ConsumerHeartbeatReply)
    client.hear(reply)
    return reply.heartbeat_interval_ms


def test_the_interval_changes_while_the_group_runs_and_goes_back() -> None:
    stage = ConsumerStage(config=CONFIG)
    one = stage.member("one")
    assert interval_ms(stage, one) == 5_000
    stage.topics.settings[GROUP] = {HEARTBEAT_INTERVAL: "7000"}
    assert interval_ms(stage, one) == 7_000
    stage.topics.settings["other"] = {HEARTBEAT_INTERVAL: "9000"}
    assert interval_ms(stage, one) == 7_000
    del stage.topics.settings[GROUP]
    assert interval_ms(stage, one) == 5_000


def test_a_silent_member_is_out_when_the_groups_own_session_ends() -> None:
    stage = ConsumerStage(config=CONFIG)
    stage.topics.settings[GROUP] = {SESSION_TIMEOUT: "55000"}
    one = stage.member("one")
    stage.advance(54_000)
    assert one.beat() is ErrorCode.NONE
    stage.advance(54_999)
    assert "one" in stage.group.members
    stage.advance(2)
    assert one.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_coordinator_gives_members_the_groups_own_session() -> None:
    stage = ConsumerStage(config=CONFIG)
    stage.member("one")
    stage.topics.settings[GROUP] = {SESSION_TIMEOUT: "55000"}
    stage.failover()
    stage.advance(54_999)
    assert "one" in stage.group.members
    stage.advance(2)
    assert "one" not in stage.group.members


@pytest.mark.parametrize(
    ("settings", "session_ms", "interval_ms"),
    [
        ({}, 45_000, 5_000),
        (SHORT, 46_000, 7_000),
        ({SESSION_TIMEOUT: "1", HEARTBEAT_INTERVAL: "999999"}, 45_000, 15_000),
        ({SESSION_TIMEOUT: "never"}, 45_000, 5_000),
        ({"share.session.timeout.ms": "50000"}, 45_000, 5_000),
    ],
)
def test_a_coordinator_keeps_to_its_own_bounds(
    settings: dict[str, str], session_ms: int, interval_ms: int
) -> None:
    own = resolve_config(settings, CONFIG)
    assert own.consumer_session_timeout_ms == session_ms
    assert own.consumer_heartbeat_interval_ms == interval_ms


def test_a_session_is_longer_than_an_interval() -> None:
    wide = GroupConfig(consumer_session_timeout_ms_min=1, consumer_heartbeat_interval_ms_min=1)
    contradiction = {SESSION_TIMEOUT: "9000", HEARTBEAT_INTERVAL: "9000"}
    with pytest.raises(ConfigError, match="has to be longer"):
        check(contradiction, wide)
    assert resolve_config(contradiction, wide) is wide
    check({SESSION_TIMEOUT: "9000"}, wide)
