"""No test is begun after its deadline, and it is said how many were not; alone and with workers."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TESTS = "import pytest\n\n@pytest.mark.parametrize('n', range(10))\ndef test_one(n):\n    assert n != 3\n"


def run_pytest(directory: Path, ends: float, *options: str) -> tuple[int, str]:
    (directory / "test_some.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.quick.deadline", *options, str(directory)]
    command += ["--rootdir", str(directory), "-c", os.devnull]
    environment = {**os.environ, "DLOG_QUICK_ENDS": str(ends), "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, cwd=directory, check=False, capture_output=True, text=True, env=environment)
    return ran.returncode, ran.stdout


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "with workers"])
def test_a_test_that_would_begin_too_late_is_not_begun(tmp_path: Path, options: tuple[str, ...]) -> None:
    code, told = run_pytest(tmp_path, time.time() - 1, *options)
    assert "10 tests were not begun" in told
    assert code in (0, 5), "nothing was found to fail"


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "with workers"])
def test_in_time_all_are_run_and_one_that_fails_fails(tmp_path: Path, options: tuple[str, ...]) -> None:
    code, told = run_pytest(tmp_path, time.time() + 600, *options)
    assert code == 1
    assert "1 failed, 9 passed" in told
    assert "not begun" not in told
