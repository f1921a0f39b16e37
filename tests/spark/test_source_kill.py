"""Drivers and the broker are killed while a topic goes into Parquet: every row is there, once."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import confluent_kafka
import pytest

from tests.ports import free_port
from tests.spark.topics import Topics, until
from tests.system.server_process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IS_LONG = os.environ.get("DLOG_SOAK") == "1"
KILLS = 30 if IS_LONG else 3
PARTITIONS = 3
ROWS_PER_TURN = 60
TURN_SECONDS = 0.05
ROWS_AHEAD_MAX = 2_000
BATCHES_BETWEEN_KILLS_MAX = 4
STARTS_WITHIN_SECONDS = 180.0
"""The time of a driver's start, on a machine that has other things to do as well."""


class Feed(threading.Thread):
    """Writes numbered rows, not too far ahead of the query, until it is told to stop; every one of them is
    acknowledged then."""

    def __init__(self, bootstrap: str, topic: str, read: Callable[[], int]) -> None:
        super().__init__(daemon=True)
        self.written = 0
        self._read = read
        self._topic = topic
        self._stop_it = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 120_000,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        while not self._stop_it.wait(TURN_SECONDS):
            self._producer.poll(0)  # what is acknowledged leaves the queue
            for _ in range(ROWS_PER_TURN if self.written - self._read() < ROWS_AHEAD_MAX else 0):
                value = str(self.written).encode()
                self._producer.produce(self._topic, value=value, partition=self.written % PARTITIONS)
                self.written += 1

    def finish(self) -> int:
        self._stop_it.set()
        self.join()
        assert self._producer.flush(120) == 0
        return self.written


class Driver:
    """A process with a Spark of its own; how far it has come is read from its checkpoint."""

    def __init__(self, bootstrap: str, topic: str, directory: Path) -> None:
        self._command = [sys.executable, "-m", "tests.spark.driver", bootstrap, topic, str(directory)]
        self._topic = topic
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self._directory / "driver.log", "ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """Kills the driver with its JVM: they are one group."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        assert self._process.wait() == -signal.SIGKILL
        self._process = None

    def check(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, (self._directory / "driver.log").read_text()[-4000:]

    @property
    def batches(self) -> int:
        folder = self._directory / "checkpoint" / "commits"
        return max((int(each.name) for each in folder.glob("[0-9]*")), default=-1) + 1

    @property
    def rows(self) -> int:
        """That committed micro-batches have taken."""
        number = self.batches - 1
        if number < 0:
            return 0
        text = (self._directory / "checkpoint" / "offsets" / str(number)).read_text()
        return sum(json.loads(text.splitlines()[-1])[self._topic].values())


@pytest.mark.timeout(3600 if IS_LONG else 600)
def test_every_row_is_in_the_parquet_files_once_whoever_is_killed(
    spark: "SparkSession", tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    chance = random.Random(8)
    victims = ["driver", "broker", "driver"] + [chance.choice(["driver", "broker"]) for _ in range(3, KILLS)]
    gaps: dict[str, list[float]] = {"driver": [], "broker": []}
    settings = {"listeners": f"PLAINTEXT://127.0.0.1:{free_port()}"}
    with ServerProcess(tmp_path / "broker", settings) as broker:
        bootstrap = str(broker.facts["client"])
        name = Topics(bootstrap).create("killed", PARTITIONS)
        driver = Driver(bootstrap, name, tmp_path)
        feed = Feed(bootstrap, name, lambda: driver.rows)
        driver.start()
        feed.start()
        try:
            for victim in victims:
                wanted = driver.batches + chance.randrange(1, BATCHES_BETWEEN_KILLS_MAX + 1)
                until(lambda wanted=wanted: _reached(driver, wanted), "progress", STARTS_WITHIN_SECONDS)  # type: ignore[misc]
                threading.Event().wait(chance.random() * 0.3)  # anywhere in the next micro-batch
                before = driver.batches
                killed_at = monotonic()
                if victim == "driver":
                    driver.kill()
                    driver.start()
                else:
                    assert broker.stop(signal.SIGKILL) == -signal.SIGKILL
                    broker.restart()
                until(lambda before=before: _reached(driver, before + 2), "recovery", STARTS_WITHIN_SECONDS)  # type: ignore[misc]
                gaps[victim].append(monotonic() - killed_at)
            written = feed.finish()
            until(lambda: driver.rows >= written, "the end", STARTS_WITHIN_SECONDS)
        finally:
            driver.kill()
    found = spark.read.parquet(str(tmp_path / "rows"))
    assert found.count() == written
    assert found.select("value").distinct().count() == written
    assert found.select("partition", "offset").distinct().count() == written
    record_property("figures", f"{written} rows, seconds from a kill to the second micro-batch: {gaps}")


def _reached(driver: Driver, batches: int) -> bool:
    driver.check()
    return driver.batches >= batches
