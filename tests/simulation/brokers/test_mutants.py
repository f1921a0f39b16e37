"""A test of the tests: each bug, seeded into a copy of the source, is caught by the runs kept for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.harness import ROOT, TESTS_FAILED, Mutant, seed
from tests.simulation.brokers.cluster import BrokersCluster
from tests.simulation.brokers.mutants import MUTANTS, BrokersMutant

SECONDS = 30


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_the_bug_is_caught(mutant: BrokersMutant, tmp_path: Path) -> None:
    home, runs = seed(Mutant(*mutant[:4], ""), tmp_path), mutant.caught_by
    options = {
        "kind": "brokers", "seed": runs.first_seed, "runs": runs.seeds, "flavour": runs.flavour,
        "seconds": SECONDS, "trace": 1,
    }  # fmt: skip
    ran = subprocess.run(
        [sys.executable, "-m", "tests.simulation", *(f"--{name}={value}" for name, value in options.items())],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(home), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert ran.returncode == TESTS_FAILED, (
        f"'{mutant.name}' was not caught\n{ran.stdout}\n{ran.stderr[-2000:]}"
    )
    assert f"InvariantError: {runs.breaks}: " in ran.stdout, ran.stdout


def test_without_a_bug_the_same_runs_are_sound() -> None:
    cases = {
        (runs.first_seed + number, None, runs.flavour)
        for runs in {mutant.caught_by for mutant in MUTANTS}
        for number in range(runs.seeds)
    }
    for case in sorted(cases):
        BrokersCluster(*case).run(SECONDS)
