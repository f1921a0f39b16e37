"""Members of groups under load, some of which are killed; and what the group has read in the end."""

import signal
import subprocess
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, TopicPartition

from tests.reliability.checker import ALWAYS, IDEMPOTENT, WHOLE, check, describe
from tests.reliability.history import History, Place
from tests.reliability.load import TIMEOUT_SECONDS, Load, final_read


class GroupLoad(Load):
    """A load of which members may be killed, and asked whether they have come to own something."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, directory: Path) -> None:
        super().__init__(bootstrap, topic, partitions, directory)
        self._killed: list[subprocess.Popen[str]] = []
        self._ends_expected = 0
        self._partitions = partitions

    def kill(self, name: str) -> None:
        client = self._clients.pop(name)
        client.kill()
        client.wait()
        self._killed.append(client)
        self._ends_expected += 1

    def leave(self, name: str) -> None:
        """It stops as it should, and so says that it goes."""
        client = self._clients.pop(name)
        assert client.stdin is not None
        client.stdin.close()
        assert client.wait(TIMEOUT_SECONDS) == 0
        self._killed.append(client)
        self._ends_expected += 1

    def doze(self, name: str, seconds: float) -> None:
        """It stops polling for a while, and is alive all the time."""
        client = self._clients[name]
        assert client.stdin is not None
        client.stdin.write(f"doze {seconds}\n")
        client.stdin.flush()

    def stop_still(self, name: str) -> None:
        """Nothing of its process runs."""
        self._clients[name].send_signal(signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        self._clients[name].send_signal(signal.SIGCONT)

    def next_told(self, deadline: float) -> dict[str, Any]:
        line = self._lines.get(timeout=max(0.1, deadline - time.monotonic()))
        while line is None and self._ends_expected:
            self._ends_expected -= 1
            self._open -= 1
            line = self._lines.get(timeout=max(0.1, deadline - time.monotonic()))
        assert line is not None, f"a client ended: {self._ended()}"
        return self.gathered.add(line)

    def wait_for_owners(self, *names: str, least: int = 1) -> None:
        """Until one generation has given every partition to these members, each of them so many at least."""
        owned: dict[int, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            told = self.next_told(deadline)
            if told["did"] != "owned" or told["member"] not in names:
                continue
            members = owned[told["generation"]]
            members[told["member"]].add(told["place"][1])
            covered = set().union(*members.values())
            if len(covered) == self._partitions and all(len(members[name]) >= least for name in names):
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        for client in self._killed:
            for stream in (client.stdin, client.stdout):
                assert stream is not None
                stream.close()


def committed(bootstrap: str, group: str, topic: str, partitions: int) -> dict[Place, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = [TopicPartition(topic, partition) for partition in range(partitions)]
    found = consumer.committed(places, timeout=TIMEOUT_SECONDS)
    consumer.close()
    return {Place(each.topic, each.partition): each.offset for each in found}


def skipped(history: History, group: str, positions: dict[Place, int]) -> dict[Place, list[int]]:
    """Offsets that the group says it has read and that no member was given."""
    polled: dict[Place, set[int]] = defaultdict(set)
    for poll in history.polls:
        if poll.process.startswith(f"{group}."):
            polled[poll.place].update(seen.offset for seen in poll.records)
    missing = {place: sorted(set(range(end)) - polled[place]) for place, end in positions.items()}
    return {place: offsets for place, offsets in missing.items() if offsets}


def judge(load: GroupLoad, bootstrap: str, group: str, topic: str, partitions: int) -> None:
    """Ends the load: nothing that must not happen has, and no acknowledged position skips a record."""
    history = replace(load.stop(), final=final_read(bootstrap, topic, partitions))
    findings = check(history, {**ALWAYS, **IDEMPOTENT, **WHOLE})
    assert not findings, describe(findings)
    positions = committed(bootstrap, group, topic, partitions)
    assert all(position > 0 for position in positions.values()), positions
    assert not skipped(history, group, positions)
    assert history.owned
    assert {position.what for position in history.positions} >= {group}
