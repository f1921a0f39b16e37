"""Three Raft nodes as real processes on real disks and sockets, whose leaders are killed in turn."""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

KILLS = 20 if os.environ.get("DLOG_SOAK") else 4
VALUES_BETWEEN_KILLS = 40
TIMEOUT_SECONDS = 30.0


class NodeProcess:
    def __init__(
        self, node_id: int, directory: Path, events: "queue.Queue[tuple[int, dict[str, Any]]]"
    ) -> None:
        self.node_id = node_id
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.system.raft_node", str(node_id), str(directory)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.address = json.loads(self.process.stdout.readline())["address"]
        self._reader = threading.Thread(target=self._read, args=(events,), daemon=True)
        self._reader.start()

    def _read(self, events: "queue.Queue[tuple[int, dict[str, Any]]]") -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(json.JSONDecodeError):  # killed in the middle of a line
                events.put((self.node_id, json.loads(line)))

    def tell(self, **what: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """The hard way; what it had said before still counts."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


class Cluster:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.events: queue.Queue[tuple[int, dict[str, Any]]] = queue.Queue()
        self.nodes: dict[int, NodeProcess] = {}
        self.acked: list[str] = []
        self.terms: dict[int, int] = {}
        for node_id in (1, 2, 3):
            self.start(node_id)
        self.introduce()

    def start(self, node_id: int) -> None:
        self.nodes[node_id] = NodeProcess(node_id, self.directory / str(node_id), self.events)

    def introduce(self) -> None:
        peers = {str(node_id): node.address for node_id, node in self.nodes.items()}
        for node in self.nodes.values():
            node.tell(peers=peers)

    def next_event(self, deadline: float) -> tuple[int, dict[str, Any]]:
        node_id, event = self.events.get(timeout=max(0.1, deadline - time.monotonic()))
        assert "failed" not in event, event
        if "acked" in event:
            self.acked.append(event["acked"])
        if "leading" in event:
            assert self.terms.setdefault(event["leading"], node_id) == node_id, "two leaders in one term"
        return node_id, event

    def wait_for_acks(self, count: int) -> int:
        """Until so many more values were acknowledged; who acknowledged the last."""
        wanted, deadline = len(self.acked) + count, time.monotonic() + TIMEOUT_SECONDS
        while True:
            node_id, _ = self.next_event(deadline)
            if len(self.acked) >= wanted:
                return node_id

    def applied(self, node_id: int) -> list[str]:
        self.nodes[node_id].tell(show=True)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            sender, event = self.next_event(deadline)
            if sender == node_id and "applied" in event:
                values: list[str] = event["applied"]
                return values

    def close(self) -> None:
        for node in self.nodes.values():
            node.kill()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def test_no_acknowledged_value_is_lost_or_doubled_while_leaders_are_killed(cluster: Cluster) -> None:
    for _ in range(KILLS):
        leader = cluster.wait_for_acks(VALUES_BETWEEN_KILLS)
        cluster.nodes[leader].kill()
        cluster.start(leader)
        cluster.introduce()
    cluster.wait_for_acks(VALUES_BETWEEN_KILLS)
    promised = list(cluster.acked)
    logs = {node_id: cluster.applied(node_id) for node_id in cluster.nodes}
    while any(set(promised) - set(log) for log in logs.values()):  # followers apply a little later
        cluster.wait_for_acks(1)
        logs = {node_id: cluster.applied(node_id) for node_id in cluster.nodes}
    shortest = min(map(len, logs.values()))
    assert len({tuple(log[:shortest]) for log in logs.values()}) == 1
    for log in logs.values():
        assert len(log) == len(set(log))
        for node_id in cluster.nodes:  # what one node was told comes to us in order; of two, perhaps not
            own = [value for value in promised if value.startswith(f"{node_id}-")]
            assert [value for value in log if value in set(own)] == own
    assert len(cluster.terms) > KILLS // 2
