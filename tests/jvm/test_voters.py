"""`kafka-metadata-quorum`: its own `add-controller` and `remove-controller`, on a node that stands by."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jvm.tools import QUORUM, KafkaTools
from tests.ports import free_port
from tests.system.server_process import ServerProcess, secret_in


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[KafkaTools, ServerProcess]]:
    """The tools, told of a node that founded its cluster alone; and one that stands by."""
    founding, joining = free_port(), free_port()
    common = {
        "cluster.id": "growing", "controller.quorum.voters": f"1@127.0.0.1:{founding}",
        "process.roles": "broker,controller", "cluster.secret.file": secret_in(tmp_path),
        "drain.timeout.ms": 500,
    }  # fmt: skip
    first = {**common, "node.id": 1, "control.listener": f"127.0.0.1:{founding}"}
    second = {**common, "node.id": 2, "control.listener": f"127.0.0.1:{joining}"}
    with ServerProcess(tmp_path / "1", first) as one, ServerProcess(tmp_path / "2", second) as two:
        yield KafkaTools(str(one.facts["client"]), tmp_path), two


def directory_of(node: ServerProcess) -> str:
    """What `meta.properties`, which is Kafka's file, calls the directory."""
    lines = (node.directory / "data" / "meta.properties").read_text(encoding="utf-8").splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith("directory.id="))


def test_a_controller_is_added_and_removed(pair: tuple[KafkaTools, ServerProcess], tmp_path: Path) -> None:
    tools, joining = pair
    address = joining.settings["control.listener"]
    config = tmp_path / "controller.properties"
    config.write_text(
        "process.roles=controller\nnode.id=2\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=CONTROLLER://{address}\nlog.dirs={joining.directory / 'data'}\n"
        f"controller.quorum.bootstrap.servers={address}\n",
        encoding="utf-8",
    )
    said = tools.run(QUORUM, "--command-config", config, "add-controller")
    assert "Added controller 2" in said
    voters = "".join(line for line in status(tools) if line.startswith("CurrentVoters"))
    assert all(f'"id": {number}' in voters for number in (1, 2))
    assert directory_of(joining) in voters
    again = tools.try_to(QUORUM, "--command-config", config, "add-controller")
    assert again.code != 0
    assert "DuplicateVoterException" in again.err + again.out
    which = ("--controller-id", 2, "--controller-directory-id", directory_of(joining))
    assert "Removed" in tools.run(QUORUM, "remove-controller", *which)
    voters = "".join(line for line in status(tools) if line.startswith("CurrentVoters"))
    assert '"id": 2' not in voters
    again = tools.try_to(QUORUM, "remove-controller", *which)
    assert again.code != 0
    assert "VoterNotFoundException" in again.err + again.out


def status(tools: KafkaTools) -> list[str]:
    return tools.run(QUORUM, "describe", "--status").splitlines()
