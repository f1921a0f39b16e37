"""A standalone Spark cluster out of the pip package: a master, and workers, each at its own address."""

import os
import signal
import subprocess
from pathlib import Path
from types import TracebackType

import pyspark

from distributedlog.spark.session.java import find_java
from tests.ports import free_port
from tests.spark.topics import until

HOME = Path(pyspark.__file__).parent
LAUNCHER = str(HOME / "bin" / "spark-class")
MASTER_HOST = "127.0.0.1"
STOP_SECONDS = 30
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Six of them start on two cores, and none lives long enough for the better compiler to pay."""


class StandaloneCluster:
    """A context manager: every worker has registered when it is entered; nothing runs when it is left."""

    def __init__(self, directory: Path, hosts: tuple[str, ...]) -> None:
        self._directory = directory
        self._hosts = hosts
        self._processes: list[subprocess.Popen[bytes]] = []
        self._port = free_port()
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def master(self) -> str:
        return f"spark://{MASTER_HOST}:{self._port}"

    @property
    def process_ids(self) -> list[int]:
        return [process.pid for process in self._processes]

    @property
    def master_log(self) -> str:
        return (self._directory / "master.log").read_text()

    def _start(self, name: str, host: str, *arguments: str) -> None:
        environment = os.environ | {
            "JAVA_HOME": find_java().home,
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
            "SPARK_NO_DAEMONIZE": "1",
        }
        with open(self._directory / f"{name}.log", "ab") as log:
            self._processes.append(
                subprocess.Popen(
                    [LAUNCHER, *arguments],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def __enter__(self) -> "StandaloneCluster":
        try:
            self._start(
                "master", MASTER_HOST, "org.apache.spark.deploy.master.Master",
                "--host", MASTER_HOST, "--port", str(self._port), "--webui-port", "0",
            )  # fmt: skip
            for host in self._hosts:
                self._start(
                    f"worker-{host}", host, "org.apache.spark.deploy.worker.Worker",
                    "--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0",
                    "--work-dir", str(self._directory / host), self.master,
                )  # fmt: skip
            until(self._is_complete, f"that all workers register:\n{self.master_log}")
        except BaseException:
            self._end()
            raise
        return self

    def _is_complete(self) -> bool:
        assert all(process.poll() is None for process in self._processes), self.master_log
        return self.master_log.count("Registering worker") >= len(self._hosts)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        """Workers first: they end their executors; what does not go by itself is killed with its group."""
        for process in reversed(self._processes):
            process.terminate()
        for process in reversed(self._processes):
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._processes.clear()
