"""A pipeline that runs for long: a trickle of records, now and then a burst, and what it costs meanwhile.

    python -m tests.spark.pipeline_soak --minutes 30

A broker and `dlog pipeline run --every 5s` on the project that `dlog pipeline init` writes, as processes of
their own.  Every half minute a line says how many processes the pipeline has, what they hold of memory, and
how long its runs took since the last line (in the mean, and the longest).  At the end the first and the
last third are compared: the exit code is 1 if there are more processes by more than PROCESSES_MORE_MAX
(Spark starts workers as it needs them), if memory grew by more than a fifth, or if a run takes longer by
half.  The first two minutes count for nothing: Java fills its heap.
"""

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.spark.processes import descendants
from tests.spark.topics import Topics
from tests.system.server_process import DLOG, ServerProcess

TOPIC = "orders"
SAMPLE_SECONDS = 30.0
WARM_UP_SECONDS = 120.0
TRICKLE_PAUSE_SECONDS = 0.1
PROCESSES_MORE_MAX = 3
MIB = 1024 * 1024
STOP_SECONDS = 120


class Sample(NamedTuple):
    seconds: float
    processes: int
    python_mib: int
    java_mib: int
    runs: int
    mean_seconds: float
    longest_seconds: float
    rows: int


def order(number: int) -> bytes:
    minute = number // 600
    told = {"order": f"A-{number}", "customer": f"c-{number % 97}", "country": ("NO", "PT", "KE")[number % 3]}
    moment = f"2026-01-{1 + minute // 1440 % 28:02}T{minute // 60 % 24:02}:{minute % 60:02}:05Z"
    return json.dumps({**told, "cents": number % 10_000, "time": moment}).encode()


class Load(threading.Thread):
    """Ten records a second, and so many at once every so often; one in a hundred is no order."""

    def __init__(self, topics: Topics, burst_records: int, burst_seconds: float) -> None:
        super().__init__(daemon=True)
        self._topics = topics
        self._burst_records = burst_records
        self._burst_seconds = burst_seconds
        self._stopping = threading.Event()
        self.sent = 0

    def run(self) -> None:
        burst_at = time.monotonic() + self._burst_seconds
        while not self._stopping.wait(TRICKLE_PAUSE_SECONDS):
            self._send(1)
            if time.monotonic() >= burst_at:
                burst_at += self._burst_seconds
                self._send(self._burst_records)
                print(f"burst: {self._burst_records:,} records", flush=True)

    def _send(self, count: int) -> None:
        for _ in range(count):
            value = b"this is no order" if self.sent % 100 == 99 else order(self.sent)
            self._topics.send(TOPIC, value=value, partition=self.sent % 2)
            self.sent += 1
            if self.sent % 10_000 == 0:
                self._topics.flush()
        self._topics.poll()

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        self._topics.flush()


class Runs(threading.Thread):
    """The lines of `dlog pipeline run -o json`, as they come."""

    def __init__(self, pipeline: "subprocess.Popen[str]") -> None:
        super().__init__(daemon=True)
        self._pipeline = pipeline
        self._mutex = threading.Lock()
        self._fresh: list[dict[str, Any]] = []
        self.failures: list[str] = []

    def run(self) -> None:
        assert self._pipeline.stdout is not None
        for line in self._pipeline.stdout:
            told = json.loads(line)
            with self._mutex:
                self._fresh.append(told)
                if told["error"]:
                    self.failures.append(told["error"])

    def take(self) -> list[dict[str, Any]]:
        with self._mutex:
            taken, self._fresh = self._fresh, []
        return taken


def watch(pipeline: "subprocess.Popen[str]", runs: Runs, seconds: float) -> Iterator[Sample]:
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < seconds and pipeline.poll() is None:
        time.sleep(min(SAMPLE_SECONDS, seconds - passed))
        found, taken = descendants(pipeline.pid), runs.take()
        took = [told["milliseconds"] / 1000 for told in taken]
        yield Sample(
            time.monotonic() - begun,
            len(found),
            sum(each.resident_bytes for each in found if not each.is_java) // MIB,
            sum(each.resident_bytes for each in found if each.is_java) // MIB,
            len(took),
            statistics.mean(took) if took else 0.0,
            max(took, default=0.0),
            sum(told["rows"] for told in taken),
        )


def show(sample: Sample) -> None:
    print(
        f"{sample.seconds:6.0f} s  {sample.processes:3} processes  python {sample.python_mib:5} MiB"
        f"  java {sample.java_mib:5} MiB  {sample.runs:3} runs  mean {sample.mean_seconds:5.1f} s"
        f"  longest {sample.longest_seconds:5.1f} s  {sample.rows:9,} rows",
        flush=True,
    )


def judge(samples: list[Sample]) -> list[str]:
    """What grew between the first and the last third."""
    warm = [each for each in samples if each.seconds >= WARM_UP_SECONDS and each.runs]
    if len(warm) < 3:
        return ["too short to judge: give it more minutes"]
    third = len(warm) // 3
    first, last = warm[:third], warm[-third:]
    problems = []
    for name in ("processes", "python_mib", "java_mib"):
        # Of memory not the largest: a JVM that is about to start a process is there twice for a moment.
        middle = max if name == "processes" else statistics.median_high
        before, after = (middle(getattr(each, name) for each in part) for part in (first, last))
        print(f"{name}: {before} in the first third, {after} in the last")
        if after > (before + PROCESSES_MORE_MAX if name == "processes" else before * 1.2):
            problems.append(f"{name} grew from {before} to {after}")
    before_s, after_s = (statistics.median(each.mean_seconds for each in part) for part in (first, last))
    print(f"seconds of a run: {before_s:.1f} in the first third, {after_s:.1f} in the last (medians)")
    if after_s > before_s * 1.5:
        problems.append(f"runs take {after_s:.1f} s and took {before_s:.1f} s")
    return problems


def soak(directory: Path, minutes: float, every: str, burst_records: int, burst_minutes: float) -> int:
    with ServerProcess(directory / "broker", {"num.partitions": 2}) as broker:
        bootstrap = str(broker.facts["client"])
        topics = Topics(bootstrap)
        topics.create_named(TOPIC, 2)
        subprocess.run([*DLOG, "pipeline", "init", "shop", "-b", bootstrap], cwd=directory, check=True)
        pipeline = subprocess.Popen(
            [*DLOG, "pipeline", "run", "--every", every, "--master", "local[2]", "-o", "json"],
            cwd=directory / "shop", stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        load, runs = Load(topics, burst_records, burst_minutes * 60), Runs(pipeline)
        samples = []
        try:
            load.start()
            runs.start()
            for sample in watch(pipeline, runs, minutes * 60):
                samples.append(sample)
                show(sample)
            load.stop()
            pipeline.send_signal(signal.SIGTERM)
            code = pipeline.wait(STOP_SECONDS)
        finally:
            pipeline.kill()
            pipeline.wait()
        runs.join()
    problems = judge(samples) + [f"a run failed: {each}" for each in runs.failures]
    problems += [] if code == 0 else [f"the pipeline ended with {code}"]
    print(f"{sum(each.runs for each in samples)} runs, {load.sent:,} records sent")
    print("\n".join(problems) or "flat")
    return 1 if problems else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--every", default="5s")
    parser.add_argument("--burst-records", type=int, default=200_000)
    parser.add_argument("--burst-minutes", type=float, default=5.0)
    told = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dlog-soak-") as directory:
        return soak(Path(directory), told.minutes, told.every, told.burst_records, told.burst_minutes)


if __name__ == "__main__":
    sys.exit(main())
