"""The clients as processes: started once per test run, asked by JSON lines, one alone or all at once."""

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.compat.broker.install import KAFKAJS

ROOT = Path(__file__).parents[3]
TIMEOUT_SECONDS = 60.0
PROGRAMS: Mapping[str, list[str]] = {
    "confluent-kafka": [sys.executable, "-m", "tests.compat.broker.programs.confluent"],
    "aiokafka": [sys.executable, "-m", "tests.compat.broker.programs.aiokafka_client"],
    "kafka-python": [sys.executable, "-m", "tests.compat.broker.programs.kafka_python"],
    "KafkaJS": ["node", str(KAFKAJS / "client.js")],
    "distributedlog": [sys.executable, "-m", "tests.compat.broker.programs.ours"],
    "kcat": [sys.executable, "-m", "tests.compat.broker.programs.kcat"],
}
CLIENTS = tuple(PROGRAMS)


class ClientError(Exception):
    """A client's own refusal, with the protocol's error code if it told one."""

    def __init__(self, client: str, code: int | None, text: str) -> None:
        super().__init__(f"{client}: {text} (error code {code})")
        self.code = code


class ClientProcess:
    def __init__(self, name: str, bootstrap: str, log: Path) -> None:
        self.name = name
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            [*PROGRAMS[name], bootstrap],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
        )  # fmt: skip
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(None)

    def ask(self, op: str, **fields: Any) -> Any:
        """Its answer; raises what it refused."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"op": op, **fields}) + "\n")
        self._process.stdin.flush()
        line = self._answers.get(timeout=TIMEOUT_SECONDS)
        assert line is not None, f"{self.name} ended; see {self._log.name}"
        answer = json.loads(line)
        if "error" in answer:
            raise ClientError(self.name, answer["error"]["code"], answer["error"]["text"])
        return answer["ok"]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(TIMEOUT_SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()


class Clients:
    """Each client's process, started when it is first asked."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._bootstrap = bootstrap
        self._directory = directory
        self._running: dict[str, ClientProcess] = {}
        self._pool = ThreadPoolExecutor(len(CLIENTS))

    def __getitem__(self, name: str) -> ClientProcess:
        if name not in self._running:
            self._running[name] = ClientProcess(name, self._bootstrap, self._directory / f"{name}.log")
        return self._running[name]

    def ask_all(self, op: str, **fields: Any) -> Iterator[tuple[str, Any]]:
        """Every client's answer, or what it raised, asked at the same time."""
        asked = {name: self._pool.submit(self[name].ask, op, **fields) for name in CLIENTS}
        for name, answer in asked.items():
            failed = answer.exception()
            yield name, failed if failed is not None else answer.result()

    def close(self) -> None:
        self._pool.shutdown()
        for client in self._running.values():
            client.close()
