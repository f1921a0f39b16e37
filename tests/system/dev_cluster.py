"""`dlog dev` as a process of its own, for tests that need a real cluster.

It is waited for by its lines on stderr, never by looking again and again.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

TIMEOUT_SECONDS = 60.0
ALL_SERVE = "brokers serve"


class DevCluster:
    """A context manager; the cluster serves when it is entered, unless told not to wait for that."""

    def __init__(self, ready_file: Path, *arguments: object, waits: bool = True) -> None:
        self.ready_file = ready_file
        self.lines: list[str] = []
        self._waits = waits
        self._fresh: queue.Queue[str | None] = queue.Queue()
        with heeding_interrupts():
            self.process = subprocess.Popen(
                [sys.executable, "-m", "distributedlog.cli.main", "dev", "--ready-file", str(ready_file)]
                + [str(argument) for argument in arguments],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._fresh.put(line.rstrip("\n"))
        self._fresh.put(None)

    def wait_for(self, part: str) -> str:
        """The next line that has this in it."""
        while True:
            line = self._fresh.get(timeout=TIMEOUT_SECONDS)
            assert line is not None, f"it ended without {part!r}:\n" + "\n".join(self.lines)
            self.lines.append(line)
            if part in line:
                return line

    def ready(self) -> dict[str, Any]:
        """What the ready file says now."""
        facts = json.loads(self.ready_file.read_text(encoding="utf-8"))
        assert isinstance(facts, dict)
        return facts

    def gateway(self) -> str:
        """Where the gateway is, once it serves."""
        if not any("the gateway serves" in line for line in self.lines):
            self.wait_for("the gateway serves")
        return str(self.ready()["gateway"])

    def pids(self) -> list[int]:
        return [broker["pid"] for broker in self.ready()["brokers"]]

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Its exit code; all it said is in `lines` then."""
        code = self.process.wait(TIMEOUT_SECONDS)
        self._reader.join(TIMEOUT_SECONDS)
        while (line := self._fresh.get(timeout=TIMEOUT_SECONDS)) is not None:
            self.lines.append(line)
        self._fresh.put(None)
        return code

    def __enter__(self) -> "DevCluster":
        if self._waits:
            try:
                self.wait_for(ALL_SERVE)
            except BaseException:
                self._end()
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(TIMEOUT_SECONDS)
        assert self.process.stderr is not None
        self.process.stderr.close()


@contextmanager
def heeding_interrupts() -> Iterator[None]:
    """A test run in the background ignores Ctrl-C, and what it starts would inherit that.

    Not changed between fork and exec: a fork of a process in which gRPC has threads may end the child.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
