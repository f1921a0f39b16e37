"""Brokers are restarted one after the other under a producer and a consumer, which see no error."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from distributedlog.cli.cluster.restarting.own_view import Registration, ask_registration
from distributedlog.cli.cluster.restarting.rolling import CONNECT_MS
from distributedlog.cli.main import main
from distributedlog.client.admin.blocking import BlockingAdmin
from distributedlog.client.connection import connect
from tests.system.growing.clients import Clients
from tests.system.replication.stage import Replicated


def test_all_brokers_are_restarted_one_by_one_and_the_active_controller_last(
    replicated: Replicated, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = replicated.create(1, 2, 3)
    before = {broker: replicated.pid(broker) for broker in replicated.brokers}
    with BlockingAdmin(replicated.bootstrap) as admin:
        controller = admin.describe_quorum().leader_id
    given = ("--bootstrap", replicated.bootstrap, "--ready-file", str(replicated.cluster.ready_file))
    with Clients(replicated.bootstrap, topic) as clients:
        assert main(["cluster", "restart", "--rolling", "--yes", *given]) == 0
        clients.get_on()
    clients.check()

    order = [int(each) for each in re.findall(r"broker (\d) \(\d of 3\)", capsys.readouterr().out)]
    assert sorted(order) == [1, 2, 3]
    assert order[-1] == controller
    assert all(replicated.pid(broker) != pid for broker, pid in before.items())
    assert replicated.leads(1, topic), "it leads again what it is to lead"
    assert replicated.isr(topic) == [1, 2, 3]


KILL_HARD = """
import json, os, signal, sys
brokers = json.load(open(sys.argv[1]))["brokers"]
os.kill(next(each["pid"] for each in brokers if each["id"] == int(sys.argv[2])), signal.SIGKILL)
"""


def test_brokers_that_are_killed_hard_are_waited_for_until_they_have_registered_anew(
    replicated: Replicated, tmp_path: Path
) -> None:
    """Each is killed only when the one before says itself that it is registered anew, and all is in sync."""
    topic = replicated.create(1, 2, 3)
    epochs = {broker: own_epoch(replicated, broker) for broker in replicated.brokers}
    script = tmp_path / "kill.py"
    script.write_text(KILL_HARD, encoding="utf-8")
    command = f"{sys.executable} {script} {replicated.cluster.ready_file} {{id}}"
    at = ("--yes", "--bootstrap", replicated.bootstrap, "--command", command)
    with Clients(replicated.bootstrap, topic) as clients:
        assert main(["cluster", "restart", "--rolling", *at]) == 0
        assert all(own_epoch(replicated, broker) > epoch for broker, epoch in epochs.items())
        assert replicated.isr(topic) == [1, 2, 3]
        clients.get_on()
    clients.check()


def own_epoch(replicated: Replicated, broker_id: int) -> int:
    host, port = replicated.brokers[broker_id]["client"].split(":")

    async def ask() -> Registration | None:
        connection = await connect(host, int(port), timeout_ms=CONNECT_MS)
        try:
            return await ask_registration(connection, broker_id)
        finally:
            connection.close()

    found = asyncio.run(ask())
    assert found is not None
    assert found.epoch is not None
    return found.epoch


def test_it_stops_at_the_first_broker_that_is_not_restarted(
    replicated: Replicated, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ("--yes", "--bootstrap", replicated.bootstrap, "--wait", "2s")
    assert main(["cluster", "restart", "--rolling", "--command", "echo {id}; exit 7", *at]) == 1
    said = capsys.readouterr()
    assert "the command ended with exit code 7" in said.err
    assert said.out.count("restarts") == 1, "the others are left alone"
    assert main(["cluster", "restart", "--rolling", "--command", "true {id} {host}", *at]) == 1
    assert "it was not stopped after 2 s" in capsys.readouterr().err
    assert main(["cluster", "restart", "--rolling", "--command", "true", *at]) == 2
    assert "say which one with {id} or {host}" in capsys.readouterr().err
    assert main(["cluster", "restart", "--rolling", "--command", "true", "--broker", "9", *at]) == 1
