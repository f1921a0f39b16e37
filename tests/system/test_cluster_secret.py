"""A cluster's secret is rotated while its nodes run, and a node that has the old one alone is kept out."""

import time
from pathlib import Path

import pytest

from distributedlog.settings.secret_file import new_secret
from tests.ports import free_port
from tests.system.server_process import TIMEOUT_SECONDS, ServerProcess, dlog

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def write(path: Path, *secrets: str) -> None:
    scratch = path.with_suffix(".new")
    scratch.touch(0o600)
    scratch.write_text("".join(secrets), encoding="ascii")
    scratch.rename(path)


def test_a_secret_is_rotated_without_a_restart_of_the_controller(tmp_path: Path) -> None:
    port, old, new = free_port(), new_secret(), new_secret()
    files = {1: tmp_path / "first.secret", 2: tmp_path / "second.secret"}
    for path in files.values():
        write(path, old)
    quorum: dict[str, object] = {
        "cluster.id": "rotating", "controller.quorum.voters": f"1@127.0.0.1:{port}",
        "drain.timeout.ms": 500,
    }  # fmt: skip
    controller = {
        **quorum, "node.id": 1, "process.roles": "controller", "control.listener": f"127.0.0.1:{port}",
        "cluster.secret.file": files[1], "broker.session.timeout.ms": 3000,
    }  # fmt: skip
    broker = {**quorum, "node.id": 2, "process.roles": "broker", "cluster.secret.file": files[2]}
    with ServerProcess(tmp_path / "1", controller) as first, ServerProcess(tmp_path / "2", broker) as second:
        for number, held in enumerate(((old, new), (new, old), (new,))):
            for path in files.values():
                write(path, *held)
                assert second.stop() == 0
                second.restart()  # so that it authenticates anew, against a controller that runs on
            made = dlog("topic", "create", f"t-{number}", "--bootstrap", second.facts["client"])
            assert made.returncode == 0, made.stderr
        assert first.log.count("the cluster secret was read again") == 3
        assert second.stop() == 0
        write(files[2], old)
        second.start()
        deadline = time.monotonic() + TIMEOUT_SECONDS
        told = "what answers as node 1 does not hold this cluster's secret"
        while told not in second.log and time.monotonic() < deadline:
            time.sleep(0.05)  # a process that cannot serve tells only its log
        assert told in second.log
        assert "the broker is serving" not in second.log.rpartition(told)[2]
