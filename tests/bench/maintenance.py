"""What compaction and retention cost those who produce meanwhile: p99 with and without them, in one run.

Two topics are written to all the time, one with keys that come again and again.  A paced producer writes to a
third and is timed.  In turns nothing is deleted or compacted, and then, by a change of the topics' settings
while all goes on, the one is compacted (in the child process) and the other is kept small; before each turn
both grow by the same number of bytes.  What counts is the median of the rounds' ratios: one slow moment of
the disk would else decide.  The metrics say how much of the maintenance really happened.  DLOG_BENCH_SECONDS
sets how long each turn lasts (6), DLOG_BENCH_ROUNDS how many of each there are (5).
"""

import asyncio
import os
import re
import tempfile
import threading
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from distributedlog.client.admin.admin import Admin, NewTopic
from distributedlog.model.config import MIB
from distributedlog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from distributedlog.records.record import Record, encode_batch
from tests.bench.broker import offer
from tests.bench.broker_load import CODE, Load, Outcome, connect, produce_code_at, produce_frame
from tests.bench.figures import Figure, Rounds, at_least, at_most
from tests.bench.harness import Bench
from tests.bench.topics import make_topics
from tests.system.enemies import NOW_MS, read_frame
from tests.system.server_process import ServerProcess

SECONDS: Final = float(os.environ.get("DLOG_BENCH_SECONDS", "6"))
ROUNDS: Final = int(os.environ.get("DLOG_BENCH_ROUNDS", "5"))
FLOOR_MS: Final = 5.0
KEYED, KEPT_SMALL, TIMED = "keyed", "kept-small", "timed"
GROWTH_BYTES: Final = 50_000_000
SETTLING_SECONDS: Final = 3.0
"""The pause after a change of settings: what was begun under those before is ended by then."""
SEGMENT_BYTES: Final = 8 * MIB
BATCHES_PER_SECOND: Final = 50
RATE: Final = 500
TOPIC: Final = 2
SET: Final = 0
EAGER: Final = {
    KEYED: {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    KEPT_SMALL: {"retention.bytes": str(SEGMENT_BYTES)},
}
LAZY: Final = {KEYED: {"cleanup.policy": "delete"}, KEPT_SMALL: {"retention.bytes": "-1"}}


def topics() -> list[NewTopic]:
    settings = {"segment.bytes": str(SEGMENT_BYTES), "file.delete.delay.ms": "1000"}
    return [NewTopic(name, 4 if name == TIMED else 1, 1, settings) for name in (KEYED, KEPT_SMALL, TIMED)]


async def set_all(address: str, settings: Mapping[str, Mapping[str, str]]) -> None:
    resources = [
        AlterConfigsResource(
            resource_type=TOPIC, resource_name=name,
            configs=[
                AlterableConfig(name=key, config_operation=SET, value=value) for key, value in changes.items()
            ],
        )
        for name, changes in settings.items()
    ]  # fmt: skip
    async with Admin.connect(address) as admin:
        connection = await admin.cluster.any_connection()
        request = IncrementalAlterConfigsRequest(resources=resources, validate_only=False)
        response = await connection.call(request, IncrementalAlterConfigsResponse, timeout_ms=30_000)
        assert all(each.error_code == 0 for each in response.responses), response


class Writer(threading.Thread):
    """Batches of 128 keyed records to both topics, at a fixed pace that is no load to speak of."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._frames = [
            (produce_frame(topic, 0, bytes(batch_of(number)), 1), produce_code_at(topic))
            for number in range(50)
            for topic in (KEYED, KEPT_SMALL)
        ]
        self._ends = threading.Event()

    def grow(self, total_bytes: int) -> None:
        with connect(self._port) as connection:
            sent = number = 0
            while sent < total_bytes:
                frame, code_at = self._frames[number % len(self._frames)]
                connection.sendall(frame)
                assert CODE.unpack_from(read_frame(connection), code_at - 4)[0] == 0
                sent += len(frame)
                number += 1

    def run(self) -> None:
        with connect(self._port) as connection:
            number = 0
            while not self._ends.wait(1 / BATCHES_PER_SECOND):
                frame, _ = self._frames[number % len(self._frames)]
                connection.sendall(frame)
                read_frame(connection)
                number += 1

    def stop(self) -> None:
        self._ends.set()
        self.join()


def batch_of(number: int) -> bytearray:
    records = [
        Record(os.urandom(400), b"key-%d" % (number * 128 + each), timestamp_ms=NOW_MS) for each in range(128)
    ]
    return encode_batch(records)


def paced(node: ServerProcess, port: int) -> Outcome:
    assert node.process is not None
    return offer(
        Load(
            kind="paced", port=port, pid=node.process.pid, topic=TIMED, record_bytes=1000, rate=RATE,
            seconds=SECONDS, acks=1,
        )
    )  # fmt: skip


def metric(node: ServerProcess, name: str) -> float:
    with urllib.request.urlopen(f"http://{node.facts['ops']}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = re.search(rf"^{re.escape(name)} ([\d.e+-]+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def run(bench: Bench) -> None:
    bench.case("compaction and retention", maintenance)


def maintenance() -> list[Figure]:
    settings = {"log.retention.check.interval.ms": 1_000}
    with (
        tempfile.TemporaryDirectory(prefix="dlog-bench-") as scratch,
        ServerProcess(Path(scratch), settings) as node,
    ):
        make_topics(node.facts["client"], *topics())
        port = int(node.facts["client"].rpartition(":")[2])
        writer = Writer(port)
        writer.start()
        quiet: list[Outcome] = []
        busy: list[Outcome] = []
        for _ in range(ROUNDS):
            for settings_of_topics, outcomes in ((LAZY, quiet), (EAGER, busy)):
                asyncio.run(set_all(node.facts["client"], settings_of_topics))
                time.sleep(SETTLING_SECONDS)
                writer.grow(GROWTH_BYTES)
                outcomes.append(paced(node, port))
        writer.stop()
        runs = metric(node, "dlog_compaction_runs_total")
        read_mb = metric(node, 'dlog_compaction_bytes_total{way="read"}') / 1e6
        deleted_mb = metric(node, "dlog_retention_bytes_total") / 1e6
        failures = metric(node, "dlog_compaction_failures_total") + metric(
            node, "dlog_retention_failures_total"
        )
        node.stop()
    assert failures == 0, "maintenance failed: see the broker's log"
    p99s = Rounds([each.p99_ms for each in busy], [each.p99_ms for each in quiet])
    p50s = Rounds([each.p50_ms for each in busy], [each.p50_ms for each in quiet])
    return [
        at_most(
            p99s.named("produce p99 under compaction and retention, against without", "ms", 1),
            p99s.ratio(FLOOR_MS), "×", 2.0,
        ),
        Figure(p50s.named("p50 of the same", "ms", 2), p50s.ratio(), "×"),
        at_least("compactions that were committed meanwhile", runs, "", 1),
        at_least("bytes that compaction read", read_mb, "MB", 1),
        at_least("bytes that retention deleted", deleted_mb, "MB", 1),
    ]  # fmt: skip
