"""Partitions moved under load with a throttle: does the limit hold, and does the move end in time?

    python -m tests.system.replication.moving_under_load
    python -m tests.system.replication.moving_under_load --partitions 50 --megabytes 100 --rate 4 --no-kill

Four brokers as processes of their own.  A topic of so many partitions, each with replicas on brokers 1 and 2,
is filled; then every replica of broker 1 is moved to broker 4, which holds nothing of it, while a producer
writes to these partitions, one after the other, with acks=all, and the active controller is killed with
SIGKILL in the middle.

    share     bytes that broker 4 holds of the topic, of those that the limit allows in the seconds it took:
              more than 1.1, and the limit does not hold; less than 0.9, and the move takes longer than its
              bytes divided by the rate.  What the producer writes meanwhile is a hundredth of it at most
    p99       of the producer's acknowledgements while partitions move: at most twice that before
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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.cimpl import NewTopic

from distributedlog.client.admin.blocking import BlockingAdmin
from distributedlog.client.options import ClientOptions
from tests.system.dev_cluster import DevCluster
from tests.system.replication.stage import PRODUCER_SETTINGS, Replicated, wait_until

MOVED: Final = "moved"
NEW_BROKER: Final = 4
VALUE_BYTES: Final = 16 * 1024
BASELINE_SECONDS: Final = 3.0
SHARE_MIN, SHARE_MAX = 0.9, 1.1
P99_RATIO_MAX: Final = 2.0
BURST_SECONDS: Final = 1.0
"""What may pass at once, before the limit counts."""
OVERSHOOT_BYTES: Final = 2 * 1024 * 1024
"""What one more response may bring after the limit is reached; only the next one waits for it."""


class Outcome(NamedTuple):
    moved_bytes: int
    seconds: float
    rate: int
    p99_before_ms: float
    p99_moving_ms: float

    @property
    def share(self) -> float:
        """What passed, of what the limit allows in the time that it took."""
        return self.moved_bytes / (self.rate * (self.seconds + BURST_SECONDS) + OVERSHOOT_BYTES)

    def find_faults(self) -> list[str]:
        """Returns what does not hold, as far as a machine with nothing else to do shows it."""
        faults = []
        if not SHARE_MIN <= self.share <= SHARE_MAX:
            faults.append(f"{self.share:.0%} of the limit passed: {SHARE_MIN:.0%} to {SHARE_MAX:.0%} should")
        if self.p99_moving_ms > P99_RATIO_MAX * self.p99_before_ms:
            faults.append(f"p99 is more than {P99_RATIO_MAX:g} times that before")
        return faults

    def __str__(self) -> str:
        return (
            f"{self.moved_bytes / 1e6:.1f} MB in {self.seconds:.1f} s; {self.moved_bytes / self.rate:.1f} s"
            f" by the limit of {self.rate / 1e6:.1f} MB/s, {self.share:.0%} of it; producer's p99 "
            f"{self.p99_before_ms:.0f} ms before, {self.p99_moving_ms:.0f} ms while partitions move"
        )


class Writer:
    """Writes one record after the other, to each partition in turn, and notes how long each took."""

    def __init__(self, bootstrap: str, partitions: int) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, **PRODUCER_SETTINGS})
        self._partitions = partitions
        self.written = 0
        self._latencies: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.failures = 0

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            began = time.monotonic()
            partition = self.written % self._partitions
            self._producer.produce(MOVED, b"x" * 100, partition=partition, on_delivery=self._delivered)
            self.written += 1
            self.failures += self._producer.flush(90) != 0
            self._latencies.append(time.monotonic() - began)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        self.failures += error is not None

    def take_p99_ms(self) -> float:
        """Returns that of all records since it was last taken."""
        taken, self._latencies = sorted(self._latencies), []
        return 1000 * taken[len(taken) * 99 // 100] if taken else 0.0

    @contextmanager
    def writing(self) -> Iterator["Writer"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join()


def fill(replicated: Replicated, partitions: int, total_bytes: int) -> int:
    """Returns how many records the topic has then."""
    replicas = [[1, 2] if each % 2 else [2, 1] for each in range(partitions)]
    config = {"min.insync.replicas": "1"}
    topic = NewTopic(MOVED, partitions, replica_assignment=replicas, config=config)
    replicated.admin.create_topics([topic])[MOVED].result(90)
    settings = {"bootstrap.servers": replicated.bootstrap, **PRODUCER_SETTINGS, "linger.ms": 20}
    producer = Producer({**settings, "batch.size": 131_072, "message.timeout.ms": 300_000})
    value = os.urandom(VALUE_BYTES)
    for at in range(total_bytes // VALUE_BYTES):
        while True:
            try:
                producer.produce(MOVED, value, partition=at % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(300) == 0
    return total_bytes // VALUE_BYTES


def move(
    replicated: Replicated, partitions: int, rate: int, *, kills_controller: bool, directory: Path
) -> tuple[Outcome, int]:
    """Moves by the command; returns what it took, and how many records were written meanwhile."""
    moves = [
        {"topic": MOVED, "partition": each, "replicas": [NEW_BROKER, 2] if each % 2 else [2, NEW_BROKER]}
        for each in range(partitions)
    ]
    plan = directory / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": moves}), encoding="utf-8")
    with (
        BlockingAdmin(replicated.bootstrap, ClientOptions(request_timeout_ms=60_000)) as admin,
        Writer(replicated.bootstrap, partitions).writing() as writer,
    ):
        time.sleep(BASELINE_SECONDS)
        before_ms = writer.take_p99_ms()
        began = time.monotonic()
        reassign(replicated, "--plan", str(plan), "--throttle", str(rate), "--no-wait")
        if kills_controller:
            wait_until(lambda: size_on_new(admin) > rate, "the move is under way")
            assert admin.list_reassignments()
            replicated.signal(admin.describe_quorum().leader_id, signal.SIGKILL)
        while admin.list_reassignments():
            time.sleep(0.1)
        seconds = time.monotonic() - began
        moving_ms = writer.take_p99_ms()
        assert writer.failures == 0
        wait_until(lambda: size_on_new(admin) > 0, "the new broker says what it has")
        moved = size_on_new(admin)
    assert writer.failures == 0
    reassign(replicated, "--unthrottle")
    return Outcome(moved, seconds, rate, before_ms, moving_ms), writer.written


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


def run(directory: Path, partitions: int, total_bytes: int, rate: int, *, kills_controller: bool) -> Outcome:
    arguments = ("--brokers", NEW_BROKER, "--data-dir", directory / "data", "--port", 0, "--no-gateway")
    with DevCluster(directory / "ready.json", *arguments) as cluster:
        replicated = Replicated(cluster, directory / "data")
        filled = fill(replicated, partitions, total_bytes)
        outcome, written = move(
            replicated, partitions, rate, kills_controller=kills_controller, directory=directory
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
