"""A test of the tests: each bug, seeded into a copy of the source, is caught by what is kept for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.harness import ROOT, TESTS_FAILED, Mutant, assert_caught, seed
from tests.simulation.checkers.control import ControlChecker
from tests.simulation.control_cluster import ControlCluster
from tests.simulation.control_mutants import MUTANTS, ControlMutant, Runs

SECONDS = 30


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_the_bug_is_caught(mutant: ControlMutant, tmp_path: Path) -> None:
    if isinstance(mutant.caught_by, str):
        assert_caught(Mutant(*mutant[:4], mutant.caught_by), tmp_path)
        return
    ran = _simulate(mutant.caught_by, seed(Mutant(*mutant[:4], ""), tmp_path))
    assert ran.returncode == TESTS_FAILED, (
        f"'{mutant.name}' was not caught\n{ran.stdout}\n{ran.stderr[-2000:]}"
    )
    assert f"InvariantError: {mutant.caught_by.breaks}: " in ran.stdout, ran.stdout


def _simulate(runs: Runs, home: Path) -> "subprocess.CompletedProcess[str]":
    options = {"seed": runs.first_seed, "runs": runs.seeds, "nodes": runs.nodes, "seconds": SECONDS}
    arguments = [f"--{name}={value}" for name, value in options.items()]
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.simulation",
            "--kind=control",
            f"--flavour={runs.flavour}",
            "--trace=1",
            *arguments,
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(home), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
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
    names = {checker.name for checker in ControlChecker.__subclasses__()}
    broken = {mutant.caught_by.breaks for mutant in MUTANTS if isinstance(mutant.caught_by, Runs)}
    assert names <= broken, f"never broken: {names - broken}"
