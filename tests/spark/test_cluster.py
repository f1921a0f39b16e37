"""A real standalone Spark cluster, as pip brings it, runs a pipeline: to a table, and to another topic."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.spark.sink_stage import stage
from tests.spark.standalone import QUICK_JVM, StandaloneCluster
from tests.spark.topics import until

WORKERS = ("127.0.0.2", "127.0.0.3")
TIMEOUT_SECONDS = 300
PROJECT = Path(__file__).parent / "cluster_pipeline"
SETTINGS = {
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.sql.shuffle.partitions": "2",
}


def dlog(*arguments: object) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "distributedlog.cli.main", *map(str, arguments)],
        capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr[-4000:]
    return ran.stdout


def make_project(directory: Path) -> Path:
    shutil.copytree(PROJECT, directory, ignore=shutil.ignore_patterns("__pycache__"))
    spec = directory / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("STORAGE", f"file://{directory}/.dlog/storage"))
    return directory


def test_a_cluster_of_two_workers_runs_a_pipeline(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    settings = [f"--conf={key}={value}" for key, value in SETTINGS.items()]
    with stage(tmp_path / "broker") as broker, StandaloneCluster(tmp_path / "spark", WORKERS) as cluster:
        source, target = broker.create("cluster-from", 2), broker.create("cluster-to", 2)
        broker.fill(source, [str(number).encode() for number in range(2000)])
        dlog("pipeline", "run", "-p", project, "--master", cluster.master, "-b", broker.bootstrap, *settings)
        records = [record for found in broker.read(target).values() for record in found]
    assert sorted(int(record.value or b"") for record in records) == list(range(2000))
    assert {(record.key or b"").decode() for record in records} == set(WORKERS)
    files = (project / ".dlog" / "warehouse" / "numbers").glob("*.parquet")
    assert sorted(number for file in files for number in _numbers(file)) == list(range(2000))


def test_a_master_without_workers_is_told_in_one_line(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    settings = [f"--conf={key}={value}" for key, value in SETTINGS.items()]
    with stage(tmp_path / "broker") as broker, StandaloneCluster(tmp_path / "spark", ()) as cluster:
        until(lambda: "New state: ALIVE" in cluster.master_log, "that the master is there")
        command = ["pipeline", "run", "-p", project, "--master", cluster.master, "-b", broker.bootstrap]
        told = subprocess.run(
            [sys.executable, "-m", "distributedlog.cli.main", *map(str, command), *settings,
             "--conf=dlog.session.workers-seconds=5"],
            capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS,
        )  # fmt: skip
    assert told.returncode == 3, told.stdout + told.stderr
    assert "has taken this application within 5 s" in told.stderr
    assert told.stderr.count("\n") == 1, told.stderr


def _numbers(file: Path) -> list[int]:
    """Nothing was killed, so no file belongs to nothing."""
    import pyarrow.parquet

    found: list[int] = pyarrow.parquet.read_table(file).column("number").to_pylist()
    return found
