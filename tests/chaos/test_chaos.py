"""A short run of `make chaos` with the safe settings: faults of a fixed seed, and nothing may be found."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.run import Plan, run

SEED, SECONDS = 36, 42.0
NEMESES = ("kill-leader", "stop-controller", "partition-minority", "power-cut-all")
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@pytest.mark.timeout(600)
def test_nothing_acknowledged_is_lost_doubled_or_reordered_whatever_happens_to_brokers(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    report = run(Plan(SEED, SECONDS, brokers=3, nemeses=NEMESES), tmp_path)
    record_property("figures", str(report))
    assert report.is_as_expected, str(report)
    assert not report.findings
    assert report.faults
    assert len(list(report.history.acknowledged())) > 100
    assert report.picture.read_text(encoding="utf-8").startswith("<svg")
