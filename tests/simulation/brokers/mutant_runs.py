"""Simulations of whole brokers that are kept for seeded bugs."""

from pathlib import Path

from tests.mutants.simulated import assert_caught_in_runs
from tests.simulation.brokers.mutants import BrokersMutant

SECONDS = 30


def assert_caught(mutant: BrokersMutant, kind: str, directory: Path) -> None:
    runs = mutant.caught_by
    assert_caught_in_runs(
        mutant[:4],
        runs.breaks,
        directory,
        kind=kind,
        seed=runs.first_seed,
        runs=runs.seeds,
        flavour=runs.flavour,
        seconds=SECONDS,
    )
