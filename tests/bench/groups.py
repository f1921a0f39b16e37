"""Group coordinators: ours against Apache Kafka's on the same machine, in turns, as medians.

    rebalance   ten members over a hundred partitions, from the first join to the last assignment
    commits     of ten positions, sixteen under way on each of four connections
    1,000       groups of one member: how long it takes to form them; beats answered in a second

A commit of ours is answered when it is synced to the disk, Kafka's when it is in the page cache; so commits
are measured twice, once with `flush.on.commit` off for `__consumer_offsets`, which is like with like.

DLOG_BENCH_ROUNDS sets the number of rounds (5).  Without Kafka the ratios are left out, and what is left says
so.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from distributedlog.client.connection import connect
from distributedlog.groups.placement import OFFSETS_TOPIC
from distributedlog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.bench.broker import ROUNDS, compared, in_turns, median_of
from tests.bench.broker_kafka import Broker, Kafka, LeftOutError, Ours, make_first_topic, make_topic
from tests.bench.figures import Figure, at_least, at_most
from tests.bench.groups_load import PARTITIONS, TIMEOUT_MS, TOPIC

QUICK, FAST, CHEAP = 1.0, 1.0, 1.0
TOPIC_RESOURCE: Final = 2


def offer(broker: Broker, kind: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.bench.groups_load", kind, str(broker.port), str(broker.pid)]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, f"{kind} on {broker.name}: {ran.stderr[-2000:]}"
    figures = json.loads(ran.stdout)
    assert isinstance(figures, dict)
    return figures


def values(results: list[list[dict[str, Any]]], name: str) -> list[float]:
    return [median_of(each, lambda figures: figures[name]) for each in results]


def sync_off(broker: Broker) -> None:
    """Ours acknowledges a commit before the disk has it, as Kafka does."""

    async def set_it() -> None:
        connection = await connect("127.0.0.1", broker.port, client_id="bench", timeout_ms=TIMEOUT_MS)
        config = AlterableConfig(name="flush.on.commit", config_operation=0, value="false")
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=OFFSETS_TOPIC, configs=[config]
        )
        answer = await connection.call(
            IncrementalAlterConfigsRequest(resources=[resource], validate_only=False),
            IncrementalAlterConfigsResponse,
            timeout_ms=TIMEOUT_MS,
        )
        assert answer.responses[0].error_code == 0, answer
        connection.close()

    asyncio.run(set_it())


def committing(brokers: list[Broker], name: str) -> list[Figure]:
    results = in_turns(brokers, ROUNDS, lambda broker: offer(broker, "commits"))
    return [
        compared(f"commits, {name}", values(results, "per_second"), "/s", at_least, FAST),
        compared(f"commits, {name}: broker CPU", values(results, "cpu_us"), "µs", at_most, CHEAP),
    ]


def measured(brokers: list[Broker]) -> list[Figure]:
    for broker in brokers:
        broker.start()
        make_first_topic(broker, "first")
        make_topic(broker, TOPIC, PARTITIONS)
        for kind in ("rebalances", "commits", "thousand"):
            offer(broker, kind)  # Kafka's code is compiled by being used
    rebalances = in_turns(brokers, ROUNDS, lambda broker: offer(broker, "rebalances"))
    figures = [
        compared(
            "rebalance of 10 members over 100 partitions", values(rebalances, "ms"), "ms", at_most, QUICK
        ),
        compared("rebalance: broker CPU", values(rebalances, "cpu_ms"), "ms", at_most, CHEAP),
    ]
    thousands = in_turns(brokers, max(1, ROUNDS // 2), lambda broker: offer(broker, "thousand"))
    figures += [
        compared("1,000 groups formed", values(thousands, "formed_seconds"), "s", at_most, QUICK),
        compared("1,000 groups: beats", values(thousands, "beats_per_second"), "/s", at_least, FAST),
        compared("1,000 groups: broker CPU a beat", values(thousands, "beat_cpu_us"), "µs", at_most, CHEAP),
    ]
    figures += committing(brokers, "our sync / no sync")
    sync_off(brokers[0])
    return figures + committing(brokers, "no sync")


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
        return [*measured(brokers), *missing]
