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
import sys
from typing import Any, Final

from distributedlog.client.connection import connect
from distributedlog.model.internal_topics import OFFSETS_TOPIC
from distributedlog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.bench.broker import ROUNDS, compared, in_turns, median_of
from tests.bench.broker_kafka import Broker, contestants, make_topic, start_again_if_ended
from tests.bench.figures import Figure, at_least, at_most
from tests.bench.groups_load import PARTITIONS, TIMEOUT_MS, TOPIC
from tests.bench.harness import Bench, Measure, run_program

QUICK, FAST, CHEAP = 1.0, 1.0, 1.0
TOPIC_RESOURCE: Final = 2


def offer(broker: Broker, kind: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.bench.groups_load", kind, str(broker.port), str(broker.pid)]
    figures = json.loads(run_program(command))
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


def rebalancing(brokers: list[Broker]) -> list[Figure]:
    results = in_turns(brokers, ROUNDS, lambda broker: offer(broker, "rebalances"))
    return [
        compared("rebalance of 10 members over 100 partitions", values(results, "ms"), "ms", at_most, QUICK),
        compared("rebalance: broker CPU", values(results, "cpu_ms"), "ms", at_most, CHEAP),
    ]


def thousand(brokers: list[Broker]) -> list[Figure]:
    results = in_turns(brokers, max(1, ROUNDS // 2), lambda broker: offer(broker, "thousand"))
    return [
        compared("1,000 groups formed", values(results, "formed_seconds"), "s", at_most, QUICK),
        compared("1,000 groups: beats", values(results, "beats_per_second"), "/s", at_least, FAST),
        compared("1,000 groups: broker CPU a beat", values(results, "beat_cpu_us"), "µs", at_most, CHEAP),
    ]


def run(bench: Bench) -> None:
    with contestants() as (brokers, missing):
        for broker in brokers:
            make_topic(broker, TOPIC, PARTITIONS)
            for kind in ("rebalances", "commits", "thousand"):
                offer(broker, kind)  # Kafka's code is compiled by being used

        def case(name: str, measure: Measure) -> None:
            for broker in brokers:
                start_again_if_ended(broker)
            bench.case(name, measure)

        case("rebalances", lambda: rebalancing(brokers))
        case("1,000 groups", lambda: thousand(brokers))
        case("commits, our sync / no sync", lambda: committing(brokers, "our sync / no sync"))
        sync_off(brokers[0])
        case("commits, no sync", lambda: committing(brokers, "no sync"))
        for figure in missing:
            bench.note(figure)
