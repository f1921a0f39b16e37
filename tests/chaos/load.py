"""The clients of a run: what they tell is taken in, and one that ends before it is told to is replaced.

A client that ends by itself has met what it may never meet (an offset out of range, a fatal error); that is
noted with what it said.  The one that takes its place has a name of its own, since it begins anew.
"""

import contextlib
import queue
import subprocess
import time
from pathlib import Path
from typing import NamedTuple, Self

from tests.reliability.history import Outcome
from tests.reliability.load import TIMEOUT_SECONDS
from tests.reliability.programs.stopping import ASK_TASKS, ASK_THREADS
from tests.system.group_load import GroupLoad

END_SECONDS = 5.0
SAID_MAX = 2_000


class EndedClient(NamedTuple):
    name: str
    exit_code: int
    said: str


class ChaosLoad(GroupLoad):
    """A load under which clients may end."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, directory: Path) -> None:
        super().__init__(bootstrap, topic, partitions, directory)
        self.failed: list[EndedClient] = []
        self._programs: dict[str, str] = {}
        self._topics: dict[str, str | None] = {}
        self.last_success_ns: dict[str, int] = {}

    def start(self, program: str, name: str, topic: str | None = None) -> None:
        self._programs[name], self._topics[name] = program, topic
        super().start(program, name, topic)

    def __enter__(self) -> Self:
        return self

    def names(self, prefix: str) -> list[str]:
        """The clients whose program's name begins so, and that have not been told to stop."""
        return [name for name in self._clients if self._programs[name].startswith(prefix)]

    def _gather(self, line: str) -> None:
        told = self.gathered.add(line)
        if told["did"] == "poll" or (told["did"] == "sent" and told["outcome"] == Outcome.OK):
            self.last_success_ns[told["process"]] = told["at"]

    def take(self, seconds: float) -> None:
        """Takes in what is told for so long."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                line = self._lines.get(timeout=min(left, 0.2))
                if line is not None:
                    self._gather(line)
                elif self._ends_expected:
                    self._ends_expected -= 1
                    self._open -= 1
                else:
                    self._open -= 1
                    self._replace_those_ended()

    def _replace_those_ended(self) -> None:
        """A client's output has ended, so that its process has ended or is about to."""
        deadline, ended = time.monotonic() + END_SECONDS, list[str]()
        while not ended and time.monotonic() < deadline:
            ended = [name for name, client in self._clients.items() if client.poll() is not None]
            if not ended:
                time.sleep(0.01)
        self._ends_expected += max(0, len(ended) - 1)  # their outputs are still to end
        for name in ended:
            self._note_end(name)
            self._start_in_its_place(name)

    def _start_in_its_place(self, name: str) -> None:
        self.start(self._programs[name], _renamed(name), self._topics[name])

    def _note_end(self, name: str) -> None:
        client = self._clients.pop(name)
        said = (self._directory / f"{name}.err").read_text(encoding="utf-8")
        self.failed.append(EndedClient(name, client.wait(TIMEOUT_SECONDS), said[-SAID_MAX:]))
        self._killed.append(client)

    def all_get_on(self, seconds: float) -> list[str]:
        """Waits until each client has sent or read something from now on; those that have not by then."""
        now_ns, waiting = time.monotonic_ns(), set(self._clients)
        deadline = time.monotonic() + seconds
        while waiting and time.monotonic() < deadline:
            self.take(0.2)
            waiting = {name for name in self._clients if self.last_success_ns.get(name, 0) < now_ns}
        return sorted(waiting)

    def tell_to_stop(self, name: str) -> None:
        client = self._clients[name]
        assert client.stdin is not None
        client.stdin.close()

    def take_until_stopped(self, prefix: str, seconds: float) -> None:
        """Takes in what is told until all clients of these programs have ended, as they were told to."""
        deadline = time.monotonic() + seconds
        self._ends_expected += len(self.names(prefix))
        while time.monotonic() < deadline and self.names(prefix):
            self.take(0.2)
            for name in self.names(prefix):
                code = self._clients[name].poll()
                if code:
                    self._note_end(name)
                elif code == 0:
                    self._killed.append(self._clients.pop(name))

    def finish(self) -> None:
        """All that still run are told to stop; one that does not end well is noted."""
        for name in self._clients:
            self.tell_to_stop(name)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while self._open and time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                line = self._lines.get(timeout=1)
                if line is None:
                    self._open -= 1
                else:
                    self._gather(line)
        for name, client in list(self._clients.items()):
            with contextlib.suppress(subprocess.TimeoutExpired):
                if client.wait(1) == 0:
                    continue
            self._ask_where_it_stands(client)
            client.kill()
            self._note_end(name)

    def _ask_where_it_stands(self, client: "subprocess.Popen[str]") -> None:
        """It says so in its `.err`, if it still can; one that has ended is not asked."""
        for each in (ASK_THREADS, ASK_TASKS):
            client.send_signal(each)
            with contextlib.suppress(subprocess.TimeoutExpired):
                client.wait(1)


def _renamed(name: str) -> str:
    """The name of the one that takes its place; a member of a group is GROUP.MEMBER.STRATEGY."""
    parts = name.split(".")
    parts[len(parts) // 2] += "+"
    return ".".join(parts)
