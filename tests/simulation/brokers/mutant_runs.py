"""Runs simulations of whole brokers against a copy of the source with a bug in it."""

import os
import subprocess
import sys
from pathlib import Path

from tests.mutants.harness import ROOT, TESTS_FAILED, Mutant, seed
from tests.simulation.brokers.mutants import BrokersMutant

SECONDS = 30


def assert_caught(mutant: BrokersMutant, kind: str, directory: Path) -> None:
    """One of the runs kept for the bug has to end with the invariant that it breaks."""
    home, runs = seed(Mutant(*mutant[:4], ""), directory), mutant.caught_by
    options = {
        "kind": kind, "seed": runs.first_seed, "runs": runs.seeds, "seconds": SECONDS, "trace": 1,
        **({"flavour": runs.flavour} if runs.flavour else {}),
    }  # fmt: skip
    ran = subprocess.run(
        [sys.executable, "-m", "tests.simulation", *(f"--{name}={value}" for name, value in options.items())],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(home), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert ran.returncode == TESTS_FAILED, (
        f"'{mutant.name}' was not caught\n{ran.stdout}\n{ran.stderr[-2000:]}"
    )
    found = [f"InvariantError: {name}: " for name in runs.breaks.split(" / ")]
    assert any(each in ran.stdout for each in found), ran.stdout
