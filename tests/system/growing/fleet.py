"""Nodes that come and go: each a process, set up as docs/administration.md has it, and what an operator does.

Everything but starting and stopping processes is done by the `dlog` command.
"""

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.ports import free_port
from tests.system.server_process import DLOG, ServerProcess, options, secret_in

COMMAND_SECONDS = 300.0
"""Bounds what waits for partitions that move, on any machine."""
STANDBY_SECONDS = 90.0
LOOK_SECONDS = 0.2
FIRST = 1
COMMON: Mapping[str, object] = {
    "cluster.id": "growing",
    "offsets.topic.num.partitions": 6,
    "transaction.state.log.num.partitions": 6,
    "group.min.session.timeout.ms": 1_000,
    "group.initial.rebalance.delay.ms": 100,
    "auto.create.topics.enable": "false",
    "ops.listener": "none",
}


class Fleet:
    """A context manager: the first node serves, alone, when it is entered."""

    def __init__(self, directory: Path) -> None:
        self.nodes: dict[int, ServerProcess] = {}
        """Those that run."""
        self.voters: set[int] = {FIRST}
        self.commands: list[tuple[str, float]] = []
        """What the operator did, and how many seconds it took."""
        self._directory = directory
        self._secret = secret_in(directory)
        self._control: dict[int, str] = {}
        self._stack = ExitStack()
        self._gone: list[tuple[int, int]] = []

    def __enter__(self) -> Self:
        self.start(FIRST)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(str(node.facts["client"]) for node in self.nodes.values())

    @property
    def ended(self) -> list[tuple[int, int]]:
        """Nodes that ended by themselves, or not well, and their exit codes."""
        codes = ((each, node.process.poll()) for each, node in self.nodes.items() if node.process is not None)
        return self._gone + [(each, code) for each, code in codes if code is not None]

    # --- processes -----------------------------------------------------------------------------

    def start(self, *node_ids: int) -> None:
        """Starts nodes at the same time; they know who votes now, and are no voters but for the first."""
        for each in node_ids:
            self._control[each] = f"127.0.0.1:{free_port()}"
        started = {
            each: ServerProcess(self._directory / f"node-{each}", self._settings(each), waits=False)
            for each in node_ids
        }
        for node in started.values():
            self._stack.enter_context(node)
        for each, node in started.items():
            node.wait_until_ready()
            self.nodes[each] = node

    def _settings(self, node_id: int) -> dict[str, object]:
        return {
            **COMMON,
            "node.id": node_id,
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}",
            "control.listener": self._control[node_id],
            "controller.quorum.voters": self._name_voters(),
            "cluster.secret.file": self._secret,
        }

    def _name_voters(self) -> str:
        return ",".join(f"{each}@{self._control[each]}" for each in sorted(self.voters))

    def stop(self, node_id: int) -> None:
        node = self.nodes.pop(node_id)
        code = node.stop(signal.SIGTERM)
        if code != 0:
            self._gone.append((node_id, code))

    def replace_disk(self, node_id: int) -> None:
        """Kills a node and makes another on an empty disk, which votes in its place."""
        node = self.nodes.pop(node_id)
        node.stop(signal.SIGKILL)
        shutil.rmtree(node.directory / "data")
        node.settings["controller.quorum.voters"] = self._name_voters()  # the first node named itself alone
        made = ("--no-initial-controllers", "--cluster-id", COMMON["cluster.id"])
        self.dlog("server", "format", *made, *options(node.settings), is_offline=True)
        node.restart()
        self.nodes[node_id] = node
        self.remove_voter(node_id)
        self.add_voter(node_id)

    # --- the operator's commands ---------------------------------------------------------------

    def dlog(self, *arguments: object, codes: Collection[int] = (0,), is_offline: bool = False) -> str:
        """Runs a command, on the cluster unless that has no part in it; what it said on stdout."""
        words = [str(each) for each in arguments]
        begun = time.monotonic()
        said = subprocess.run(
            [*DLOG, *words, *(() if is_offline else ("--bootstrap", self.bootstrap))],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS,
        )  # fmt: skip
        self.commands.append((" ".join(words), time.monotonic() - begun))
        assert said.returncode in codes, (
            f"dlog {' '.join(words)}: {said.returncode}\n{said.stdout}{said.stderr}"
        )
        return said.stdout

    def rows(self, *arguments: object, codes: Collection[int] = (0,)) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.dlog(*arguments, "-o", "json", codes=codes).splitlines()]

    def create_topic(self, name: str, partitions: int, replicas: int, config: Mapping[str, str]) -> None:
        settings = [part for key, value in config.items() for part in ("-c", f"{key}={value}")]
        self.dlog("topic", "create", name, "-p", partitions, "-r", replicas, *settings)

    def roles(self) -> dict[int, str]:
        """Each controller: whether it leads, votes or stands by."""
        return {row["node"]: row["role"] for row in self.rows("cluster", "voters", "list")}

    def directory_ids(self) -> dict[int, str]:
        return {row["node"]: row["directory_id"] for row in self.rows("cluster", "voters", "list")}

    def active_controller(self) -> int:
        (leader,) = [node for node, role in self.roles().items() if role == "leader"]
        return leader

    def add_voter(self, node_id: int) -> None:
        give_up = time.monotonic() + STANDBY_SECONDS
        while self.roles().get(node_id) != "standby":
            assert time.monotonic() < give_up, f"node {node_id} does not stand by"
            time.sleep(LOOK_SECONDS)
        self.dlog("cluster", "voters", "add", node_id)
        self.voters.add(node_id)

    def remove_voter(self, node_id: int) -> None:
        self.dlog("cluster", "voters", "remove", node_id, "--yes")
        self.voters.remove(node_id)

    def unregister(self, node_id: int) -> None:
        self.dlog("cluster", "unregister", node_id, "--yes")
