"""Whole brokers with transactional clients under faults, a hundred seeds: every checker's invariant holds.

The first of them run for half a minute, as those with seeded bugs; the others for less, to be cheap: for the
last fourteen seconds there are no faults.  `DLOG_SOAK=1` runs two thousand seeds of a minute instead.
"""

import os

import pytest

from tests.simulation.brokers.transactions.cluster import TransactionsCluster
from tests.simulation.control_cluster import Report

IS_SOAK = os.environ.get("DLOG_SOAK") == "1"
SECONDS, SHORT_SECONDS = (60, 60) if IS_SOAK else (30, 20)
SEEDS = 16
"""Those that run for the whole time."""
SEEDS_ALL = 2_000 if IS_SOAK else 100
SEEDS_PER_TEST = 4


@pytest.mark.parametrize("first_seed", range(1, SEEDS_ALL + 1, SEEDS_PER_TEST))
def test_transactions_keep_their_promises_under_faults(first_seed: int) -> None:
    seconds = SECONDS if first_seed <= SEEDS else SHORT_SECONDS
    reports = [_run(seed, seconds) for seed in range(first_seed, first_seed + SEEDS_PER_TEST)]
    assert sum(report.decided for report in reports) > 5 * seconds * SEEDS_PER_TEST
    assert sum(report.operations for report in reports) > 2 * seconds * SEEDS_PER_TEST


def _run(seed: int, seconds: int) -> Report:
    cluster = TransactionsCluster(seed)
    try:
        return cluster.run(seconds)
    except Exception as error:
        story = "\n".join(cluster.trace.lines(80))
        pytest.fail(
            f"seed {seed} ({cluster.flavour}): {type(error).__name__}: {error}\n{story}", pytrace=False
        )
