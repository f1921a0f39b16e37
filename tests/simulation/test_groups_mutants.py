"""A test of the tests: each bug, seeded into a copy of the source, is caught by the runs kept for it."""

from pathlib import Path

import pytest

from tests.mutants.simulated import assert_caught_in_runs
from tests.simulation.checkers.groups import GroupsChecker
from tests.simulation.groups_cluster import GroupsCluster
from tests.simulation.groups_mutants import MUTANTS, GroupsMutant

SECONDS = 30


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_the_bug_is_caught(mutant: GroupsMutant, tmp_path: Path) -> None:
    runs = mutant.caught_by
    assert_caught_in_runs(
        mutant[:4],
        runs.breaks,
        tmp_path,
        kind="groups",
        seed=runs.first_seed,
        runs=runs.seeds,
        flavour=runs.flavour,
        seconds=SECONDS,
    )


def test_without_a_bug_the_same_runs_are_sound() -> None:
    cases = {
        (runs.first_seed + number, None, runs.flavour)
        for runs in {mutant.caught_by for mutant in MUTANTS}
        for number in range(runs.seeds)
    }
    for case in sorted(cases):
        GroupsCluster(*case).run(SECONDS)
    assert len(cases) > 10


def test_every_invariant_has_a_bug_that_breaks_it() -> None:
    """A checker that no bug ever trips might check nothing."""
    names = {checker.name for checker in GroupsChecker.__subclasses__()}
    broken = {mutant.caught_by.breaks for mutant in MUTANTS}
    assert names == broken, f"never broken: {names - broken}"
