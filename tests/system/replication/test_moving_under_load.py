"""A small form of `moving_under_load`: the limit holds, and the move ends though the controller is killed."""

from pathlib import Path

from tests.system.replication.moving_under_load import SHARE_MAX, run

PARTITIONS = 10
TOTAL_BYTES = 6_000_000
RATE = 1_500_000


def test_partitions_move_within_their_throttle_though_the_controller_is_killed(tmp_path: Path) -> None:
    outcome = run(tmp_path, PARTITIONS, TOTAL_BYTES, RATE, kills_controller=True, baseline_seconds=1.0)
    assert outcome.moved_bytes >= TOTAL_BYTES * 0.95
    assert outcome.share <= SHARE_MAX, str(outcome)
