"""The control plane of whole clusters under faults, many seeds: every checker's invariant holds.

`DLOG_SOAK=1` runs four thousand seeds instead of a hundred.
"""

import os

import pytest

from tests.simulation.control_cluster import ControlCluster, Report

SECONDS = 30
SEEDS = 4_000 if os.environ.get("DLOG_SOAK") == "1" else 100
SEEDS_PER_TEST = 10


@pytest.mark.parametrize("first_seed", range(1, SEEDS + 1, SEEDS_PER_TEST))
def test_a_control_plane_keeps_its_promises_under_faults(first_seed: int) -> None:
    reports = [_run(seed) for seed in range(first_seed, first_seed + SEEDS_PER_TEST)]
    assert sum(report.decided for report in reports) > 50 * SEEDS_PER_TEST
    assert sum(report.operations for report in reports) > 80 * SEEDS_PER_TEST


def _run(seed: int, flavour: str | None = None, nodes: int | None = None, seconds: int = SECONDS) -> Report:
    cluster = ControlCluster(seed, nodes, flavour)
    try:
        return cluster.run(seconds)
    except Exception as error:
        story = "\n".join(cluster.trace.lines(80))
        pytest.fail(
            f"seed {seed} ({cluster.flavour}): {type(error).__name__}: {error}\n{story}", pytrace=False
        )


def test_the_same_seed_gives_the_same_trace_byte_for_byte() -> None:
    for seed in (3, 5):
        digests = set()
        for _ in range(2):
            cluster = ControlCluster(seed)
            cluster.run(20)
            assert len(cluster.trace) > 200
            digests.add(cluster.trace.digest())
        assert len(digests) == 1, f"seed {seed} did not repeat"


@pytest.fixture(scope="module")
def sample() -> list[ControlCluster]:
    """Some runs that are over, of each kind that has faults."""
    clusters = []
    for flavour, seeds in (("mixed", 14), ("churn", 3), ("brokers", 3)):
        for seed in range(1, seeds + 1):
            clusters.append(ControlCluster(seed, flavour=flavour))
            clusters[-1].run(SECONDS)
    return clusters


def test_clients_get_most_of_what_they_ask_for_and_all_kinds_of_answers(sample: list[ControlCluster]) -> None:
    """A run in which nothing works checks nothing; nor does one in which everything does."""
    operations = [operation for cluster in sample for operation in cluster.operations]
    outcomes: dict[str, set[str]] = {}
    for operation in operations:
        outcomes.setdefault(operation.kind, set()).add(operation.outcome)
    assert sum(operation.outcome == "ok" for operation in operations) > len(operations) / 3
    for kind in ("create", "delete", "set"):
        assert "unknown" in outcomes[kind], kind
    for kind in ("check", "create", "delete", "elect", "force", "grow", "read", "set", "take producer ids"):
        assert "ok" in outcomes[kind], kind
    for kind in ("check", "create", "delete", "take producer ids"):
        assert "refused" in outcomes[kind], kind


def test_every_fault_strikes_somewhere(sample: list[ControlCluster]) -> None:
    """A fault that never happens tests nothing."""
    told: set[str] = set()
    for cluster in sample:
        told |= cluster.trace.told_by("fault")
    wanted = {
        "bit rot", "bridge", "broker disk replaced", "changed", "data loop stuck", "disk replaced",
        "flapping", "gone for good", "isolated", "leaves", "lossy", "one way", "power cut", "slow",
        "slow disk", "split", "stranded", "sync fails", "transfer", "twin", "very lossy",
    }  # fmt: skip
    assert wanted <= told, f"never seen: {wanted - told}"


@pytest.mark.parametrize(("seed", "flavour"), [(37, "churn"), (3431, "churn")])
def test_seeds_that_once_told_of_a_mistake(seed: int, flavour: str) -> None:
    """37: settings that were replaced were replaced again after another's change.  3431: a voter whose log
    ended in a conflict, just where the leader's snapshot ended, was never brought up to date."""
    assert _run(seed, flavour, seconds=40).decided > 0
