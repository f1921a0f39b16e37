"""The Python client against others on the same broker: records a second, as ratios within one run.

Each client is a process of its own (`client_load`), one after the other; every one that produces has a
topic of its own, and all read the same one.  There are so many records that a run takes seconds, not the
moment in which connections begin; the clients take turns, and the median of their rounds counts.
"""

import functools
import subprocess
import sys
import time
from collections.abc import Sequence

from distributedlog import Admin, NewTopic
from distributedlog.testing import TestCluster
from tests.bench.figures import Figure, at_least, at_most, medians
from tests.bench.harness import Bench

CLIENTS = ("ours", "arrow", "confluent", "aiokafka", "kafka_python")
COUNTS = {100: 600_000, 1000: 200_000}
SLOW = "kafka_python"
SLOW_SHARE = 6
"""The slow one gets so many times fewer records: its runs are long enough."""
ROUNDS = 3
SECONDS_MAX = 300
BUFFERED = 1_000_000
IMPORTS = 15
IMPORT_MS_AIM = 60
LOAD = (sys.executable, "-m", "tests.bench.client_load")


def printed(client: str, what: str, bootstrap: str, topic: str, record_bytes: int, count: int) -> float:
    ran = subprocess.run(
        [*LOAD, client, what, bootstrap, topic, str(record_bytes), str(count)],
        capture_output=True, text=True, check=False, timeout=SECONDS_MAX,
    )  # fmt: skip
    if ran.returncode:
        raise RuntimeError(f"{client} {what}: {ran.stderr[-800:]}")
    return float(ran.stdout)


def memory(bootstrap: str) -> Sequence[Figure]:
    """The memory that records take which wait to be sent."""
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic("buffer", 4)])
    return [
        Figure(
            f"a million buffered records of 100 B: {client}",
            printed(client, "buffer", bootstrap, "buffer", 100, BUFFERED),
            "MiB",
        )
        for client in ("ours", "confluent")
    ]


def import_ms(what: str) -> float:
    """The shortest of several: an interpreter that imports it, and ends."""
    took = []
    for _ in range(IMPORTS):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", what], check=True)
        took.append(time.perf_counter() - started)
    return min(took) * 1000


def imports() -> Sequence[Figure]:
    bare = import_ms("pass")
    ours = import_ms("from distributedlog import Consumer, Producer") - bare
    return [
        Figure("import asyncio", import_ms("import asyncio") - bare, "ms"),
        Figure("import distributedlog", import_ms("import distributedlog") - bare, "ms"),
        at_most("from distributedlog import Consumer, Producer", ours, "ms", IMPORT_MS_AIM),
    ]


def compare(bootstrap: str, what: str, record_bytes: int) -> Sequence[Figure]:
    shared = f"{what}-{record_bytes}"
    topics = {client: shared if what == "consume" else f"{shared}-{client}" for client in CLIENTS}
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(each, 4) for each in set(topics.values())])
    if what == "consume":
        printed("arrow", "produce", bootstrap, shared, record_bytes, COUNTS[record_bytes])

    def seconds_each(client: str) -> float:
        count = COUNTS[record_bytes] // (SLOW_SHARE if client == SLOW else 1)
        return printed(client, what, bootstrap, topics[client], record_bytes, count) / count

    found = medians(ROUNDS, *(functools.partial(seconds_each, each) for each in CLIENTS))
    rates = {client: 1 / seconds for client, seconds in zip(CLIENTS, found, strict=True)}
    label = f"{what} {record_bytes} B"
    return [
        *(Figure(f"{label}: {client}", rate, "records/s") for client, rate in rates.items()),
        at_least(f"{label}: ours / aiokafka", rates["ours"] / rates["aiokafka"], "x", 3),
        at_least(f"{label}: ours / confluent-kafka", rates["ours"] / rates["confluent"], "x", 0.3),
        at_least(f"{label}: Arrow / confluent-kafka", rates["arrow"] / rates["confluent"], "x", 2),
        Figure(f"{label}: ours / kafka-python", rates["ours"] / rates[SLOW], "x"),
    ]


def run(bench: Bench) -> None:
    bench.case("client import", imports)
    with TestCluster() as cluster:
        bootstrap = cluster.bootstrap
        bench.case("client memory", lambda: memory(bootstrap))
        for record_bytes in COUNTS:
            for what in ("produce", "consume"):
                label = f"client {what} {record_bytes} B"
                bench.case(label, lambda what=what, size=record_bytes: compare(bootstrap, what, size))  # type: ignore[misc]
