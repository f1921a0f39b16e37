"""A group's own settings on a real server: its members hear of them while the group runs."""

import asyncio
from pathlib import Path

from distributedlog.client.admin.admin import Admin
from distributedlog.client.admin.configs import ConfigKind, ConfigSource, edits, of_group
from distributedlog.client.admin.group_offsets import GroupOffsets
from distributedlog.client.errors import check_response
from distributedlog.model.errors import ConfigError
from distributedlog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.system.server_process import ServerProcess, dlog

GROUP = "workers"
SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
SETTINGS = {"offsets.topic.num.partitions": 1, "controller.quorum.election.timeout.ms": 400}


class Member:
    """Heard often enough; it reads nothing."""

    def __init__(self, admin: Admin) -> None:
        self.admin = admin
        self.epoch = 0

    async def beat(self) -> int:
        """How often it is told to be heard, in milliseconds."""
        joins = self.epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id="one",
            member_epoch=self.epoch,
            rebalance_timeout_ms=60_000 if joins else -1,
            subscribed_topic_names=["t"] if joins else None,
            topic_partitions=[] if joins else None,
        )

        async def attempt() -> ConsumerGroupHeartbeatResponse:
            connection = await GroupOffsets(self.admin.cluster, GROUP).coordinator()
            reply = await self.admin.cluster.call(connection, request, ConsumerGroupHeartbeatResponse)
            check_response(reply.error_code, "a heartbeat", reply.error_message)
            return reply

        reply = await self.admin.cluster.retrying(attempt)
        self.epoch = reply.member_epoch
        return reply.heartbeat_interval_ms

    async def beat_until(self, interval_ms: int) -> None:
        """The coordinator hears of settings a little after the controller has them."""
        async with asyncio.timeout(30):
            while await self.beat() != interval_ms:
                await asyncio.sleep(0.01)


async def _live(bootstrap: str) -> None:
    whose = of_group(GROUP)
    async with Admin.connect(bootstrap) as admin:
        member = Member(admin)
        assert await member.beat() == 5_000
        assert await admin.alter_configs({whose: edits({INTERVAL: "7000"})}) == {whose: None}
        await member.beat_until(7_000)
        assert await admin.list_config_resources([ConfigKind.GROUP]) == (whose,)
        entries = await admin.describe_configs(whose)
        assert entries is not None
        told = {each.name: (each.value, each.source) for each in entries}
        assert len(told) == 11
        assert told[INTERVAL] == ("7000", ConfigSource.GROUP)
        assert told[SESSION] == ("45000", ConfigSource.DEFAULT)
        (refused,) = (await admin.alter_configs({whose: edits({SESSION: "1000"})})).values()
        assert isinstance(refused, ConfigError)
        assert await admin.alter_configs({whose: edits(to_unset=[INTERVAL])}) == {whose: None}
        await member.beat_until(5_000)


def _ask_from_the_shell(bootstrap: str) -> None:
    def config(*arguments: str) -> tuple[int, str]:
        ran = dlog("cluster", "config", *arguments, "--bootstrap", bootstrap, "-o", "table")
        return ran.returncode, ran.stdout + ran.stderr

    assert config("set", f"{SESSION}=50000", "--group", GROUP) == (
        0,
        f"{SESSION} set to 50000 for group '{GROUP}'\n",
    )
    code, shown = config("get", "--group", GROUP)
    assert code == 0
    assert [SESSION, "50000", "group"] in [line.split() for line in shown.splitlines()]
    for arguments, says in (
        (("set", f"{SESSION}=1", "--group", GROUP), "here it is 45000 to 60000"),
        (("set", "consumer.session=1", "--group", GROUP), "there is no setting consumer.session; did you"),
        (("get", "--group", GROUP, "--broker", "1"), "does not go together with --broker"),
    ):
        code, shown = config(*arguments)
        assert (code, says in shown) == (2, True), shown
    assert config("unset", SESSION, "--group", GROUP)[0] == 0


def test_members_hear_of_their_groups_settings_while_it_runs(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "node", SETTINGS) as node:
        asyncio.run(_live(node.facts["client"]))
        _ask_from_the_shell(node.facts["client"])
        assert node.stop() == 0
