"""A short run of `make chaos` with the safe settings: faults of a fixed seed, and nothing may be found.

`DLOG_SOAK=1`: all faults, ten minutes with three brokers and five with five, with Kafka's own Java clients
where their jars are in place; and a run of each mode in which
records are lost, or clients break the rules, which the checker has to see.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.modes import MODES, SAFE
from tests.chaos.run import Plan, run
from tests.reliability.history import Outcome
from tests.reliability.programs.java.compiled import are_in_place

SOAK = os.environ.get("DLOG_SOAK") == "1"
NEMESES = (
    "kill-leader", "stop-controller", "term-controller", "partition-minority", "power-cut-all",
    "kill-transactions", "move-partitions",
)  # fmt: skip
PLANS = (
    (Plan(1, 600.0, brokers=3, has_java=are_in_place()), Plan(2, 300.0, brokers=5, has_java=are_in_place()))
    if SOAK
    else (Plan(2881, 42.0, brokers=3, nemeses=NEMESES),)
)
LOSING_SECONDS = 120.0
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@pytest.mark.timeout(3_600 if SOAK else 600)
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"{plan.brokers} brokers")
def test_nothing_acknowledged_is_lost_doubled_or_reordered_whatever_happens_to_brokers(
    plan: Plan, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    report = run(plan, tmp_path)
    record_property("figures", str(report))
    assert report.is_as_expected, str(report)
    assert not report.findings
    assert report.faults
    assert len(list(report.history.acknowledged())) > 100
    assert len(report.history.transactions(Outcome.OK)) > 50
    assert report.picture.read_text(encoding="utf-8").startswith("<svg")


if SOAK:  # minutes for each

    @pytest.mark.timeout(1_800)
    @pytest.mark.parametrize("mode", [each for each in MODES if each != SAFE.name])
    def test_the_checker_sees_what_is_lost_or_wrong(mode: str, tmp_path: Path) -> None:
        report = run(Plan(1, LOSING_SECONDS, brokers=3, mode=MODES[mode]), tmp_path)
        assert report.is_as_expected, str(report)
