"""One broker, one good client beside it, and what both have to say after an enemy has been there.

    with stage.meanwhile("half frames") as seen:
        ...the enemy...
    seen.check()        the good client was served, the broker kept to its memory

The broker's limits are small, so that the tests reach them: what it may hold of requests and of answers, how
long a client may take, how many connections an address may have.
"""

import asyncio
import json
import re
import select
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from distributedlog.client.admin.admin import Admin, NewTopic
from distributedlog.model.config import MIB
from tests.bench.control import rss_mb
from tests.system.server_process import TIMEOUT_SECONDS, ServerProcess

TOPIC: Final = "good"
PLAIN: Final = "plain"
COMPACTED: Final = "compacted"
QUEUED_MB: Final = 32
OPENED_MB: Final = 32
RSS_GROWTH_MB_MAX: Final = 2 * QUEUED_MB + 2 * 2 * OPENED_MB + 256
"""What all enemies together may cost: what is queued of requests and of responses, two batches that are
opened (each twice for a moment), some thousand connections, and what an allocator does not give back: on a
busy machine that is twice as much as on a quiet one."""
WAIT_MS_MAX: Final = 10_000
"""No operation of the good client takes longer, however busy the machine that the tests run on."""
SETTINGS: Final[Mapping[str, object]] = {
    "queued.bytes.max": QUEUED_MB * MIB,
    "queued.bytes.per.connection.max": 8 * MIB,
    "connection.setup.timeout.ms": 2_000,
    "request.timeout.ms": 5_000,
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
}


@dataclass
class Seen:
    """What the good client saw, and what memory the broker had at most, while something went on."""

    report: dict[str, Any] = field(default_factory=dict)
    rss_growth_mb: float = 0.0

    def check(self) -> None:
        assert self.report["failures"] == [], self.report
        assert self.report["operations"] > 0, self.report
        assert self.report["max_ms"] <= WAIT_MS_MAX, self.report
        assert self.rss_growth_mb <= RSS_GROWTH_MB_MAX, self

    @property
    def figures(self) -> str:
        return (
            f"p50 {self.report['p50_ms']:.1f} ms, p99 {self.report['p99_ms']:.1f} ms, "
            f"longest {self.report['max_ms']:.0f} ms of {self.report['operations']} operations; "
            f"{self.rss_growth_mb:+.0f} MB"
        )


class GoodClient:
    """The process of a client that does nothing wrong (`good_client`), and what it reports of each phase."""

    def __init__(self, address: str, topic: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.system.good_client", address, topic],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2):  # what is imported on first use is there after the first
            self.next_phase("warm-up")
            time.sleep(0.2)

    def next_phase(self, name: str) -> dict[str, Any]:
        """Begins a phase; the report of the one before."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        seen, _, _ = select.select([self._process.stdout], [], [], TIMEOUT_SECONDS)
        assert seen, "the good client is silent"
        line = self._process.stdout.readline()
        assert line, "the good client has ended"
        report: dict[str, Any] = json.loads(line)
        return report

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


class HostileStage:
    """A context manager."""

    def __init__(self, directory: Path, settings: Mapping[str, object] | None = None) -> None:
        self.server = ServerProcess(directory, {**SETTINGS, **(settings or {})})
        self._good: GoodClient | None = None
        self.rss_before_mb = 0.0

    @property
    def address(self) -> str:
        address = self.server.facts["client"]
        assert isinstance(address, str)
        return address

    @property
    def pid(self) -> int:
        assert self.server.process is not None
        return self.server.process.pid

    def __enter__(self) -> "HostileStage":
        self.server.__enter__()
        try:
            asyncio.run(self._make_topics())
            self._good = GoodClient(self.address, TOPIC)
            self.rss_before_mb = rss_mb(self.pid)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        if self._good is not None:
            self._good.close()
            self._good = None
        self.server.__exit__(None, None, None)

    async def _make_topics(self) -> None:
        async with Admin.connect(self.address) as admin:
            await admin.create_topic(NewTopic(TOPIC, 1, 1))
            await admin.create_topic(NewTopic(PLAIN, 1, 1))
            await admin.create_topic(NewTopic(COMPACTED, 1, 1, {"cleanup.policy": "compact"}))

    def make_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        async def make() -> None:
            async with Admin.connect(self.address) as admin:
                await admin.create_topic(NewTopic(name, partitions, 1, dict(config)))

        asyncio.run(make())

    # --- the good client -----------------------------------------------------------------------

    @contextmanager
    def meanwhile(self, name: str) -> Iterator[Seen]:
        seen = Seen()
        reset_peak(self.pid)
        assert self._good is not None
        self._good.next_phase(name)
        yield seen
        seen.report = self._good.next_phase("between")
        seen.rss_growth_mb = peak_mb(self.pid) - self.rss_before_mb

    def quiet(self, seconds: float) -> Seen:
        with self.meanwhile("quiet") as seen:
            time.sleep(seconds)
        return seen

    # --- what the broker says ------------------------------------------------------------------

    def log_lines_about(self, host: str) -> list[str]:
        """The lines of the log about this address."""
        about = re.compile(rf"(?<![\d.]){re.escape(host)}: ")
        return [line for line in self.server.log.splitlines() if about.search(line)]

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://{self.server.facts['ops']}/metrics", timeout=30) as answer:
            text: str = answer.read().decode()
            return text

    def closed_for(self, reason: str) -> int:
        """How many connections the broker has ended for this reason."""
        found = re.search(
            rf'dlog_connections_closed_total{{[^}}]*reason="{reason}"}} ([\d.e+]+)', self.metrics()
        )
        return 0 if found is None else int(float(found[1]))


def reset_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_mb(pid: int) -> float:
    """The most memory that was resident since `reset_peak`."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"process {pid} has no memory")
