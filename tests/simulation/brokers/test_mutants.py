"""A test of the tests: each bug, seeded into a copy of the source, is caught by the runs kept for it."""

from pathlib import Path

import pytest

from tests.simulation.brokers.cluster import BrokersCluster
from tests.simulation.brokers.mutant_runs import SECONDS, assert_caught
from tests.simulation.brokers.mutants import MUTANTS, BrokersMutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_the_bug_is_caught(mutant: BrokersMutant, tmp_path: Path) -> None:
    assert_caught(mutant, "brokers", tmp_path)


def test_without_a_bug_the_same_runs_are_sound() -> None:
    cases = {
        (runs.first_seed + number, None, runs.flavour)
        for runs in {mutant.caught_by for mutant in MUTANTS}
        for number in range(runs.seeds)
    }
    for case in sorted(cases):
        BrokersCluster(*case).run(SECONDS)
