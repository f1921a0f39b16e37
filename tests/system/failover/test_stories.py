"""Brokers are restarted, cut off, killed and lose their power while four kinds of clients work (`stories`).

One cluster for all of it.  `DLOG_SOAK=1`: twenty rounds of restarts, fifty power cuts, ten of each other.
By hand, as often as wanted: `python -m tests.system.failover rolling-restart --count 20`.
"""

import os
from pathlib import Path

import pytest

from tests.reliability.checker import describe as describe_findings
from tests.system.failover.figures import describe, judge_restarts, measure
from tests.system.failover.stories import Stories

SOAK = os.environ.get("DLOG_SOAK") == "1"
COUNTS = {
    "quiet": (1, 6),
    "rolling-restart": (2, 20),
    "split-leader": (1, 10),
    "split-controller": (1, 10),
    "coordinator": (1, 10),
    "power-cut": (1, 50),
}
SEED = 7
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@pytest.mark.timeout(7_200 if SOAK else 900)
def test_no_error_reaches_a_user_and_nothing_is_lost_whatever_happens_to_brokers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Stories(tmp_path, SEED) as stories:
        for name, (count, count_of_soak) in COUNTS.items():
            for _ in range(count_of_soak if SOAK else count):
                stories.play(name)
        history, found = stories.finish()
    figures = measure(history, stories.spans)
    with capsys.disabled():
        print(f"\n{describe(figures)}")
    if SOAK:
        found += judge_restarts(figures)
    assert not found, describe_findings(found)
    assert len(list(history.acknowledged())) > 100
