"""Transactions: ours against Apache Kafka's on the same machine, in turns, as medians.

    commits   four producers, transactions of one record in each of 1, 10 and 100 partitions: how many in a
              second, and how long a commit takes
    open      10,000 transactional ids, each with an open transaction: the memory that they take, and how long
              a broker that is started with them takes until it knows them all

A transaction of ours is committed when its decision is synced to the disk, Kafka's when it is in the page
cache; so commits are measured twice, once with `flush.on.commit` off for the topic and for
`__transaction_state`, which is like with like.  The ids are opened without it, too.

DLOG_BENCH_ROUNDS sets the number of rounds (5), DLOG_BENCH_SECONDS how long a load lasts (2), DLOG_BENCH_IDS
how many transactional ids are open (10,000).  Without Kafka the ratios are left out, and what is left says
so.
"""

import asyncio
import json
import os
import sys
import time
from functools import partial
from typing import Any, Final

from distributedlog.model.internal_topics import TRANSACTIONS_TOPIC
from tests.bench.broker import NO_SYNC, ROUNDS, compared, in_turns
from tests.bench.broker_kafka import Broker, bootstrap_of, contestants, make_topic, start_again_if_ended
from tests.bench.control import rss_mb
from tests.bench.figures import Figure, at_least, at_most
from tests.bench.groups import values
from tests.bench.harness import Bench, Measure, run_program
from tests.bench.maintenance import set_all
from tests.bench.transactions_load import PARTITIONS, TOPIC

IDS: Final = int(os.environ.get("DLOG_BENCH_IDS", "10000"))
SIZES: Final = (1, 10, 100)
LIKE_WITH_LIKE, WITH_OUR_SYNC = 1.0, 0.5
SETTINGS: Final = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.max.timeout.ms": "900000",
}


def offer(broker: Broker, kind: str, number: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.bench.transactions_load", kind, str(broker.port), str(broker.pid)]
    figures = json.loads(run_program([*command, str(number)]))
    assert isinstance(figures, dict)
    return figures


def committing(brokers: list[Broker], partitions: int, sync: str, aim: float) -> list[Figure]:
    results = in_turns(brokers, ROUNDS, lambda broker: offer(broker, "commits", partitions))
    name = f"{partitions} partition{'s' if partitions > 1 else ''}, {sync}"
    slower = 1 / aim
    return [
        compared(f"{name}: transactions", values(results, "per_second"), "/s", at_least, aim),
        compared(f"{name}: commit p50", values(results, "p50_ms"), "ms", at_most, slower),
        compared(f"{name}: commit p99", values(results, "p99_ms"), "ms", at_most, slower),
        compared(f"{name}: broker CPU", values(results, "cpu_us"), "µs", at_most, 1.0),
    ]


def start_again(broker: Broker, ids: int) -> float:
    """The seconds from the start of the process until its coordinator knows so many open transactions."""
    broker.stop()
    began = time.perf_counter()
    broker.start()
    offer(broker, "loaded", ids)
    return time.perf_counter() - began


class OpenIds:
    """Many open transactional ids.  They are opened once, however often a case is measured; the same restart
    without them and with them says what they take."""

    def __init__(self, brokers: list[Broker]) -> None:
        self._brokers = brokers
        self._opened: list[float] = []
        self._start_seconds: list[float] = []
        self._start_mb: list[float] = []

    def measure(self) -> list[Figure]:
        if not self._opened:
            self._open()
        loaded = [start_again(each, IDS) for each in self._brokers]
        mb = [rss_mb(each.pid) for each in self._brokers]
        ids = f"{IDS:,} open transactional ids"
        return [
            compared(f"{ids}: opened in", self._opened, "s", at_most, 1.0),
            compared(f"{ids}: resident memory after a restart", mb, "MB", at_most, 1.0),
            Figure(f"{ids}: ours of it for them", mb[0] - self._start_mb[0], "MB"),
            compared(
                "start until the coordinator answers, none open", self._start_seconds, "s", at_most, 1.0
            ),
            compared(f"{ids}: start until they are loaded", loaded, "s", at_most, 1.0),
        ]

    def _open(self) -> None:
        self._start_seconds = [start_again(each, 0) for each in self._brokers]
        self._start_mb = [rss_mb(each.pid) for each in self._brokers]
        self._opened = [float(offer(each, "open", IDS)["seconds"]) for each in self._brokers]


def run(bench: Bench) -> None:
    with contestants(SETTINGS) as (brokers, missing):
        for broker in brokers:
            make_topic(broker, TOPIC, PARTITIONS)
            for partitions in SIZES:
                offer(broker, "commits", partitions)  # Kafka's code is compiled by being used

        def case(name: str, measure: Measure) -> None:
            for broker in brokers:
                start_again_if_ended(broker)
            bench.case(name, measure)

        for partitions in SIZES:
            sync = "our sync / no sync"
            case(
                f"{partitions} partitions, {sync}",
                partial(committing, brokers, partitions, sync, WITH_OUR_SYNC),
            )
        asyncio.run(set_all(bootstrap_of(brokers[0]), {TOPIC: NO_SYNC, TRANSACTIONS_TOPIC: NO_SYNC}))
        for partitions in SIZES:
            case(
                f"{partitions} partitions, no sync",
                partial(committing, brokers, partitions, "no sync", LIKE_WITH_LIKE),
            )
        case("open transactional ids", OpenIds(brokers).measure)
        for figure in missing:
            bench.note(figure)
