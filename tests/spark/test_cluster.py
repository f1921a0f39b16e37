"""A real standalone Spark cluster, as pip brings it, runs a pipeline from topic to topic."""

import subprocess
import sys
from pathlib import Path

from tests.spark.sink_stage import stage
from tests.spark.standalone import StandaloneCluster

WORKERS = ("127.0.0.2", "127.0.0.3")
PATIENCE_SECONDS = 300


def test_a_cluster_of_two_workers_reads_and_writes_topics(tmp_path: Path) -> None:
    with stage(tmp_path / "broker") as broker, StandaloneCluster(tmp_path / "spark", WORKERS) as cluster:
        source, target = broker.create("cluster-from", 2), broker.create("cluster-to", 2)
        broker.fill(source, [str(number).encode() for number in range(2000)])
        arguments = [cluster.master, broker.bootstrap, source, target, str(tmp_path / "checkpoint")]
        ran = subprocess.run(
            [sys.executable, "-m", "tests.spark.cluster_job", *arguments],
            capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr[-4000:]
        records = [record for found in broker.read(target).values() for record in found]
    assert sorted(int(record.value or b"") for record in records) == list(range(2000))
    assert {(record.key or b"").decode() for record in records} == set(WORKERS)
