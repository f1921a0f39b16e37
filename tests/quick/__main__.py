"""`python -m tests.quick [--base REF] [--seconds N]`: the checks, then the nearest unit tests.

All of it within N seconds.  A change is what differs from where this branch left REF (`main`), committed or
not.  Checks are never cut short; tests have what is left of the time, at least TESTS_SECONDS_MIN.  Exits with
1 if a check or a test failed.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.quick.selection import Selection, select

ROOT: Final = Path(__file__).parents[2]
BIN: Final = Path(sys.executable).parent
SECONDS: Final = 115.0
TESTS_SECONDS_MIN: Final = 30.0
ENDING_SECONDS: Final = 5.0
"""What the last tests and pytest itself take after the moment at which none is begun any more."""
CHECKS: Final = (
    (str(BIN / "ruff"), "check", "--quiet", "."),
    (str(BIN / "ruff"), "format", "--check", "--quiet", "."),
    (str(BIN / "lint-imports"),),
    (sys.executable, "-m", "pytest", "-q", "tests/tidy"),
    (str(BIN / "mypy"),),
)


def git(*arguments: str) -> list[str]:
    ran = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return ran.stdout.splitlines()


def changed_paths(base: str) -> list[str]:
    """Committed since the branch left `base`, changed, or not yet known to git."""
    (fork,) = git("merge-base", "HEAD", base)
    tracked = git("diff", "--name-only", "--no-renames", fork)
    return sorted({*tracked, *git("ls-files", "--others", "--exclude-standard")})


def run_checks() -> list[str]:
    """Those that failed.  What a check says is shown only then."""
    failed = []
    for command in CHECKS:
        name = " ".join([Path(command[0]).name, *command[1:]])
        began = time.monotonic()
        ran = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
        print(
            f"{'FAILED' if ran.returncode else 'ok':<7}{time.monotonic() - began:5.1f} s  {name}", flush=True
        )
        if ran.returncode:
            print(ran.stdout + ran.stderr, flush=True)
            failed.append(name)
    return failed


def run_tests(selection: Selection, ends: float) -> bool:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "-p",
        "tests.quick.deadline",
        *selection.files,
    ]
    return (
        subprocess.run(
            command, cwd=ROOT, check=False, env={**os.environ, "DLOG_QUICK_ENDS": str(ends)}
        ).returncode
        == 0
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.quick", description=__doc__)
    parser.add_argument("--base", default="main", help="what the change is compared with")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long all of it may take")
    arguments = parser.parse_args()
    ends = time.time() + arguments.seconds - ENDING_SECONDS
    changed = changed_paths(arguments.base)
    selection = select(ROOT, changed)
    failed = run_checks()
    nearest, mirrored, near = map(len, selection.tiers)
    print(
        f"{len(changed)} files changed; tests: {nearest} files of that name, {mirrored} beside, {near} near"
    )
    if untested := [path for path in selection.untested if not path.endswith("__init__.py")]:
        print(f"no unit test stands for {', '.join(untested)}")
    if selection.files and not run_tests(selection, max(ends, time.time() + TESTS_SECONDS_MIN)):
        failed.append("pytest")
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
