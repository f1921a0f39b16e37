"""Every seeded bug of the storage engine is caught by the suite."""

from pathlib import Path

import pytest

from tests.mutants.harness import Mutant, assert_caught, run_tests, seed
from tests.mutants.storage_mutants import MUTANTS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_the_suite_catches(mutant: Mutant, tmp_path: Path) -> None:
    assert_caught(mutant, tmp_path)


def test_without_a_bug_the_same_tests_pass_on_the_copy(tmp_path: Path) -> None:
    harmless = MUTANTS[0]._replace(new=MUTANTS[0].old + "  # no bug")
    ran = run_tests(
        "tests/unit/storage/test_index.py tests/unit/embedded/test_log.py", seed(harmless, tmp_path)
    )
    assert ran.returncode == 0, ran.stdout
