"""Nodes as real processes: alone, with the roles of controller and broker apart, and with enemies."""

import asyncio
import signal
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from distributedlog.client.admin.admin import Admin, NewTopic
from tests.ports import free_port
from tests.system.server_process import ServerProcess, dlog, options, secret_in

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


async def _create(bootstrap: str, name: str, partitions: int = 2) -> None:
    async with Admin.connect(bootstrap) as admin:
        await admin.create_topic(NewTopic(name, partitions, 1))


async def _names(bootstrap: str) -> list[str]:
    async with Admin.connect(bootstrap) as admin:
        return sorted(topic.name for topic in await admin.list_topics())


def create(node: ServerProcess, name: str) -> None:
    asyncio.run(_create(node.facts["client"], name))


def names(node: ServerProcess) -> list[str]:
    return asyncio.run(_names(node.facts["client"]))


def test_one_node_keeps_its_topics_over_a_clean_stop_and_over_a_kill(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, {}) as node:
        create(node, "first")
        assert node.stop() == 0
        node.restart()
        create(node, "second")
        assert node.stop(signal.SIGKILL) == -signal.SIGKILL
        node.restart()
        assert names(node) == ["first", "second"]
        assert node.stop() == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert "Traceback" not in node.log


def test_controller_and_broker_may_be_apart(tmp_path: Path) -> None:
    """The broker is no voter: it follows the metadata by watching, also across restarts of either."""
    port = free_port()
    quorum: dict[str, object] = {
        "cluster.id": "apart", "controller.quorum.voters": f"1@127.0.0.1:{port}",
        "cluster.secret.file": secret_in(tmp_path),
    }  # fmt: skip
    alone = {
        **quorum, "node.id": 1, "process.roles": "controller", "control.listener": f"127.0.0.1:{port}",
        "broker.session.timeout.ms": 3000,
    }  # fmt: skip
    serving = {**quorum, "node.id": 2, "process.roles": "broker"}
    with ServerProcess(tmp_path / "1", alone) as controller, ServerProcess(tmp_path / "2", serving) as broker:
        assert controller.facts["client"] is None
        create(broker, "one")
        controller.stop(signal.SIGKILL)
        assert names(broker) == ["one"], "what is known stays known without a controller"
        controller.restart()
        create(broker, "two")
        broker.stop(signal.SIGKILL)
        broker.restart()
        assert names(broker) == ["one", "two"]
        assert (tmp_path / "2" / "data" / "two-1").is_dir()
        assert broker.stop() == 0
        assert controller.stop() == 0


def test_a_broker_without_a_controller_is_alive_but_not_ready(tmp_path: Path) -> None:
    nobody = f"1@127.0.0.1:{free_port()}"
    ops = free_port()
    lonely = {
        "node.id": 2, "process.roles": "broker", "cluster.id": "c", "controller.quorum.voters": nobody,
        "ops.listener": f"127.0.0.1:{ops}", "drain.timeout.ms": 100,
        "cluster.secret.file": secret_in(tmp_path),
    }  # fmt: skip
    with ServerProcess(tmp_path, lonely, waits=False) as node:
        assert _get(ops, "/health/live") == 200
        assert _get(ops, "/health/ready") == 503
        assert node.stop() == 0


def _get(port: int, path: str) -> int:
    """Until it listens; then what it says."""
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                assert isinstance(answer.status, int)
                return answer.status
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code
        except OSError:
            time.sleep(0.05)  # a process that is starting says nothing until it listens
    pytest.fail(f"nothing listens on {port}")


def test_two_processes_with_one_directory_the_second_is_refused(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, {}) as node:
        second = dlog("server", "start", *options(node.settings))
        assert second.returncode == 3
        assert "in use" in second.stderr or "another process" in second.stderr.lower()
        assert len(second.stderr.strip().splitlines()) == 1
        assert names(node) == []
        assert node.stop() == 0


def test_two_brokers_with_one_id_the_second_is_not_let_in(tmp_path: Path) -> None:
    port = free_port()
    quorum: dict[str, object] = {"cluster.id": "twins", "controller.quorum.voters": f"1@127.0.0.1:{port}"}
    quorum |= {"broker.heartbeat.interval.ms": 200, "cluster.secret.file": secret_in(tmp_path)}
    first = {
        **quorum, "node.id": 1, "control.listener": f"127.0.0.1:{port}", "broker.session.timeout.ms": 1000
    }  # fmt: skip
    twin = {
        **quorum, "node.id": 2, "process.roles": "broker", "initial.broker.registration.timeout.ms": 3000
    }  # fmt: skip
    with ServerProcess(tmp_path / "1", first) as node, ServerProcess(tmp_path / "2", twin) as broker:
        with ServerProcess(tmp_path / "3", twin, waits=False) as other:
            assert other.process is not None
            assert other.process.wait(60) == 3
            other.process = None
            assert "2" in other.log
        create(broker, "still-served")
        assert names(node) == ["still-served"]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"listeners": "PLAINTEXT://192.0.2.1:0"}, "--insecure"),
        ({"node.ids": "1"}, "node.id"),
        ({"num.partitions": "0"}, "num.partitions"),
        ({"controller.quorum.voters": "1@127.0.0.1:1,2@127.0.0.1:2,3@127.0.0.1:3"}, "dlog server format"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, settings: dict[str, str], says: str) -> None:
    done = dlog("server", "start", *options({"log.dirs": tmp_path / "data", **settings}))
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
