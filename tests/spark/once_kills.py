"""Whoever takes part is killed while a topic is counted into another: the output is what the input says.

    python -m tests.spark.once_kills --kills 50 --seed 1          a standalone Spark cluster, speculation on
    python -m tests.spark.once_kills --kills 3 --local            Spark in one process; no executor to kill

Three brokers, and one driver on one checkpoint, started again whenever it ends.  Each kill has a victim and a
moment, both drawn by the seed:

    victims   driver; zombie (a driver that is stopped, and wakes when its successor is at work: it has to
              fail); python (a worker of Spark); executor (a JVM of Spark); coordinator (of the query's
              sink); leader (of a partition of the target)
    moments   some time after a batch was opened; as soon as one is decided, which is before the driver has
              heard of it

In the end every batch of the checkpoint has its rows in the target, each once and no other, in the order of
batches; and what a `read_committed` reader saw meanwhile is what is there.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import monotonic, sleep
from typing import Final, NamedTuple

import confluent_kafka

from distributedlog.client.addresses import parse_bootstrap
from distributedlog.client.metadata import Cluster
from distributedlog.client.sinks import Sink, SinkView
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition
from distributedlog.testing.cluster import BrokerHandle, TestCluster
from tests.spark.event_log import speculation
from tests.spark.once_driver import events_directory
from tests.spark.once_proof import Row, compare, expected_rows, read_topic
from tests.spark.processes import descendants
from tests.spark.standalone import StandaloneCluster
from tests.spark.topics import Topics, until

KEYS: Final = 7
PARTITIONS: Final = 2
ROWS_PER_TURN: Final = 4
TURN_SECONDS: Final = 0.1
ROWS_AHEAD_MAX: Final = 400
LIMIT_SECONDS: Final = 240.0
STRIKES_MAX: Final = 50
WORKERS: Final = ("127.0.0.2", "127.0.0.3")
LOCAL_VICTIMS: Final = ("driver", "coordinator", "leader", "python", "zombie")
VICTIMS: Final = (*LOCAL_VICTIMS, "executor")


class Kill(NamedTuple):
    victim: str
    is_after_decision: bool
    delay_seconds: float


def draw(seed: int, kills: int, victims: tuple[str, ...]) -> list[Kill]:
    """Every victim comes in turn; the moments are drawn."""
    chance = random.Random(seed)
    first = chance.randrange(len(victims))
    return [
        Kill(victims[(first + at) % len(victims)], chance.random() < 0.5, chance.random() * 0.6)
        for at in range(kills)
    ]


class Feed(threading.Thread):
    """Writes rows, not too far ahead of the query, until it is told to stop."""

    def __init__(self, bootstrap: str, topic: str, driver: "Driver") -> None:
        super().__init__(daemon=True)
        self.written = 0
        self._topic = topic
        self._driver = driver
        self._stop_it = threading.Event()
        settings = {"enable.idempotence": True, "message.timeout.ms": 120_000, "log_level": 0}
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **settings})

    def run(self) -> None:
        while not self._stop_it.wait(TURN_SECONDS):
            self._producer.poll(0)
            for _ in range(ROWS_PER_TURN if self.written - self._driver.rows < ROWS_AHEAD_MAX else 0):
                key, partition = f"k{self.written % KEYS}", self.written % PARTITIONS
                self._producer.produce(self._topic, key=key, value=b"-", partition=partition)
                self.written += 1

    def finish(self) -> int:
        self._stop_it.set()
        self.join()
        assert self._producer.flush(120) == 0
        return self.written


class Driver:
    """A process with a Spark of its own, kept alive; how far it has come is read from its checkpoint."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "tests.spark.once_driver", *arguments, str(directory)]
        self._command = command
        self.directory = directory
        self.starts = 0
        self._rows = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._zombie: subprocess.Popen[bytes] | None = None
        self.zombies = 0

    def keep_alive(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self.starts += 1
        with open(self.directory / "driver.log", "ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> bool:
        """Kills the driver with its JVM and all that it has started: they are one group.  Returns whether it
        was alive."""
        process, self._process = self._process, None
        if process is None:
            return False
        was_alive = process.poll() is None
        self._end(process)
        return was_alive

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop_still(self) -> bool:
        """Stops the driver with all that it has started; `keep_alive` starts its successor.  Returns whether
        it was alive."""
        process = self._process
        if process is None or process.poll() is not None:
            return False
        os.killpg(process.pid, signal.SIGSTOP)
        self._process, self._zombie = None, process
        return True

    def wake_zombie(self) -> None:
        """Lets a driver that stands still go on: it must fail, and end."""
        process, self._zombie = self._zombie, None
        if process is None:
            return
        os.killpg(process.pid, signal.SIGCONT)
        try:
            code = process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError("a driver that was replaced goes on") from None
        finally:
            self._end(process)
        assert code, "a driver that was replaced ended as if nothing had been"
        self.zombies += 1

    def close(self) -> None:
        self.kill()
        if self._zombie is not None:
            self._end(self._zombie)

    @property
    def process_id(self) -> int:
        return -1 if self._process is None else self._process.pid

    def _latest(self, folder: str) -> int:
        names = (each.name for each in (self.directory / "checkpoint" / folder).glob("[0-9]*"))
        return max(map(int, names), default=-1)

    @property
    def batches(self) -> int:
        """Those that Spark has committed."""
        return self._latest("commits") + 1

    def ends(self, batch_id: int) -> Mapping[str, int]:
        """Returns up to where a batch has read, by partition."""
        text = (self.directory / "checkpoint" / "offsets" / str(batch_id)).read_text()
        found = json.loads(text.splitlines()[-1])
        (ends,) = (value for name, value in found.items() if "@" not in name)
        return dict(ends)

    @property
    def rows(self) -> int:
        """That committed batches have taken; a file may be about to be renamed to what it is called."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            self._rows = sum(self.ends(self.batches - 1).values()) if self.batches else 0
        return self._rows

    @property
    def query_id(self) -> str:
        return str(json.loads((self.directory / "checkpoint" / "metadata").read_text())["id"])


class Stage:
    """Brokers, topics, the driver and those who watch."""

    def __init__(self, cluster: TestCluster, driver: Driver, spark: StandaloneCluster | None) -> None:
        self.cluster = cluster
        self.driver = driver
        self.spark = spark
        self._loop = asyncio.new_event_loop()
        self._client: Cluster | None = None

    def describe(self) -> SinkView | None:
        """What the query's sink is at; None: nobody says, or it has not written yet."""

        async def ask() -> SinkView:
            if self._client is None:
                self._client = Cluster(parse_bootstrap(self.cluster.bootstrap))
            return await asyncio.wait_for(Sink(self._client, self.driver.query_id).describe(), 5)

        try:
            return self._loop.run_until_complete(ask())
        except (DlogError, OSError, TimeoutError, ValueError):
            return None

    def close(self) -> None:
        if self._client is not None:
            self._loop.run_until_complete(self._client.close())
        self._loop.close()

    # --- moments -------------------------------------------------------------------------------

    def wait_for_batches(self, wanted: int) -> None:
        def is_so() -> bool:
            self.driver.keep_alive()
            return self.driver.batches >= wanted

        until(is_so, f"batch {wanted}, after {self._last_words()}", LIMIT_SECONDS)

    def _last_words(self) -> str:
        log = self.driver.directory / "driver.log"
        return log.read_text(errors="replace")[-2000:] if log.exists() else ""

    def wait_for_moment(self, kill: Kill) -> None:
        """Until a batch is open, and the delay is over; or until one is decided."""
        begun, deadline = self.describe(), monotonic() + LIMIT_SECONDS
        while monotonic() < deadline:
            self.driver.keep_alive()
            view = self.describe()
            if view is None or begun is None:
                begun = view
                sleep(0.02)
            elif kill.is_after_decision and view.committed_batch_id > begun.committed_batch_id:
                return
            elif not kill.is_after_decision and view.state == "Ongoing":
                sleep(kill.delay_seconds)
                return
        raise AssertionError(f"no moment for {kill}: {self._last_words()}")

    def carry_out(self, kill: Kill, chance: random.Random) -> None:
        """Returns when somebody was killed; where nobody was there to be, the next moment is waited for."""
        for _ in range(STRIKES_MAX):
            self.wait_for_moment(kill)
            if self.strike(kill.victim, chance):
                return
        raise AssertionError(f"nobody was found for {kill}: {self._last_words()}")

    # --- victims -------------------------------------------------------------------------------

    def strike(self, victim: str, chance: random.Random) -> bool:
        """Returns whether there was somebody to kill."""
        if victim == "driver":
            return self.driver.kill()
        if victim == "zombie":
            return self.driver.stop_still()
        if victim in ("coordinator", "leader"):
            return self._kill_broker(victim, chance)
        roots = [self.driver.process_id] if self.spark is None else self.spark.process_ids
        born = [each for root in roots for each in descendants(root)]
        if victim == "python":
            found = [each for each in born if "pyspark.daemon" in each.command]
        else:
            found = [each for each in born if "CoarseGrainedExecutorBackend" in each.command]
        if not found:
            return False
        try:
            os.kill(chance.choice(found).process_id, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def _kill_broker(self, victim: str, chance: random.Random) -> bool:
        partition = TopicPartition("once-to", chance.randrange(PARTITIONS))
        try:
            found = self._loop.run_until_complete(self._find(victim, partition))
            found.kill()
        except (DlogError, OSError):
            return False
        return True

    async def _find(self, victim: str, partition: TopicPartition) -> BrokerHandle:
        assert self._client is not None
        if victim == "leader":
            (node_id,) = await self._client.by_leader([partition])
            return self.cluster.broker(node_id)
        connection = await Sink(self._client, self.driver.query_id)._coordinator.connection()
        (found,) = (each for each in self.cluster.brokers if each.address == connection.label)
        return found


@contextlib.contextmanager
def staged(directory: Path, *, is_local: bool) -> Iterator[Stage]:
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(TestCluster(3))
        spark = None if is_local else stack.enter_context(StandaloneCluster(directory / "spark", WORKERS))
        topics = Topics(cluster.bootstrap)
        for name in ("once-from", "once-to"):
            topics.create_named(name, PARTITIONS)
        master = "local[2,8]" if spark is None else spark.master
        driver = Driver(directory, master, cluster.bootstrap, "once-from", "once-to")
        stage = Stage(cluster, driver, spark)
        stack.callback(stage.close)
        stack.callback(driver.close)
        yield stage


def play(stage: Stage, kills: list[Kill], seed: int) -> str:
    """Returns what happened; raises `AssertionError` if anything is not as it has to be."""
    chance = random.Random(f"victims {seed}")
    driver, feed = stage.driver, Feed(stage.cluster.bootstrap, "once-from", stage.driver)
    reader = LiveReader(stage.cluster.bootstrap, "once-to", PARTITIONS)
    driver.keep_alive()
    feed.start()
    reader.start()
    struck = Counter[str]()
    for kill in kills:
        stage.wait_for_batches(driver.batches + 1)
        stage.carry_out(kill, chance)
        struck[f"{kill.victim} {'after' if kill.is_after_decision else 'before'} the decision"] += 1
        print(f"{monotonic():.1f} killed: {kill} at batch {driver.batches}", flush=True)
        stage.wait_for_batches(driver.batches + 2)
        driver.wake_zombie()
    written = feed.finish()
    until(lambda: _is_through(driver, written), "the end", LIMIT_SECONDS)
    driver.kill()
    seen = reader.finish()
    found = read_topic(stage.cluster.bootstrap, "once-to", PARTITIONS)
    source = read_topic(stage.cluster.bootstrap, "once-from", PARTITIONS)
    batches = [driver.ends(number) for number in range(driver.batches)]
    compare(expected_rows(source, batches), found, seen)
    twice = speculation(events_directory(driver.directory))
    assert stage.spark is None or twice.won, f"speculation was on, and changed nothing: {twice}"
    return (
        f"{written} rows in, {len(found)} rows out of {len(batches)} batches, {len(seen)} seen live, "
        f"{driver.starts} starts of the driver, {driver.zombies} zombies that failed, "
        f"{twice.begun} speculative attempts of which {twice.won} won, "
        f"{sum(struck.values())} kills: {dict(sorted(struck.items()))}"
    )


def _is_through(driver: Driver, written: int) -> bool:
    driver.keep_alive()
    return driver.rows >= written


class LiveReader(threading.Thread):
    """Reads what is committed, as it comes."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self._where = bootstrap, topic, partitions
        self._stop_it = threading.Event()
        self._seen: list[Row] = []

    def run(self) -> None:
        bootstrap, topic, partitions = self._where
        settings = {"group.id": "live", "enable.auto.commit": False, "log_level": 0}
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap, "isolation.level": "read_committed", **settings}
        )
        consumer.assign([confluent_kafka.TopicPartition(topic, at, 0) for at in range(partitions)])
        while not self._stop_it.is_set():
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                value = bytes(message.value() or b"").decode()
                self._seen.append(Row(message.partition() or 0, message.offset() or 0, value))
        consumer.close()

    def finish(self) -> list[Row]:
        self._stop_it.set()
        self.join()
        return self._seen


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.once_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--local", action="store_true", help="Spark in one process")
    arguments = parser.parse_args()
    victims = LOCAL_VICTIMS if arguments.local else VICTIMS
    with (
        tempfile.TemporaryDirectory(prefix="once-kills-") as directory,
        staged(Path(directory), is_local=arguments.local) as stage,
    ):
        print(play(stage, draw(arguments.seed, arguments.kills, victims), arguments.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
