"""A test of the tests: each bug, seeded into a copy of the source, is caught by what is kept for it."""

from pathlib import Path

import pytest

from tests.mutants.harness import Mutant, assert_caught
from tests.mutants.simulated import assert_caught_in_runs
from tests.simulation.checkers.control import ControlChecker
from tests.simulation.control_cluster import ControlCluster
from tests.simulation.control_mutants import MUTANTS, ControlMutant, Runs

SECONDS = 30
CHECKERS = "tests.simulation.checkers."
"""Where those of this simulation are; others have their own bugs."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_the_bug_is_caught(mutant: ControlMutant, tmp_path: Path) -> None:
    if isinstance(mutant.caught_by, str):
        assert_caught(Mutant(*mutant[:4], mutant.caught_by), tmp_path)
        return
    runs = mutant.caught_by
    assert_caught_in_runs(
        mutant[:4],
        runs.breaks,
        tmp_path,
        kind="control",
        seed=runs.first_seed,
        runs=runs.seeds,
        flavour=runs.flavour,
        nodes=runs.nodes,
        seconds=SECONDS,
    )


def test_without_a_bug_the_same_runs_are_sound() -> None:
    kept = {mutant.caught_by for mutant in MUTANTS if isinstance(mutant.caught_by, Runs)}
    cases = {
        (runs.first_seed + number, runs.nodes, runs.flavour) for runs in kept for number in range(runs.seeds)
    }
    for case in sorted(cases):
        ControlCluster(*case).run(SECONDS)
    assert len(cases) > 10


def test_every_invariant_has_a_bug_that_breaks_it() -> None:
    """A checker that no bug ever trips might check nothing."""
    checkers = (each for each in ControlChecker.__subclasses__() if each.__module__.startswith(CHECKERS))
    names = {checker.name for checker in checkers}
    broken = {mutant.caught_by.breaks for mutant in MUTANTS if isinstance(mutant.caught_by, Runs)}
    assert names <= broken, f"never broken: {names - broken}"
