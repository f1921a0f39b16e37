"""Whole brokers under faults, many seeds: every checker's invariant holds.

`DLOG_SOAK=1` runs two thousand seeds of a minute instead.
"""

import os
import subprocess
import sys
from typing import Any

import pytest

from distributedlog.controller import brokers, elections
from distributedlog.controller.image import Partition
from distributedlog.controller.records import RECOVERING
from tests.mutants.harness import ROOT
from tests.simulation.brokers.cluster import BrokersCluster
from tests.simulation.brokers.faults import BrokersFaults
from tests.simulation.brokers.movers import MOVES
from tests.simulation.control_cluster import SECOND_US, Report

IS_SOAK = os.environ.get("DLOG_SOAK") == "1"
SECONDS = 60 if IS_SOAK else 30
SEEDS = 2_000 if IS_SOAK else 100
SEEDS_PER_TEST = 5
MOVES_SEEDS = 500 if IS_SOAK else 6
PAIR_OF_FIVE = (1, 2)


@pytest.mark.parametrize("first_seed", range(1, SEEDS + 1, SEEDS_PER_TEST))
def test_brokers_keep_their_promises_under_faults(first_seed: int) -> None:
    reports = [_run(seed) for seed in range(first_seed, first_seed + SEEDS_PER_TEST)]
    assert sum(report.decided for report in reports) > 100 * SEEDS_PER_TEST
    assert sum(report.terms for report in reports) > SEEDS_PER_TEST


def _run(seed: int, flavour: str | None = None) -> Report:
    cluster = BrokersCluster(seed, flavour=flavour)
    try:
        return cluster.run(SECONDS)
    except Exception as error:
        story = "\n".join(cluster.trace.lines(80))
        pytest.fail(
            f"seed {seed} ({cluster.flavour}): {type(error).__name__}: {error}\n{story}", pytrace=False
        )


@pytest.mark.parametrize("first_seed", range(1, MOVES_SEEDS + 1, 2))
def test_partitions_are_moved_under_faults_and_arrive_when_all_has_healed(first_seed: int) -> None:
    """Never with fewer copies than before; all else that is promised holds meanwhile."""
    for seed in range(first_seed, first_seed + 2):
        assert _run(seed, MOVES).decided > 100


@pytest.mark.parametrize("seed", [1, 2])
def test_a_power_cut_of_all_at_once_takes_no_election_but_clean_ones(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing acknowledged is lost, there is progress afterwards (both are checked in every run), and nobody
    had to be elected who might lack something: all that was committed was synced."""
    plan, unclean = elections.plan, []

    def plan_and_note(partition: Partition, *arguments: Any, **options: Any) -> elections.Target:
        target = plan(partition, *arguments, **options)
        if target.leader != partition.leader and target.recovery_state == RECOVERING:
            unclean.append(target)
        return target

    for module in (elections, brokers):
        monkeypatch.setattr(module, "plan", plan_and_note)
    cluster = BrokersCluster(seed, flavour="calm")
    assert isinstance(cluster.faults, BrokersFaults)
    for at_us in (8 * SECOND_US, 13 * SECOND_US):
        cluster.loop.call_after(at_us, cluster.faults.cut_all_power)
    report = cluster.run(SECONDS)
    assert report.decided > 50
    assert unclean == []


@pytest.mark.parametrize("seed", [1, 3])
def test_two_of_five_brokers_cut_off_together_send_their_clients_away(seed: int) -> None:
    """Each of them still hears the other; of those in sync on the other side one leads by then."""
    cluster = BrokersCluster(seed, nodes=5, flavour="calm")
    begin_us, end_us, pair = 6 * SECOND_US, 16 * SECOND_US, PAIR_OF_FIVE
    seen: set[tuple[str, bool]] = set()

    def cut_off() -> None:
        cluster.network.split(pair, [node for node in cluster.hosts if node not in pair])

    def look() -> None:
        image = cluster.steps[-1].after
        for node in pair:
            for each in cluster.hosts[node].partitions():
                topic = image.topic_named(each.topic)
                if each.is_leader and topic is not None and set(each.isr) - set(pair):
                    assert topic.partitions[each.partition_id].leader not in pair, "another leads"
                    seen.add((f"{each.topic}-{each.partition_id} at {node}", each.is_isolated))
        cluster.network.calm()

    for at_us in range(begin_us, end_us, SECOND_US // 10):  # other faults heal the network when they end
        cluster.loop.call_after(at_us, cut_off)
    cluster.loop.call_after(end_us, look)
    cluster.run(SECONDS)
    assert seen, "the two led something"
    assert {each for each in seen if not each[1]} == set(), "clients wait there in vain"


def test_another_process_tells_the_same_trace() -> None:
    """Neither the order of sets nor anything else that Python draws when it starts is in it."""
    program = (
        "from tests.simulation.brokers.cluster import BrokersCluster\n"
        "cluster = BrokersCluster(5, flavour='mixed')\ncluster.run(24)\n"
        "assert len(cluster.trace) > 300\nprint(cluster.trace.digest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(digests) == 1
