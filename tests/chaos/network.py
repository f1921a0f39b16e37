"""The brokers' network as the run has it: the proxy's ports for every pair, and who is cut from whom."""

import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations
from types import TracebackType

from tests.ports import free_port
from tests.system.server_process import TIMEOUT_SECONDS

Way = tuple[int, int]


class Network:
    """A context manager.  Clients connect directly; only brokers reach each other through it."""

    def __init__(self, ids: Sequence[int], clients: Mapping[int, int], control: Mapping[int, int]) -> None:
        self.data_ports = {way: free_port() for way in permutations(ids, 2)}
        self.control_ports = {way: free_port() for way in permutations(ids, 2)}
        self._links = [
            f"{source},{target},{port},{ports[target]}"
            for listening, ports in ((self.data_ports, clients), (self.control_ports, control))
            for (source, target), port in listening.items()
        ]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "Network":
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.proxy", *self._links],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._await("ready")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate(timeout=TIMEOUT_SECONDS)

    def cut(self, ways: Iterable[Way]) -> None:
        """From the first to the second of each nothing goes any more."""
        for source, target in ways:
            self._tell(f"cut {source} {target}")

    def flap(self, ways: Iterable[Way], seconds: float) -> None:
        for source, target in ways:
            self._tell(f"flap {source} {target} {seconds}")

    def join(self, ways: Iterable[Way] | None = None) -> None:
        """Undoes that; everywhere if it is not said where."""
        for source, target in self.data_ports if ways is None else ways:
            self._tell(f"join {source} {target}")

    def _tell(self, command: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        self._await("done")

    def _await(self, answer: str) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line == answer, f"the proxy said {line!r} and not {answer!r}"
