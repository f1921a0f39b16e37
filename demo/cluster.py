"""`dlog dev` as the demo runs it: three brokers, of which the one that leads is killed in the middle."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

BROKERS = 3
TIMEOUT_SECONDS = 60.0
LOOK_SECONDS = 0.05


class Cluster:
    """Three brokers, kept alive by `dlog dev`; a context manager."""

    def __init__(self, directory: Path) -> None:
        self._ready_file = directory / "ready.json"
        self._log = (directory / "dlog-dev.log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "distributedlog.cli.main", "dev", "--port", "0", "--brokers", str(BROKERS),
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

    def pid(self, broker: int) -> int:
        return _pid(self._facts(), broker)

    def leader(self, topic: str) -> int:
        """Returns who leads the topic's first partition; waits for somebody to."""
        settings = {"bootstrap.servers": self.bootstrap, "log_level": 0, "error_cb": lambda _: None}
        admin = AdminClient(settings)  # type: ignore[arg-type]
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(KafkaException):
                found = admin.list_topics(topic, timeout=5).topics[topic].partitions.get(0)
                if found is not None and found.leader >= 0:
                    return int(found.leader)
            time.sleep(LOOK_SECONDS)
        raise TimeoutError(f"nobody led {topic} within a minute")

    def kill(self, broker: int) -> int:
        """SIGKILL for a broker; `dlog dev` starts it again after a second."""
        victim = self.pid(broker)
        os.kill(victim, signal.SIGKILL)
        self.kills += 1
        return victim

    def wait_for_another(self, broker: int, than: int) -> int:
        self._wait(lambda facts: _pid(facts, broker) != than)
        return self.pid(broker)

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
                raise TimeoutError("the brokers did not serve within a minute")
            time.sleep(LOOK_SECONDS)


def _pid(facts: Any, broker: int) -> int:
    (pid,) = (each["pid"] for each in facts["brokers"] if each["id"] == broker)
    return int(pid)
