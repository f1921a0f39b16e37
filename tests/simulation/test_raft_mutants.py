"""A test of the tests: each bug, seeded into a copy of the source, is caught by what is kept for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.harness import ROOT, TESTS_FAILED, Mutant, assert_caught, seed
from tests.simulation.checkers import Checker
from tests.simulation.raft_cluster import RaftCluster
from tests.simulation.raft_mutants import MUTANTS, RaftMutant, Seed

SECONDS = 30


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_the_bug_is_caught(mutant: RaftMutant, tmp_path: Path) -> None:
    if isinstance(mutant.caught_by, str):
        assert_caught(Mutant(*mutant[:4], mutant.caught_by), tmp_path)
        return
    home = seed(Mutant(*mutant[:4], ""), tmp_path)
    ran = _simulate(mutant.caught_by, home)
    assert ran.returncode == TESTS_FAILED, (
        f"'{mutant.name}' was not caught\n{ran.stdout}\n{ran.stderr[-2000:]}"
    )
    assert f"InvariantError: {mutant.caught_by.breaks}: " in ran.stdout, ran.stdout


def _simulate(case: Seed, home: Path) -> "subprocess.CompletedProcess[str]":
    options = {"seed": case.seed, "nodes": case.nodes, "seconds": SECONDS, "runs": 1, "trace": 1}
    arguments = [f"--{name}={value}" for name, value in options.items()]
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", f"--flavour={case.flavour}", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(home), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
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
