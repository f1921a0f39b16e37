"""Partitions moved under load with a throttle: does the limit hold, and does the move end in time?

    python -m tests.system.replication.moving_under_load
    python -m tests.system.replication.moving_under_load --partitions 50 --megabytes 100 --rate 4 --no-kill

Four brokers as processes of their own.  A topic of so many partitions, each with replicas on brokers 1 and 2,
is filled; then every replica of broker 1 is moved to broker 4, which holds nothing of it, while two producers
write to these partitions, one after the other, with acks=all, and the active controller is killed with
SIGKILL in the middle.  Half of the moves take the leadership along.

    share     bytes that broker 4 holds of the topic, of those that the limit allows in the seconds it took:
              more than 1.1, and the limit does not hold; less than 0.9, and the move takes longer than its
              bytes divided by the rate.  What the producers write meanwhile is a hundredth of it at most
    p99       of a producer's acknowledgements while partitions move: at most twice that before.  Our client
              is judged by all of its records: it follows at once the leader that a broker names (KIP-951).
              For librdkafka, which waits `retry.backoff.ms` (100) before it sends a refused batch again,
              those in partitions that keep their leader count, if no broker is killed; what all took is told
    records   all that were acknowledged are there, once

Run by hand it judges all of that, and ends with 1 if one does not hold: on a machine that has nothing else to
do.  The test takes the small form, and judges no time: only that the limit is not exceeded.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.cimpl import NewTopic

from distributedlog import Producer as OurProducer
from distributedlog.client.admin.blocking import BlockingAdmin
from distributedlog.client.options import ClientOptions
from distributedlog.model.errors import DlogError
from tests.system.dev_cluster import DevCluster
from tests.system.replication.stage import PRODUCER_SETTINGS, Replicated, wait_until

MOVED: Final = "moved"
NEW_BROKER: Final = 4
FILLED_BYTES: Final = 16 * 1024
VALUE: Final = b"x" * 100
PAUSE_SECONDS: Final = 0.02
BASELINE_SECONDS: Final = 10.0
SHARE_MIN, SHARE_MAX = 0.9, 1.1
P99_RATIO_MAX: Final = 2.0
BURST_SECONDS: Final = 1.0
"""What may pass at once, before the limit counts."""
OVERSHOOT_BYTES: Final = 2 * 1024 * 1024
"""What one more response may bring after the limit is reached; only the next one waits for it."""


class Percentiles(NamedTuple):
    """p99 of what one producer's records took."""

    client: str
    before_ms: float
    moving_ms: float
    leader_kept_ms: float | None
    """That in partitions that kept their leader; None if a broker was killed."""
    follows_leaders: bool

    @property
    def judged_ms(self) -> float:
        return self.moving_ms if self.follows_leaders else self.leader_kept_ms or 0.0

    def __str__(self) -> str:
        text = f"{self.client}: p99 {self.before_ms:.1f} ms before, {self.moving_ms:.1f} ms while they move"
        return (
            text
            if self.leader_kept_ms is None
            else f"{text}, {self.leader_kept_ms:.1f} where the leader stays"
        )


class Outcome(NamedTuple):
    moved_bytes: int
    seconds: float
    rate: int
    percentiles: tuple[Percentiles, ...]

    @property
    def share(self) -> float:
        """What passed, of what the limit allows in the time that it took."""
        return self.moved_bytes / (self.rate * (self.seconds + BURST_SECONDS) + OVERSHOOT_BYTES)

    def find_faults(self) -> list[str]:
        """Returns what does not hold, as far as a machine with nothing else to do shows it."""
        faults = []
        if not SHARE_MIN <= self.share <= SHARE_MAX:
            faults.append(f"{self.share:.0%} of the limit passed: {SHARE_MIN:.0%} to {SHARE_MAX:.0%} should")
        faults.extend(
            f"p99 of {each.client} is {each.judged_ms / each.before_ms:.1f} times that before"
            for each in self.percentiles
            if each.judged_ms > P99_RATIO_MAX * each.before_ms
        )
        return faults

    def __str__(self) -> str:
        return (
            f"{self.moved_bytes / 1e6:.1f} MB in {self.seconds:.1f} s; {self.moved_bytes / self.rate:.1f} s"
            f" by the limit of {self.rate / 1e6:.1f} MB/s, {self.share:.0%} of it; "
            + "; ".join(map(str, self.percentiles))
        )


class Writer(ABC):
    """Writes one record after the other, to each partition in turn, and notes how long each took."""

    client: ClassVar[str]
    follows_leaders: ClassVar[bool]

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self.written = 0
        self._latencies: list[tuple[int, float]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.failures = 0

    @abstractmethod
    def write(self, partition: int) -> bool:
        """Returns whether one record was acknowledged."""

    def _run(self) -> None:
        while not self._stop.wait(PAUSE_SECONDS):
            partition = self.written % self._partitions
            began = time.monotonic()
            self.written += 1
            self.failures += not self.write(partition)
            self._latencies.append((partition, time.monotonic() - began))

    def take_latencies(self) -> list[tuple[int, float]]:
        """Returns the partition and the seconds of all records since they were last taken."""
        taken, self._latencies = self._latencies, []
        return taken

    @contextmanager
    def writing(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()


class OurWriter(Writer):
    client = "distributedlog"
    follows_leaders = True

    def __init__(self, bootstrap: str, partitions: int) -> None:
        super().__init__(partitions)
        self._producer = OurProducer(bootstrap, linger_ms=0)

    def write(self, partition: int) -> bool:
        try:
            self._producer.send(MOVED, VALUE, partition=partition).result()
        except DlogError:
            return False
        return True

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._producer, super().writing():
            yield


class ConfluentWriter(Writer):
    client = "confluent-kafka"
    follows_leaders = False

    def __init__(self, bootstrap: str, partitions: int) -> None:
        super().__init__(partitions)
        self._producer = Producer({"bootstrap.servers": bootstrap, **PRODUCER_SETTINGS})
        self._error: KafkaError | None = None

    def write(self, partition: int) -> bool:
        self._error = None
        self._producer.produce(MOVED, VALUE, partition=partition, on_delivery=self._delivered)
        return self._producer.flush(90) == 0 and self._error is None

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        self._error = error


def p99_ms(latencies: Iterable[tuple[int, float]]) -> float:
    seconds = sorted(took for _, took in latencies)
    return 1000 * seconds[len(seconds) * 99 // 100] if seconds else 0.0


def keeps_leader(partition: int) -> bool:
    """Whether broker 2, which keeps its replica, leads the partition before the move and after it."""
    return partition % 2 == 0


def fill(replicated: Replicated, partitions: int, total_bytes: int) -> int:
    """Returns how many records the topic has then."""
    replicas = [[2, 1] if keeps_leader(each) else [1, 2] for each in range(partitions)]
    config = {"min.insync.replicas": "1"}
    topic = NewTopic(MOVED, partitions, replica_assignment=replicas, config=config)
    replicated.admin.create_topics([topic])[MOVED].result(90)
    settings = {"bootstrap.servers": replicated.bootstrap, **PRODUCER_SETTINGS, "linger.ms": 20}
    producer = Producer({**settings, "batch.size": 131_072, "message.timeout.ms": 300_000})
    value = os.urandom(FILLED_BYTES)
    for at in range(total_bytes // FILLED_BYTES):
        while True:
            try:
                producer.produce(MOVED, value, partition=at % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(300) == 0
    return total_bytes // FILLED_BYTES


def move(
    replicated: Replicated,
    partitions: int,
    rate: int,
    *,
    kills_controller: bool,
    baseline_seconds: float,
    directory: Path,
) -> tuple[Outcome, int]:
    """Moves by the command; returns what it took, and how many records were written meanwhile."""
    moves = [
        {
            "topic": MOVED,
            "partition": each,
            "replicas": [2, NEW_BROKER] if keeps_leader(each) else [NEW_BROKER, 2],
        }
        for each in range(partitions)
    ]
    writers: list[Writer] = [kind(replicated.bootstrap, partitions) for kind in (OurWriter, ConfluentWriter)]
    plan = directory / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": moves}), encoding="utf-8")
    with BlockingAdmin(replicated.bootstrap, ClientOptions(request_timeout_ms=60_000)) as admin:
        with ExitStack() as writing:
            for writer in writers:
                writing.enter_context(writer.writing())
            time.sleep(baseline_seconds)
            before = [p99_ms(writer.take_latencies()) for writer in writers]
            began = time.monotonic()
            reassign(replicated, "--plan", str(plan), "--throttle", str(rate), "--no-wait")
            if kills_controller:
                wait_until(lambda: size_on_new(admin) > rate, "the move is under way")
                assert admin.list_reassignments()
                replicated.signal(admin.describe_quorum().leader_id, signal.SIGKILL)
            while admin.list_reassignments():
                time.sleep(0.1)
            seconds = time.monotonic() - began
            moving = [writer.take_latencies() for writer in writers]
        wait_until(lambda: size_on_new(admin) > 0, "the new broker says what it has")
        moved = size_on_new(admin)
    assert [writer.failures for writer in writers] == [0, 0]
    reassign(replicated, "--unthrottle")
    percentiles = tuple(
        Percentiles(
            writer.client,
            before_ms,
            p99_ms(latencies),
            None if kills_controller else p99_ms(each for each in latencies if keeps_leader(each[0])),
            writer.follows_leaders,
        )
        for writer, before_ms, latencies in zip(writers, before, moving, strict=True)
    )
    return Outcome(moved, seconds, rate, percentiles), sum(writer.written for writer in writers)


def reassign(replicated: Replicated, *arguments: str) -> None:
    from distributedlog.cli.main import main

    code = main(["cluster", "reassign", "--bootstrap", replicated.bootstrap, "--timeout", "60", *arguments])
    assert code == 0, f"the command ended with {code}"


def size_on_new(admin: BlockingAdmin) -> int:
    """The bytes of the topic on the broker that partitions move to."""
    admin.describe_cluster()  # it may have been killed, and be back
    directories = admin.describe_log_dirs([NEW_BROKER])[NEW_BROKER]
    if isinstance(directories, Exception):
        return 0
    return sum(
        replica.size_bytes
        for directory in directories
        for name, replica in directory.replicas.items()
        if name.topic == MOVED
    )


def check_moved(admin: BlockingAdmin, partitions: int) -> None:
    """Every partition has the replicas of the plan, and all are in sync."""

    def arrived() -> bool:
        (view,) = admin.describe_topics([MOVED])
        wanted = {2, NEW_BROKER}
        return all(set(each.replicas) == wanted == set(each.isr) for each in view.partitions)

    wait_until(arrived, f"{partitions} partitions have arrived")


def count_records(admin: BlockingAdmin) -> int:
    return sum(each.end - each.start for each in admin.offset_ranges(admin.describe_topics([MOVED])).values())


def run(
    directory: Path,
    partitions: int,
    total_bytes: int,
    rate: int,
    *,
    kills_controller: bool,
    baseline_seconds: float = BASELINE_SECONDS,
) -> Outcome:
    arguments = ("--brokers", NEW_BROKER, "--data-dir", directory / "data", "--port", 0, "--no-gateway")
    with DevCluster(directory / "ready.json", *arguments) as cluster:
        replicated = Replicated(cluster, directory / "data")
        filled = fill(replicated, partitions, total_bytes)
        outcome, written = move(
            replicated,
            partitions,
            rate,
            kills_controller=kills_controller,
            baseline_seconds=baseline_seconds,
            directory=directory,
        )
        with BlockingAdmin(replicated.bootstrap) as admin:
            check_moved(admin, partitions)
            assert count_records(admin) == filled + written, "each record that was acknowledged, once"
            left = [each for each in admin.topic_configs(MOVED) or () if each.is_set_on_topic]
            assert [each.name for each in left] == ["min.insync.replicas"], "the throttle is removed"
        return outcome


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--partitions", type=int, default=200)
    parser.add_argument("--megabytes", type=int, default=800, help="of the topic, once")
    parser.add_argument("--rate", type=float, default=8.0, help="megabytes in a second")
    parser.add_argument("--no-kill", action="store_true", help="leave the controller alone")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        outcome = run(
            Path(directory),
            given.partitions,
            given.megabytes * 1_000_000,
            int(given.rate * 1_000_000),
            kills_controller=not given.no_kill,
        )
    print(outcome)
    faults = outcome.find_faults()
    for fault in faults:
        print(f"NOT AS IT SHOULD BE: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
