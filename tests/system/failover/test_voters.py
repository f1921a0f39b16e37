"""Voters come and go: one node becomes three without a stop, a lost disk is replaced, who left does no harm.

Real processes.  The first is started alone, as anybody would; the two others know nothing but its address.
"""

import json
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from distributedlog import Admin, Producer
from distributedlog.client.admin.cluster import QuorumView
from distributedlog.model.errors import DlogError
from tests.ports import free_port
from tests.system.server_process import TIMEOUT_SECONDS, ServerProcess, dlog, options, secret_in

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
TOPIC = "kept"


def voters(bootstrap: str) -> dict[str, list[int]]:
    """The nodes in each role, as the command tells."""
    said = dlog("cluster", "voters", "list", "-b", bootstrap, "-o", "json")
    assert said.returncode == 0, said.stderr
    roles: dict[str, list[int]] = {"leader": [], "voter": [], "standby": []}
    for line in said.stdout.splitlines():
        told: dict[str, Any] = json.loads(line)
        roles[told["role"]].append(told["node"])
    return roles


def seen(bootstrap: str) -> QuorumView | None:
    """What a broker says of the quorum, if it can."""
    try:
        with Admin(bootstrap) as admin:
            return admin.describe_quorum()
    except DlogError:
        return None


def change(bootstrap: str, verb: str, node_id: int) -> None:
    extra = ("--yes",) if verb == "remove" else ()
    said = dlog("cluster", "voters", verb, str(node_id), "-b", bootstrap, *extra)
    assert said.returncode == 0, said.stderr


def refusal(bootstrap: str, verb: str, node_id: int) -> str:
    extra = ("--yes",) if verb == "remove" else ()
    said = dlog("cluster", "voters", verb, str(node_id), "-b", bootstrap, *extra)
    assert said.returncode != 0
    return said.stderr


def until(holds: Callable[[], bool]) -> None:
    """Asks until it is so: what is waited for is seen only from outside."""
    give_up = time.monotonic() + TIMEOUT_SECONDS
    while not holds():
        assert time.monotonic() < give_up
        time.sleep(0.1)


def is_standby(bootstrap: str, node_id: int) -> Callable[[], bool]:
    def holds() -> bool:
        view = seen(bootstrap)
        return (
            view is not None
            and node_id in {each.node_id for each in view.observers} & view.controllers.keys()
        )

    return holds


def produce(bootstrap: str, value: str) -> None:
    with Producer(bootstrap) as producer:
        producer.send(TOPIC, value).result(TIMEOUT_SECONDS)


def consume(bootstrap: str) -> list[str]:
    said = dlog("topic", "consume", TOPIC, "--from", "beginning", "-e", "-b", bootstrap)
    assert said.returncode == 0, said.stderr
    return said.stdout.split()


def leader(bootstrap: str) -> int | None:
    view = seen(bootstrap)
    return None if view is None else view.leader_id


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[ServerProcess]]:
    """One node that serves; two that are set up to follow it, and not started."""
    ports = [free_port() for _ in range(3)]
    common = {
        "cluster.id": "growing", "controller.quorum.voters": f"1@127.0.0.1:{ports[0]}",
        "process.roles": "broker,controller", "cluster.secret.file": secret_in(tmp_path),
        "drain.timeout.ms": 500,
    }  # fmt: skip
    made = [
        ServerProcess(
            tmp_path / str(number),
            {**common, "node.id": number, "control.listener": f"127.0.0.1:{port}"},
            waits=number == 1,
        )
        for number, port in enumerate(ports, 1)
    ]
    with ExitStack() as stack:
        stack.enter_context(made[0])
        for node in made[1:]:
            stack.callback(node.__exit__, None, None, None)
        yield made


def start(*nodes: ServerProcess) -> list[str]:
    """Starts them at the same time; where each serves clients."""
    for node in nodes:
        node.start()
    return [str(node.wait_until_ready()["client"]) for node in nodes]


def test_one_node_becomes_three_and_each_may_go(nodes: list[ServerProcess], tmp_path: Path) -> None:
    first, second, third = nodes
    at_first = str(first.facts["client"])
    assert voters(at_first) == {"leader": [1], "voter": [], "standby": []}
    assert "has not registered as a controller" in refusal(at_first, "add", 2)
    assert "last voter" in refusal(at_first, "remove", 1)

    at_second, at_third = start(second, third)
    for number in (2, 3):
        until(is_standby(at_second, number))
        change(at_second, "add", number)
    assert voters(at_first) == {"leader": [1], "voter": [2, 3], "standby": []}
    assert "is a voter already" in refusal(at_first, "add", 2)
    made = dlog("topic", "create", TOPIC, "-b", at_first, "-r", "3", "-c", "min.insync.replicas=2")
    assert made.returncode == 0, made.stderr
    produce(at_first, "one")

    # The first is killed: the two others elect one of them, and go on.
    first.stop(signal.SIGKILL)
    until(lambda: leader(at_third) in (2, 3))
    produce(at_third, "two")

    # Those that know the first alone by their settings are stopped too, and find each other again.
    for node in (second, third):
        node.stop(signal.SIGKILL)
    at_second, at_third = start(second, third)
    produce(at_second, "three")

    # The disk of the first is lost.  It does not found the cluster once more, though nobody else is named.
    shutil.rmtree(first.directory / "data")
    first.start()
    assert first.process is not None
    assert first.process.wait(TIMEOUT_SECONDS) == 2
    assert "dlog server format --no-initial-controllers" in first.log
    assert not (first.directory / "data" / "meta.properties").exists()
    joining = ("server", "format", "--no-initial-controllers")
    refused = dlog(*joining, *options(first.settings))
    assert "names nobody else: name the voters that are there" in refused.stderr

    # What comes in its place votes when it is removed and added, not before.
    addresses = ",".join(
        f"{node.settings['node.id']}@{node.settings['control.listener']}" for node in nodes[1:]
    )
    first.settings = {**first.settings, "controller.quorum.voters": addresses}
    assert dlog(*joining, *options(first.settings)).returncode == 0
    (at_first,) = start(first)
    until(lambda: "a storage that it has lost" in refusal(at_second, "add", 1))
    change(at_first, "remove", 1)
    until(is_standby(at_second, 1))
    change(at_first, "add", 1)
    assert sorted(voters(at_second)["voter"] + voters(at_second)["leader"]) == [1, 2, 3]

    # The one that leads is removed: it hands over.  Stopped and started again it harms nobody, and serves.
    gone = leader(at_first)
    assert gone is not None
    change(at_first, "remove", gone)
    nodes[gone - 1].stop()
    (at_gone,) = start(nodes[gone - 1])
    until(is_standby(at_gone, gone))
    assert leader(at_gone) not in (None, gone)
    assert consume(at_gone) == ["one", "two", "three"]
