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
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple, TypeVar

from tests.bench.broker_kafka import (
    FIRST,
    Broker,
    Ours,
    bootstrap_of,
    contestants,
    start_again_if_ended,
    until_acknowledged,
)
from tests.bench.broker_load import Load, Outcome, batch_of
from tests.bench.control import rss_mb
from tests.bench.figures import Figure, at_least, at_most
from tests.bench.harness import Bench, Measure, run_program
from tests.bench.topics import topic_on

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
    """The configs of our topic alone."""


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
PACED: Final = (
    Case(f"1 KB at {PACE:,}/s, acks=1", 1000, 1, 1),
    Case(f"1 KB at {PACE:,}/s, acks=all, our sync / no sync", 1000, 1, 1, acks=-1),
    Case(f"1 KB at {PACE:,}/s, acks=all, no sync", 1000, 1, 1, acks=-1, configs=NO_SYNC),
)
CLIENT_RECORDS: Final = {100: 200_000, 1000: 100_000, 16_000: 10_000, 1_000_000: 200}
CPU_US_MAX: Final = {"produce 1 KB alone": 40, "produce 16 KB": 60}


# --- in turns ----------------------------------------------------------------------------------


def offer(load: Load) -> Outcome:
    return Outcome(
        *json.loads(run_program([sys.executable, "-m", "tests.bench.broker_load", load.to_json()]))
    )


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
    batch = batch_of(Load(kind="", port=0, pid=0, topic=FIRST, record_bytes=100))

    def start(broker: Broker) -> float:
        broker.stop()
        began = time.perf_counter()
        broker.start()
        until_acknowledged(broker, FIRST, batch)
        return time.perf_counter() - began

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


def topic_for(broker: Broker, name: str, configs: Mapping[str, str]) -> AbstractContextManager[str]:
    """Makes a topic, with configs of our topic alone."""
    return topic_on(bootstrap_of(broker), name, CONNECTIONS, configs if isinstance(broker, Ours) else None)


def warm_up(brokers: list[Broker]) -> None:
    for broker in brokers:
        for case in (PRODUCED[0], PRODUCED[3], PRODUCED[4]):
            with topic_for(broker, "load", {}) as topic:
                offer(replace(load_of(case, broker, topic), seconds=WARM_UP_SECONDS))


def produced(brokers: list[Broker], case: Case) -> list[list[Outcome]]:
    def work(broker: Broker) -> Outcome:
        with topic_for(broker, "load", case.configs) as topic:
            return offer(load_of(case, broker, topic))

    return in_turns(brokers, ROUNDS, work)


def consumed(brokers: list[Broker], case: Case) -> list[list[Outcome]]:
    with ExitStack() as stack:
        topics = {}
        for broker in brokers:
            topics[broker.name] = stack.enter_context(topic_for(broker, "log", {}))
            load = load_of(case, broker, topics[broker.name])
            offer(replace(load, bytes_max=LOG_BYTES, seconds=60.0))
        end_offset = LOG_BYTES // len(batch_of(load)) // CONNECTIONS * case.batch_records

        def work(broker: Broker) -> Outcome:
            load = load_of(case, broker, topics[broker.name], "consume")
            return offer(replace(load, end_offset=end_offset))

        return in_turns(brokers, ROUNDS, work)


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


def paced(brokers: list[Broker], case: Case) -> list[Figure]:
    with ExitStack() as stack:
        topics = {each.name: stack.enter_context(topic_for(each, "paced", case.configs)) for each in brokers}
        results = in_turns(
            brokers, ROUNDS,
            lambda broker: offer(
                Load(kind="paced", port=broker.port, pid=broker.pid, topic=topics[broker.name],
                     record_bytes=case.record_bytes, acks=case.acks, rate=PACE, seconds=1.5 * SECONDS)
            ),
        )  # fmt: skip
    p50 = [median_of(each, lambda outcome: outcome.p50_ms) for each in results]
    p99 = [median_of(each, lambda outcome: outcome.p99_ms) for each in results]
    return [
        compared(f"{case.name}: p50", p50, "ms", at_most, 1.0),
        compared(f"{case.name}: p99", p99, "ms", at_most, 1.0),
    ]


# --- as people use it --------------------------------------------------------------------------


def with_a_client(brokers: list[Broker], record_bytes: int, count: int) -> list[Figure]:
    def run_client(broker: Broker, work: str, topic: str) -> float:
        command = [sys.executable, "-m", "tests.bench.broker_client", work]
        arguments = [str(each) for each in (broker.port, topic, record_bytes, count)]
        return record_bytes * count / 1e6 / float(run_program([*command, *arguments]))

    def work(broker: Broker) -> tuple[float, float]:
        with topic_for(broker, "used", {}) as topic:
            return run_client(broker, "produce", topic), run_client(broker, "consume", topic)

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


def produce_case(brokers: list[Broker], case: Case) -> list[Figure]:
    return saturated(case.name, produced(brokers, case))


def consume_case(brokers: list[Broker], case: Case) -> list[Figure]:
    return saturated(case.name, consumed(brokers, case))


def cases(brokers: list[Broker]) -> Iterator[tuple[str, Measure]]:
    yield "start and memory", lambda: starting(brokers)
    for case in PRODUCED:
        yield case.name, partial(produce_case, brokers, case)
    for case in CONSUMED:
        yield case.name, partial(consume_case, brokers, case)
    for case in PACED:
        yield case.name, partial(paced, brokers, case)
    for record_bytes, count in CLIENT_RECORDS.items():
        yield f"confluent-kafka, {record_bytes:,} B", partial(with_a_client, brokers, record_bytes, count)


def run(bench: Bench) -> None:
    with contestants() as (brokers, missing):
        warm_up(brokers)
        for name, measure in cases(brokers):
            for broker in brokers:
                start_again_if_ended(broker)
            bench.case(name, measure)
        for figure in [*missing, *left_out()]:
            bench.note(figure)
