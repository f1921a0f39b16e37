"""Coordinators and members of groups under faults, many seeds: every checker's invariant holds.

`DLOG_SOAK=1` runs two thousand seeds instead of forty.
"""

import os
import subprocess
import sys

import pytest

from tests.mutants.harness import ROOT
from tests.simulation.control_cluster import Report
from tests.simulation.groups_cluster import GroupsCluster

SECONDS = 30
SEEDS = 2_000 if os.environ.get("DLOG_SOAK") == "1" else 40
SEEDS_PER_TEST = 10


@pytest.mark.parametrize("first_seed", range(1, SEEDS + 1, SEEDS_PER_TEST))
def test_groups_keep_their_promises_under_faults(first_seed: int) -> None:
    reports = [_run(seed) for seed in range(first_seed, first_seed + SEEDS_PER_TEST)]
    assert sum(report.decided for report in reports) > 300 * SEEDS_PER_TEST
    assert sum(report.terms for report in reports) > SEEDS_PER_TEST


def _run(seed: int) -> Report:
    cluster = GroupsCluster(seed)
    try:
        return cluster.run(SECONDS)
    except Exception as error:
        story = "\n".join(cluster.trace.lines(80))
        pytest.fail(
            f"seed {seed} ({cluster.flavour}): {type(error).__name__}: {error}\n{story}", pytrace=False
        )


def test_the_same_seed_gives_the_same_trace_byte_for_byte() -> None:
    digests = set()
    for _ in range(2):
        cluster = GroupsCluster(3)
        cluster.run(24)
        assert len(cluster.trace) > 200
        digests.add(cluster.trace.digest())
    assert len(digests) == 1


def test_another_process_tells_the_same_trace() -> None:
    """Neither the order of sets nor anything else that Python draws when it starts is in it."""
    program = (
        "from tests.simulation.groups_cluster import GroupsCluster\n"
        "cluster = GroupsCluster(1)\ncluster.run(10)\nprint(cluster.trace.digest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(digests) == 1


def test_every_fault_strikes_somewhere_and_members_hear_all_kinds_of_answers() -> None:
    """A fault that never happens tests nothing; nor does a refusal that nobody hears."""
    told: set[str] = set()
    heard: set[str] = set()
    kinds = {"mixed": range(1, 6), "members": range(5, 11), "coordinators": range(8, 14)}
    for flavour, seed in [(flavour, seed) for flavour, seeds in kinds.items() for seed in seeds]:
        cluster = GroupsCluster(seed, flavour=flavour)
        cluster.run(SECONDS)
        told |= cluster.trace.told_by("fault")
        heard |= {line.split()[3] for line in cluster.trace.lines() if "Request " in line}
    assert told >= {
        "broker killed", "coordinator killed", "cut off", "handed over", "handed over unnoticed",
        "lossy", "member comes",
        "member dozes", "member killed", "member leaves", "member sleeps", "slow", "slow copies",
        "slow disks", "stands still", "static member restarts", "static member sleeps through", "twin",
        "member changes its mind", "member moves", "member beats slowly", "member commits late",
        "member turns deaf", "topic grows",
    }  # fmt: skip
    assert heard >= {
        "NONE", "MEMBER_ID_REQUIRED", "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS",
        "FENCED_INSTANCE_ID", "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS",
        "FENCED_MEMBER_EPOCH", "STALE_MEMBER_EPOCH", "UNRELEASED_INSTANCE_ID",
    }  # fmt: skip
