"""From one broker to three, to five and back to three under load, voters too (`growth`).

One pass with little data.  `DLOG_SOAK=1`: several, with more data and another chance each, as many as wanted
by hand: `python -m tests.system.growing --count 5 --seed 7`.
"""

import os
from pathlib import Path

import pytest

from tests.reliability.checker import describe
from tests.system.growing.growth import LARGE, SMALL, Growth

SOAK = os.environ.get("DLOG_SOAK") == "1"
SEEDS = range(1, 6) if SOAK else (1,)
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_error_reaches_a_user_while_a_cluster_grows_and_shrinks(tmp_path: Path, seed: int) -> None:
    with Growth(tmp_path, seed, LARGE if SOAK else SMALL) as growth:
        growth.play()
        history, found = growth.finish()
    assert not found, describe(found)
    assert len(list(history.acknowledged())) > 100
    assert growth.fleet.ended == []
