"""Traffic that is far more than the broker can take is held back at the sockets, not in its memory.

Forty connections send without waiting for answers, so that as much is on its way as all limits allow; a good
client from elsewhere is served meanwhile.  Nothing that was acknowledged is lost or out of order, nothing is
refused, and afterwards the broker is as it was.  DLOG_SOAK=1 sends for a minute.
"""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from tests.system.enemies import Enemy
from tests.system.hostile_stage import PLAIN, QUEUED_MB, HostileStage
from tests.system.spike import Spike, written_in

SECONDS = 60.0 if os.environ.get("DLOG_SOAK") else 10.0
CONNECTIONS = 40
SETTINGS = {"request.timeout.ms": 30_000}


def parked(stage: HostileStage) -> float:
    found = re.search(r"^dlog_delayed_requests ([\d.e+]+)$", stage.metrics(), re.MULTILINE)
    assert found is not None
    return float(found[1])


def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    """An answer is counted just after it was sent: a scrape may come in between."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "some requests still wait for their answers"
        time.sleep(0.05)


def test_a_spike_is_absorbed_by_holding_back_and_not_by_memory(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with HostileStage(tmp_path, SETTINGS) as stage, Enemy(stage.address, "127.0.7.1") as enemy:
        before = stage.quiet(0.5)
        spike = Spike(enemy, PLAIN, CONNECTIONS)
        with stage.meanwhile("spike") as during:
            spike.run(SECONDS)
        after = stage.quiet(0.5)
        assert spike.unanswered == 0
        assert spike.refused == 0
        written = written_in(enemy.connect()[0], PLAIN, spike.acknowledged)
        for seen in (before, during, after):
            seen.check()
        until(lambda: parked(stage) == 0)
        assert stage.log_lines_about(enemy.host) == []
        assert stage.server.stop() == 0
    assert [len(numbers) for numbers in written] == [lane.acknowledged for lane in spike.lanes]
    assert all(numbers == list(range(len(numbers))) for numbers in written), "in the order it was sent"
    offered_mb = CONNECTIONS * 8
    assert during.rss_growth_mb < offered_mb, "less than what was on its way at any time"
    record_property(
        "figures",
        f"{spike.acknowledged / SECONDS:,.0f} records/s taken of 4 kB; {during.figures}; "
        f"before {before.figures}; after {after.figures}; queued.bytes.max {QUEUED_MB} MB",
    )
