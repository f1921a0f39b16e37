"""Whole brokers with transactional clients under faults, many seeds: every checker's invariant holds.

`DLOG_SOAK=1` runs two thousand seeds of a minute instead.
"""

import os

import pytest

from tests.simulation.brokers.transactions.cluster import TransactionsCluster
from tests.simulation.control_cluster import Report

IS_SOAK = os.environ.get("DLOG_SOAK") == "1"
SECONDS = 60 if IS_SOAK else 30
SEEDS = 2_000 if IS_SOAK else 16
SEEDS_PER_TEST = 4


@pytest.mark.parametrize("first_seed", range(1, SEEDS + 1, SEEDS_PER_TEST))
def test_transactions_keep_their_promises_under_faults(first_seed: int) -> None:
    reports = [_run(seed) for seed in range(first_seed, first_seed + SEEDS_PER_TEST)]
    assert sum(report.decided for report in reports) > 150 * SEEDS_PER_TEST
    assert sum(report.operations for report in reports) > 80 * SEEDS_PER_TEST


def _run(seed: int) -> Report:
    cluster = TransactionsCluster(seed)
    try:
        return cluster.run(SECONDS)
    except Exception as error:
        story = "\n".join(cluster.trace.lines(80))
        pytest.fail(
            f"seed {seed} ({cluster.flavour}): {type(error).__name__}: {error}\n{story}", pytrace=False
        )
