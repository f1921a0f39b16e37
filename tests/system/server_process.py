"""`dlog server start` as a process of its own; it is waited for by its ready report on a pipe."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from distributedlog.settings.secret_file import make_secret_file

TIMEOUT_SECONDS = 60
DLOG = (sys.executable, "-m", "distributedlog.cli.main")
START = (*DLOG, "server", "start")


def dlog(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*DLOG, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )


def secret_in(directory: Path) -> Path:
    """A file with a cluster's secret, for all nodes of a test."""
    path = directory / "cluster.secret"
    make_secret_file(str(path))
    return path


def options(settings: Mapping[str, object]) -> list[str]:
    return [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]


class ServerProcess:
    """A context manager: serves when it is entered, is killed at the end if it has not stopped.  If it is the
    only voter of a cluster with a name, its first start founds that."""

    program: tuple[str, ...] = START

    def __init__(self, directory: Path, settings: Mapping[str, object], *, waits: bool = True) -> None:
        self.directory = directory
        self.settings = {
            "log.dirs": directory / "data",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "control.listener": "127.0.0.1:0",
            "ops.listener": "127.0.0.1:0",
            **settings,
        }
        self.environment: Mapping[str, str] | None = None
        """The environment of the next process; None: that of this one."""
        self.facts: dict[str, Any] = {}
        self._waits = waits
        self._pipe: int | None = None
        self.is_new = True
        """Whether it may found its cluster when it starts: earlier versions do so without being told."""
        self.process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()

    def start(self) -> None:
        reading, writing = os.pipe()
        new = ("--new-cluster",) if self.is_new and self.program == START else ()
        self.is_new = False
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(
                [*self.program, *new, f"--ready-fd={writing}", *options(self.settings)],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(writing,),
            )
        os.close(writing)
        self._pipe = reading

    def wait_until_ready(self) -> dict[str, Any]:
        assert self._pipe is not None
        reading, self._pipe = self._pipe, None
        with open(reading, "rb") as pipe:
            seen, _, _ = select.select([pipe], [], [], TIMEOUT_SECONDS)
            line = pipe.readline() if seen else b""
        assert line, f"it never served:\n{self.log}"
        self.facts = json.loads(line)
        return self.facts

    def stop(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        process, self.process = self.process, None
        return process.wait(TIMEOUT_SECONDS)

    def restart(self) -> dict[str, Any]:
        self.start()
        return self.wait_until_ready()

    def __enter__(self) -> "ServerProcess":
        self.start()
        if self._waits:
            try:
                self.wait_until_ready()
            except BaseException:
                self._end()
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
