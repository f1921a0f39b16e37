"""A test of the tests: each bug, seeded into a copy of the source, is caught by the runs kept for it."""

from pathlib import Path

import pytest

from tests.simulation.brokers.mutant_runs import assert_caught
from tests.simulation.brokers.mutants import BrokersMutant
from tests.simulation.brokers.sinks.mutants import MUTANTS
from tests.simulation.brokers.sinks.test_sinks import SEEDS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_the_bug_is_caught(mutant: BrokersMutant, tmp_path: Path) -> None:
    assert_caught(mutant, "sinks", tmp_path)


def test_without_a_bug_the_same_runs_are_sound() -> None:
    """They are run, with all their faults, in `test_sinks`."""
    assert all(each.caught_by.first_seed + each.caught_by.seeds - 1 <= SEEDS for each in MUTANTS)
    assert not any(each.caught_by.flavour for each in MUTANTS)
