"""`dlog dev` as the demo runs it: a process of its own, whose broker is killed in the middle."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TIMEOUT_SECONDS = 60.0
LOOK_SECONDS = 0.05


class Cluster:
    """One broker, kept alive by `dlog dev`; a context manager."""

    def __init__(self, directory: Path) -> None:
        self._ready_file = directory / "ready.json"
        self._log = (directory / "dlog-dev.log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "distributedlog.cli.main", "dev", "--port", "0",
             "--data-dir", str(directory / "data"), "--ready-file", str(self._ready_file)],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
        )  # fmt: skip
        self.kills = 0

    def __enter__(self) -> "Cluster":
        try:
            self._wait(lambda facts: bool(facts))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()

    @property
    def bootstrap(self) -> str:
        return str(self._facts()["bootstrap"])

    @property
    def pid(self) -> int:
        return int(self._facts()["brokers"][0]["pid"])

    def kill(self) -> int:
        """SIGKILL for the broker; `dlog dev` starts it again after a second."""
        victim = self.pid
        os.kill(victim, signal.SIGKILL)
        self.kills += 1
        return victim

    def wait_for_another(self, than: int) -> int:
        self._wait(lambda facts: facts["brokers"][0]["pid"] != than)
        return self.pid

    def _facts(self) -> Any:
        return json.loads(self._ready_file.read_text(encoding="utf-8"))

    def _wait(self, is_so: Any) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            if self._ready_file.exists() and is_so(self._facts()):
                return
            if self._process.poll() is not None:
                raise RuntimeError(f"dlog dev ended with {self._process.returncode}; see {self._log.name}")
            if time.monotonic() > deadline:
                raise TimeoutError("the broker did not serve within a minute")
            time.sleep(LOOK_SECONDS)
