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
from tests.simulation.control_cluster import SECOND_US, Report

IS_SOAK = os.environ.get("DLOG_SOAK") == "1"
SECONDS = 60 if IS_SOAK else 30
SEEDS = 2_000 if IS_SOAK else 40
SEEDS_PER_TEST = 5


@pytest.mark.parametrize("first_seed", range(1, SEEDS + 1, SEEDS_PER_TEST))
def test_brokers_keep_their_promises_under_faults(first_seed: int) -> None:
    reports = [_run(seed) for seed in range(first_seed, first_seed + SEEDS_PER_TEST)]
    assert sum(report.decided for report in reports) > 100 * SEEDS_PER_TEST
    assert sum(report.terms for report in reports) > SEEDS_PER_TEST


def _run(seed: int) -> Report:
    cluster = BrokersCluster(seed)
    try:
        return cluster.run(SECONDS)
    except Exception as error:
        story = "\n".join(cluster.trace.lines(80))
        pytest.fail(
            f"seed {seed} ({cluster.flavour}): {type(error).__name__}: {error}\n{story}", pytrace=False
        )


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
