"""Every seeded bug is caught by the suite.  (Raft's have runs of their own: tests/simulation.)"""

import os
from pathlib import Path

import pytest

from tests.mutants import (
    admin_mutants,
    adoption_mutants,
    balance_mutants,
    broker_mutants,
    client_mutants,
    controller_mutants,
    groups_mutants,
    healing_mutants,
    moves_mutants,
    partition_transactions_mutants,
    patterns_mutants,
    sinks_mutants,
    spark_mutants,
    storage_mutants,
    transactions_mutants,
    voters_mutants,
)
from tests.mutants.harness import Mutant, assert_caught, run_tests, seed

IS_SOAK = os.environ.get("DLOG_SOAK") == "1"
MUTANTS = [
    *storage_mutants.MUTANTS,
    *controller_mutants.MUTANTS,
    *broker_mutants.MUTANTS,
    *groups_mutants.MUTANTS,
    *healing_mutants.MUTANTS,
    *moves_mutants.MUTANTS,
    *voters_mutants.MUTANTS,
    *partition_transactions_mutants.MUTANTS,
    *transactions_mutants.MUTANTS,
    *sinks_mutants.MUTANTS,
    *spark_mutants.MUTANTS,
    *admin_mutants.MUTANTS,
    *adoption_mutants.MUTANTS,
    *balance_mutants.MUTANTS,
    *client_mutants.MUTANTS,
    *patterns_mutants.MUTANTS,
]


PATIENT = {
    "a reader that stopped is kept for all that it took before",
    "a record's length is not compared with what its fields take",
    "a log that somebody waits for is synced behind others that nobody waits for",
}
"""The bugs with which something waits in vain for a minute or two: they are caught in the long runs."""
RUN = [each for each in MUTANTS if IS_SOAK or each.name not in PATIENT]


def test_the_patient_are_there() -> None:
    assert {each.name for each in MUTANTS} >= PATIENT


@pytest.mark.parametrize("mutant", RUN, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_the_suite_catches(mutant: Mutant, tmp_path: Path) -> None:
    assert_caught(mutant, tmp_path)


def test_without_a_bug_the_same_tests_pass_on_the_copy(tmp_path: Path) -> None:
    first = MUTANTS[0]
    harmless = first._replace(new=first.old + "  # no bug")
    ran = run_tests(
        "tests/unit/storage/test_index.py tests/unit/embedded/test_log.py", seed(harmless, tmp_path)
    )
    assert ran.returncode == 0, ran.stdout
