"""One broker against Apache Kafka on the same machine, in turns, as medians.

    start        a stopped broker with one topic: from starting the process to its first acknowledged record
    memory       resident, after that
    saturated    `broker_load`: batches encoded beforehand, four connections and partitions
    paced        1 KB records at a fixed rate, timed from when each was due
    as used      confluent-kafka with its defaults; at 100 B it is the limit itself

Record sizes are 100 B, 1 KB, 16 KB and 1 MB.  Small ones are sent in batches of 16 KB, as clients fill them
under load, and once alone, one to a request: that is what requests cost.

acks=1 means the same for both: the leader has it, the disk not yet.  With acks=all our broker answers when
the records are synced to the disk (`flush.on.commit`), Kafka when they are in the page cache: a power cut
that strikes all replicas at once loses them there.  So acks=all is measured twice; like with like is the one
without the sync.

Before anything is timed each broker is given some of these loads for a while: Kafka's code is compiled by
being used.  DLOG_BENCH_ROUNDS sets the number of rounds (5), DLOG_BENCH_SECONDS how long a load lasts (0.8).
Without Kafka the ratios are left out, and what is left says so.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from tests.bench.broker_kafka import (
    Broker,
    Kafka,
    LeftOutError,
    Ours,
    delete_topic,
    make_first_topic,
    make_topic,
    until_acknowledged,
)
from tests.bench.broker_load import Load, Outcome, batch_of
from tests.bench.control import rss_mb
from tests.bench.figures import Figure, at_least, at_most

ROUNDS: Final = int(os.environ.get("DLOG_BENCH_ROUNDS", "5"))
SECONDS: Final = float(os.environ.get("DLOG_BENCH_SECONDS", "0.8"))
CONNECTIONS: Final = 4
IDLE_SECONDS: Final = 2.0
WARM_UP_SECONDS: Final = 3.0
LOG_BYTES: Final = 200_000_000
PACE: Final = 1000
CLIENT_ROUNDS: Final = min(3, ROUNDS)
NO_SYNC: Final = {"flush.on.commit": "false"}

T = TypeVar("T")

FASTER, CHEAPER, SOONER, LEANER = 1.2, 0.7, 0.1, 0.15


class Case(NamedTuple):
    name: str
    record_bytes: int
    batch_records: int
    window: int
    acks: int = 1
    configs: Mapping[str, str] = {}
    """Of our topic alone."""


PRODUCED: Final = (
    Case("produce 100 B in 16 KB batches", 100, 150, 8),
    Case("produce 100 B alone", 100, 1, 32),
    Case("produce 1 KB in 16 KB batches", 1000, 16, 8),
    Case("produce 1 KB alone", 1000, 1, 32),
    Case("produce 16 KB", 16_000, 1, 8),
    Case("produce 1 MB", 1_000_000, 1, 2),
    Case("produce 16 KB, acks=all, our sync / no sync", 16_000, 1, 8, acks=-1),
    Case("produce 16 KB, acks=all, no sync", 16_000, 1, 8, acks=-1, configs=NO_SYNC),
)
CONSUMED: Final = (
    Case("consume 100 B", 100, 150, 1),
    Case("consume 1 KB", 1000, 16, 1),
    Case("consume 16 KB", 16_000, 1, 1),
    Case("consume 1 MB", 1_000_000, 1, 1),
)
CLIENT_RECORDS: Final = {100: 200_000, 1000: 100_000, 16_000: 10_000, 1_000_000: 200}
CPU_US_MAX: Final = {"produce 1 KB alone": 40, "produce 16 KB": 60}


# --- in turns ----------------------------------------------------------------------------------


def offer(load: Load) -> Outcome:
    command = [sys.executable, "-m", "tests.bench.broker_load", load.to_json()]
    return Outcome(*json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def in_turns(brokers: list[Broker], rounds: int, work: Callable[[Broker], T]) -> list[list[T]]:
    """Each broker's results."""
    results: list[list[T]] = [[] for _ in brokers]
    for _ in range(rounds):
        for found, broker in zip(results, brokers, strict=True):
            found.append(work(broker))
    return results


def median_of(results: list[T], value: Callable[[T], float]) -> float:
    return statistics.median(map(value, results))


def described(name: str, values: list[float], unit: str) -> str:
    return f"{name} ({' / '.join(f'{value:,.3g}' for value in values)} {unit})"


def compared(
    name: str, values: list[float], unit: str, judge: Callable[[str, float, str, float], Figure], aim: float
) -> Figure:
    """Our value over Kafka's; ours alone if there is no Kafka."""
    if len(values) == 1:
        return Figure(name, values[0], unit)
    return judge(described(name, values, unit), values[0] / values[1], "×", aim)


# --- start and memory --------------------------------------------------------------------------


def starting(brokers: list[Broker]) -> list[Figure]:
    """Leaves all of them running."""
    batch = batch_of(Load(kind="", port=0, pid=0, topic="first", record_bytes=100))

    def start(broker: Broker) -> float:
        broker.stop()
        began = time.perf_counter()
        broker.start()
        until_acknowledged(broker, "first", batch)
        return time.perf_counter() - began

    for broker in brokers:
        broker.start()
        make_first_topic(broker, "first")
    started = in_turns(brokers, ROUNDS, start)
    time.sleep(IDLE_SECONDS)
    return [
        compared(
            "start to the first acknowledged record",
            [statistics.median(each) for each in started], "s", at_most, SOONER,
        ),
        compared("resident memory, idle", [rss_mb(each.pid) for each in brokers], "MB", at_most, LEANER),
    ]  # fmt: skip


# --- saturated ---------------------------------------------------------------------------------


def load_of(case: Case, broker: Broker, topic: str, kind: str = "produce") -> Load:
    return Load(
        kind=kind, port=broker.port, pid=broker.pid, topic=topic, record_bytes=case.record_bytes,
        batch_records=case.batch_records, window=case.window, acks=case.acks, seconds=SECONDS,
        connections=CONNECTIONS,
    )  # fmt: skip


def warm_up(brokers: list[Broker]) -> None:
    for broker in brokers:
        for case in (PRODUCED[0], PRODUCED[3], PRODUCED[4]):
            make_topic(broker, "load", CONNECTIONS)
            offer(replace(load_of(case, broker, "load"), seconds=WARM_UP_SECONDS))
            delete_topic(broker, "load")


def produced(brokers: list[Broker], case: Case) -> list[list[Outcome]]:
    def work(broker: Broker) -> Outcome:
        make_topic(broker, "load", CONNECTIONS, case.configs if isinstance(broker, Ours) else None)
        outcome = offer(load_of(case, broker, "load"))
        delete_topic(broker, "load")
        return outcome

    return in_turns(brokers, ROUNDS, work)


def consumed(brokers: list[Broker], case: Case) -> list[list[Outcome]]:
    topic = f"log-{case.record_bytes}"
    batch_bytes = len(batch_of(load_of(case, brokers[0], topic)))
    end_offset = LOG_BYTES // batch_bytes // CONNECTIONS * case.batch_records
    for broker in brokers:
        make_topic(broker, topic, CONNECTIONS)
        offer(replace(load_of(case, broker, topic), bytes_max=LOG_BYTES, seconds=60.0))
    results = in_turns(
        brokers, ROUNDS,
        lambda broker: offer(replace(load_of(case, broker, topic, "consume"), end_offset=end_offset)),
    )  # fmt: skip
    for broker in brokers:
        delete_topic(broker, topic)
    return results


def saturated(name: str, results: list[list[Outcome]]) -> list[Figure]:
    speeds = [median_of(each, lambda outcome: outcome.mb_per_second) for each in results]
    costs = [median_of(each, lambda outcome: outcome.cpu_seconds_per_gb) for each in results]
    figures = [
        compared(f"{name}: throughput", speeds, "MB/s", at_least, FASTER),
        compared(f"{name}: broker CPU", costs, "s/GB", at_most, CHEAPER),
    ]
    if name in CPU_US_MAX:
        each = [median_of(each, lambda outcome: outcome.cpu_us_per_request) for each in results]
        figures.append(
            at_most(described(f"{name}: broker CPU a request", each, "µs"), each[0], "µs", CPU_US_MAX[name])
        )
    return figures


def paced(brokers: list[Broker], acks: int, name: str, configs: Mapping[str, str]) -> list[Figure]:
    for broker in brokers:
        make_topic(broker, "paced", CONNECTIONS, configs if isinstance(broker, Ours) else None)
    results = in_turns(
        brokers, ROUNDS,
        lambda broker: offer(
            Load(kind="paced", port=broker.port, pid=broker.pid, topic="paced", record_bytes=1000, acks=acks,
                 rate=PACE, seconds=1.5 * SECONDS)
        ),
    )  # fmt: skip
    for broker in brokers:
        delete_topic(broker, "paced")
    p50 = [median_of(each, lambda outcome: outcome.p50_ms) for each in results]
    p99 = [median_of(each, lambda outcome: outcome.p99_ms) for each in results]
    return [
        compared(f"1 KB at {PACE:,}/s, {name}: p50", p50, "ms", at_most, 1.0),
        compared(f"1 KB at {PACE:,}/s, {name}: p99", p99, "ms", at_most, 1.0),
    ]


# --- as people use it --------------------------------------------------------------------------


def with_a_client(brokers: list[Broker], record_bytes: int, count: int) -> list[Figure]:
    def run_client(broker: Broker, work: str) -> float:
        command = [sys.executable, "-m", "tests.bench.broker_client", work]
        arguments = [str(each) for each in (broker.port, "used", record_bytes, count)]
        seconds = float(subprocess.run([*command, *arguments], check=True, capture_output=True).stdout)
        return record_bytes * count / 1e6 / seconds

    def work(broker: Broker) -> tuple[float, float]:
        make_topic(broker, "used", CONNECTIONS)
        speeds = run_client(broker, "produce"), run_client(broker, "consume")
        delete_topic(broker, "used")
        return speeds

    results = in_turns(brokers, CLIENT_ROUNDS, work)
    return [
        compared(
            f"confluent-kafka, {record_bytes:,} B: {word}",
            [statistics.median(speeds[at] for speeds in each) for each in results],
            "MB/s", at_least, 1.0,
        )
        for at, word in enumerate(("produce", "consume"))
    ]  # fmt: skip


# --- all of it ---------------------------------------------------------------------------------


def left_out() -> list[Figure]:
    return [
        Figure(f"{name}: left out, there is no {program} here", float("nan"), "")
        for name, program in (("Redis Streams", "redis-server"), ("NATS JetStream", "nats-server"))
        if not shutil.which(program)
    ]


def measured(brokers: list[Broker]) -> list[Figure]:
    figures = starting(brokers)
    warm_up(brokers)
    for case in PRODUCED:
        figures += saturated(case.name, produced(brokers, case))
    for case in CONSUMED:
        figures += saturated(case.name, consumed(brokers, case))
    figures += paced(brokers, 1, "acks=1", {})
    figures += paced(brokers, -1, "acks=all, our sync / no sync", {})
    figures += paced(brokers, -1, "acks=all, no sync", NO_SYNC)
    for record_bytes, count in CLIENT_RECORDS.items():
        figures += with_a_client(brokers, record_bytes, count)
    return figures


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="dlog-bench-") as scratch, ExitStack() as stack:
        brokers: list[Broker] = [Ours(Path(scratch) / "dlog")]
        missing: list[Figure] = []
        try:
            brokers.append(Kafka(Path(scratch) / "kafka"))
        except LeftOutError as error:
            missing.append(Figure(f"Apache Kafka: left out, {error}", float("nan"), ""))
        for broker in brokers:
            stack.callback(broker.stop)
        return [*measured(brokers), *missing, *left_out()]
