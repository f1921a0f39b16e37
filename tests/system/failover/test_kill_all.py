"""All brokers are killed at once with two hundred partitions: all of them are written again, nothing is lost.

With `DLOG_SOAK=1` two thousand; by hand `python -m tests.system.failover all --count 2000`.
"""

import os
from pathlib import Path

import pytest

from tests.system.dev_cluster import DevCluster
from tests.system.failover.kill_all import kill_all
from tests.system.replication.stage import Replicated

PARTITIONS = 2_000 if os.environ.get("DLOG_SOAK") == "1" else 200
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@pytest.mark.timeout(900)
def test_all_brokers_killed_at_once_serve_every_partition_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--brokers", 3, "--data-dir", tmp_path / "data", "--port", 0, "--no-gateway")
    with DevCluster(tmp_path / "ready.json", *arguments) as cluster:
        outcome = kill_all(Replicated(cluster, tmp_path), PARTITIONS)
    with capsys.disabled():
        print(f"\n{outcome}")
