"""A test of the tests: each bug, seeded into a copy of the source, is caught by what is kept for it."""

from pathlib import Path

import pytest

from tests.mutants.harness import Mutant, assert_caught
from tests.mutants.simulated import assert_caught_in_runs
from tests.simulation.checkers import Checker
from tests.simulation.raft_cluster import RaftCluster
from tests.simulation.raft_mutants import MUTANTS, RaftMutant, Seed

SECONDS = 30


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_the_bug_is_caught(mutant: RaftMutant, tmp_path: Path) -> None:
    if isinstance(mutant.caught_by, str):
        assert_caught(Mutant(*mutant[:4], mutant.caught_by), tmp_path)
        return
    case = mutant.caught_by
    assert_caught_in_runs(
        mutant[:4],
        case.breaks,
        tmp_path,
        seed=case.seed,
        runs=1,
        flavour=case.flavour,
        nodes=case.nodes,
        seconds=SECONDS,
    )


def test_without_a_bug_the_same_runs_are_sound() -> None:
    cases = {mutant.caught_by for mutant in MUTANTS if isinstance(mutant.caught_by, Seed)}
    for case in sorted(cases):
        RaftCluster(case.seed, case.nodes, case.flavour).run(SECONDS)
    assert len(cases) > 5


def test_every_invariant_has_a_bug_that_breaks_it() -> None:
    """A checker that no bug ever trips might check nothing."""
    names = {checker.name for checker in Checker.__subclasses__()}
    broken = {mutant.caught_by.breaks for mutant in MUTANTS if isinstance(mutant.caught_by, Seed)}
    assert names == broken
