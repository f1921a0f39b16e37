"""Seeds one bug into a copy of the package and runs a part of the suite against that copy.

A mutant is an exact piece of source and what stands in its place.  The piece must occur exactly once, so a
mutant cannot quietly stop meaning anything when the code changes: its test then fails and says so.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = "distributedlog"
TESTS_FAILED = 1
"""pytest's exit code for tests that ran and failed; other codes mean that they did not run."""


class Mutant(NamedTuple):
    name: str
    """What the bug is, in a user's words."""
    file: str
    """Below src/distributedlog."""
    old: str
    new: str
    tests: str
    """What must catch it: pytest arguments, as few and quick as do."""


def seed(mutant: Mutant, directory: Path) -> Path:
    """A copy of the package with the bug in it; the folder to put on the path.

    What Python has compiled of the others is copied too, with their times, by which it knows that it still
    holds: to compile all of them anew would take longer than most tests.
    """
    home = directory / "src"
    shutil.copytree(ROOT / "src" / PACKAGE, home / PACKAGE)
    source = home / PACKAGE / mutant.file
    text = source.read_text()
    found = text.count(mutant.old)
    assert found == 1, f"{mutant.name}: its piece of {mutant.file} occurs {found} times, not once"
    source.write_text(text.replace(mutant.old, mutant.new))
    for compiled in source.parent.glob(f"{source.stem}.*.so"):
        compiled.unlink()  # a mutated kernel runs interpreted
    for compiled in (source.parent / "__pycache__").glob(f"{source.stem}.*.pyc"):
        compiled.unlink()  # also if the bug was written within the second in which it was compiled
    return home


def run_tests(tests: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests.split()],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(home), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )


def assert_caught(mutant: Mutant, directory: Path) -> None:
    ran = run_tests(mutant.tests, seed(mutant, directory))
    assert ran.returncode == TESTS_FAILED, (
        f"the bug '{mutant.name}' was not caught by {mutant.tests} (pytest's exit code {ran.returncode})\n"
        f"{ran.stdout[-2000:]}\n{ran.stderr[-2000:]}"
    )
