"""`dlog dev` with real brokers: it starts, says where, restarts what is killed, keeps what it should."""

import json
import os
import select
import shutil
import signal
import socket
import stat
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.system.dev_cluster import DevCluster
from tests.system.server_process import dlog

TIMEOUT_MS = 60_000
QUICK = ("--set", "controller.quorum.election.timeout.ms=400", "--set", "drain.timeout.ms=500")
"""Nobody is waited for longer than these stories need."""
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def get(address: str, path: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read()


def watch(pids: list[int]) -> list[int]:
    return [os.pidfd_open(pid) for pid in pids]


def all_ended(handles: list[int]) -> bool:
    """Waits for it."""
    ends = select.poll()
    for handle in handles:
        ends.register(handle, select.POLLIN)
    left = set(handles)
    while left:
        ended = ends.poll(TIMEOUT_MS)
        for handle, _ in ended:
            ends.unregister(handle)
            left.discard(handle)
        if not ended:
            break
    for handle in handles:
        os.close(handle)
    return not left


def test_one_broker_serves_on_every_plane_and_leaves_nothing_behind(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TMPDIR", str(scratch))
        cluster = DevCluster(tmp_path / "ready.json", "--port", "0")
    with cluster:
        facts = cluster.ready()
        (broker,) = facts["brokers"]
        assert facts["bootstrap"] == broker["client"]
        assert facts["console"] is None
        assert broker["id"] == 1
        assert os.path.isdir(broker["data_dir"])
        assert cluster.gateway() == facts["gateway"]
        for address in (broker["client"], broker["control"], broker["ops"], facts["gateway"]):
            host, port = address.rsplit(":", 1)
            socket.create_connection((host, int(port)), timeout=30).close()
        assert get(broker["ops"], "/health/live") == (200, b"live\n")
        assert get(broker["ops"], "/health/ready") == (200, b'{"ready": true, "reason": null}\n')
        status, text = get(broker["ops"], "/metrics")
        assert status == 200
        assert b"dlog_build_info" in text
        assert get(broker["ops"], "/nowhere")[0] == 404
        handles = watch([broker["pid"]])
        assert cluster.stop() == 0
        assert all_ended(handles)
    assert os.listdir(scratch) == []


def test_a_killed_broker_is_back_and_the_ready_file_says_so(tmp_path: Path) -> None:
    with DevCluster(
        tmp_path / "ready.json", "--port", "0", "--brokers", "3", "--data-dir", tmp_path / "d", *QUICK
    ) as cluster:
        before = cluster.ready()
        assert [broker["id"] for broker in before["brokers"]] == [1, 2, 3]
        assert before["bootstrap"] == ",".join(broker["client"] for broker in before["brokers"])
        os.kill(before["brokers"][1]["pid"], signal.SIGKILL)
        assert "node 2 was killed by SIGKILL; again in 1 s" in cluster.wait_for("was killed")
        cluster.wait_for("node 2 serves")
        cluster.process.send_signal(signal.SIGINT)
        assert cluster.wait() == 0
        after = cluster.ready()
    assert after["brokers"][1].pop("pid") != before["brokers"][1].pop("pid")
    assert after == before


def test_a_cluster_is_the_same_one_when_it_is_started_again(tmp_path: Path) -> None:
    arguments = ("--brokers", "2", "--port", "0", "--data-dir", tmp_path / "d", *QUICK)
    with DevCluster(tmp_path / "ready.json", *arguments) as cluster:
        first = cluster.ready()
        meta = (tmp_path / "d" / "node-2" / "meta.properties").read_bytes()
        assert cluster.stop() == 0
    with DevCluster(tmp_path / "ready.json", "--data-dir", tmp_path / "d", *QUICK) as cluster:
        second = cluster.ready()
        assert cluster.stop() == 0
    assert (tmp_path / "d" / "node-2" / "meta.properties").read_bytes() == meta
    for facts in (first, second):
        for broker in facts["brokers"]:
            broker.pop("pid")
    assert second == first


def test_brokers_end_with_a_dev_that_is_killed_and_the_directory_is_usable_again(tmp_path: Path) -> None:
    arguments = ("--brokers", "2", "--port", "0", "--data-dir", tmp_path / "d", *QUICK)
    with DevCluster(tmp_path / "ready.json", *arguments) as cluster:
        handles = watch(cluster.pids())
        cluster.process.kill()
        assert all_ended(handles)
    with DevCluster(tmp_path / "ready.json", *arguments) as cluster:
        assert cluster.stop() == 0


def test_a_lost_directory_of_one_among_others_is_not_silently_made_anew(tmp_path: Path) -> None:
    arguments = ("--brokers", "2", "--port", "0", "--data-dir", tmp_path / "d", *QUICK)
    with DevCluster(tmp_path / "ready.json", *arguments) as cluster:
        assert cluster.stop() == 0
    shutil.rmtree(tmp_path / "d" / "node-2")
    with DevCluster(tmp_path / "ready.json", *arguments, waits=False) as cluster:
        assert cluster.wait() == 3
        (line,) = cluster.lines
        assert "the directory of node 2" in line
        assert "bring it back from a copy, or begin anew" in line
    assert not (tmp_path / "d" / "node-2").exists()


def test_a_node_alone_whose_directory_was_removed_is_not_made_anew(tmp_path: Path) -> None:
    arguments = ("--port", "0", "--data-dir", tmp_path / "d", *QUICK)
    with DevCluster(tmp_path / "ready.json", *arguments) as cluster:
        shutil.rmtree(tmp_path / "d" / "node-1")
        assert "is gone, or was replaced, while the node ran" in cluster.wait_for("the node stops")
        assert "bring it back from a copy" in cluster.wait_for("node 1 is not started again")
        assert cluster.wait() == 3
    with DevCluster(tmp_path / "ready.json", *arguments, waits=False) as cluster:
        assert cluster.wait() == 3
        assert "the directory of node 1" in cluster.lines[-1]
    assert not (tmp_path / "d" / "node-1").exists()


def test_a_directory_removed_under_a_node_leaves_it_down_and_health_says_so(tmp_path: Path) -> None:
    """Nothing is written to it, so that no open file would tell."""
    arguments = ("--brokers", "3", "--port", "0", "--data-dir", tmp_path / "d", *QUICK)
    with DevCluster(tmp_path / "ready.json", *arguments) as cluster:
        bootstrap = cluster.ready()["brokers"][0]["client"]
        assert dlog("cluster", "health", "--bootstrap", bootstrap).returncode == 0
        shutil.rmtree(tmp_path / "d" / "node-3")
        assert "bring it back from a copy" in cluster.wait_for("node 3 is not started again")
        unwell = dlog("cluster", "health", "--bootstrap", bootstrap)
        assert unwell.returncode == 1
        assert "3" in unwell.stdout
        assert not (tmp_path / "d" / "node-3").exists()
        for node_id in (1, 2):
            assert not any(f"node {node_id} ended" in line for line in cluster.lines)
        assert cluster.stop() == 3


def test_nobody_else_can_read_what_a_cluster_holds(tmp_path: Path) -> None:
    directory = tmp_path / "d"
    arguments = ("--port", "0", "--data-dir", directory, *QUICK)
    before = os.umask(0)
    try:
        with DevCluster(tmp_path / "ready.json", *arguments) as cluster:
            client = cluster.ready()["bootstrap"]
            assert dlog("topic", "create", "t", "--bootstrap", client).returncode == 0
            assert cluster.stop() == 0
        everything = [directory, *directory.rglob("*")]
        assert len(everything) > 15
        open_to_others = [path for path in everything if stat.S_IMODE(path.stat().st_mode) & 0o077]
        assert open_to_others == []
        directory.chmod(0o755)
        (directory / "node-1").chmod(0o755)
        with DevCluster(tmp_path / "ready.json", *arguments) as cluster:
            assert cluster.stop() == 0
        for path in (directory, directory / "node-1"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700, "as an earlier version made it"
    finally:
        os.umask(before)


def test_without_restarts_a_killed_broker_stays_down(tmp_path: Path) -> None:
    with DevCluster(
        tmp_path / "ready.json", "--port", "0", "--brokers", "2", "--no-restart", *QUICK
    ) as cluster:
        survivor, victim = cluster.pids()
        os.kill(victim, signal.SIGKILL)
        assert "it is left down" in cluster.wait_for("was killed")
        os.kill(survivor, 0)
        assert cluster.stop() == 0


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    arguments = ("--port", "0", "--data-dir", tmp_path / "d")
    with DevCluster(tmp_path / "ready.json", *arguments) as cluster:
        with DevCluster(tmp_path / "other.json", *arguments, waits=False) as second:
            assert second.wait() == 3
            assert second.lines == [
                f"dlog: {tmp_path / 'd'} is in use by another dlog dev; stop it, or name another --data-dir"
            ]
        assert not (tmp_path / "other.json").exists()
        assert cluster.stop() == 0


def test_settings_reach_the_brokers(tmp_path: Path) -> None:
    with DevCluster(
        tmp_path / "ready.json", "--port", "0", "--data-dir", tmp_path / "d", "--set", "log.format=json"
    ) as cluster:
        assert cluster.stop() == 0
    lines = (tmp_path / "d" / "node-1.log").read_text(encoding="utf-8").splitlines()
    assert lines
    assert all(json.loads(line)["node"] == 1 for line in lines)
