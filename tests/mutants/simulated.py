"""Runs seeded simulations against a copy of the source with a bug in it."""

import os
import subprocess
import sys
from pathlib import Path

from tests.mutants.harness import ROOT, TESTS_FAILED, Mutant, seed

TIMEOUT_SECONDS = 600
FURTHER_SEEDS = 40
"""Any change of the product may give the seed that is kept another story; one of the next ones has to do."""


def assert_caught_in_runs(
    bug: tuple[str, str, str, str], breaks: str, home: Path, *, runs: int = 1, **options: object
) -> None:
    """One of the runs from the seed on that is kept for the bug has to end with the invariant that it breaks,
    or one of several with slashes between them.  The bug is its name, file, and text before and after; the
    options are those of `python -m tests.simulation`."""
    copy = seed(Mutant(*bug, ""), home)
    options |= {"trace": 1, "runs": runs + FURTHER_SEEDS, "until": breaks}
    arguments = [f"--{name}={value}" for name, value in options.items() if value != ""]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    assert ran.returncode == TESTS_FAILED, f"'{bug[0]}' was not caught\n{ran.stdout}\n{ran.stderr[-2000:]}"
    assert any(f"InvariantError: {each}: " in ran.stdout for each in breaks.split(" / ")), ran.stdout
