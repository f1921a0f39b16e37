"""The log against the bare operating system: append and random read in CPU time, recovery in seconds."""

import os
import random
import shutil
import tempfile
from collections.abc import Callable
from functools import partial

from distributedlog.model.config import KIB, MIB, LogConfig
from distributedlog.ports.disk import SystemDisk
from distributedlog.records.batch import read_header, stamp
from distributedlog.records.compression import Codec
from distributedlog.records.record import Record, encode_batch
from distributedlog.storage.files import Files
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.recovery import open_log
from tests.bench.figures import Figure, at_least, at_most, cpu_watch, medians, stopwatch
from tests.bench.harness import Bench
from tests.bench.sync_rounds import measure_sync_rounds

NOW_MS = 1_700_000_000_000
READS = 5_000
SMALL_LOG_BYTES = 20 * MIB
LARGE_LOG_BYTES = 2048 * MIB
VALIDATION_AIMS = {Codec.NONE: 1.5, Codec.LZ4: 3.0, Codec.ZSTD: 6.0}


def batch_of(size: int) -> bytearray:
    """A batch of about `size` bytes, of records of about a hundred."""
    count = max(1, (size - 61) // 110)
    value = random.Random(size).randbytes((size - 61) // count - 8)
    return encode_batch([Record(value, timestamp_ms=NOW_MS)] * count)


def fresh_log(directory: str, name: str, config: LogConfig | None = None) -> PartitionLog:
    return open_log(Files(SystemDisk()), f"{directory}/{name}-0", config or LogConfig(), now_ms=NOW_MS)[0]


def append_rate(directory: str, size: int, count: int) -> tuple[float, float]:
    """(ratio of os.write's time to ours for the same bytes, our microseconds a batch)."""
    batch = batch_of(size)

    def bare() -> float:
        path = f"{directory}/bare"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        with cpu_watch() as seconds:
            for _ in range(count):
                os.write(descriptor, batch)
        os.close(descriptor)
        os.unlink(path)
        return seconds()

    def ours() -> float:
        log = fresh_log(directory, "append")
        with cpu_watch() as seconds:
            for _ in range(count):
                log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
        log.abandon()
        shutil.rmtree(log.directory)
        return seconds()

    bare_seconds, our_seconds = medians(9, bare, ours)
    return bare_seconds / our_seconds, our_seconds / count * 1e6


def validate(directory: str, codec: Codec, count: int, aim: float) -> list[Figure]:
    """Measures what walking every record costs an append: `record.validation=full` against `header`."""
    words = [
        b"%d: the quick brown fox number %d jumps over dog %d" % (at, at * 7, at % 13) for at in range(170)
    ]
    batch = encode_batch([Record(value * 2, timestamp_ms=NOW_MS) for value in words], codec=codec)

    def appending(validation: str) -> Callable[[], float]:
        def measure() -> float:
            log = fresh_log(directory, validation, LogConfig(record_validation=validation))
            with cpu_watch() as seconds:
                for _ in range(count):
                    log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
            log.abandon()
            shutil.rmtree(log.directory)
            return seconds()

        return measure

    full, header = medians(9, appending("full"), appending("header"))
    name = f"append {len(words)} records of 100 B, {codec.name.lower()}"
    return [
        at_most(f"{name}, record.validation full / header", full / header, "×", aim),
        Figure(f"{name}, full", full / count * 1e6, "µs"),
        Figure(f"{name}, header", header / count * 1e6, "µs"),
    ]


def fill(log: PartitionLog, size_bytes: int) -> None:
    batch = batch_of(16 * 1024)
    data = b"".join([batch] * 16)
    while log.size_bytes < size_bytes:
        log.append_as_leader(bytearray(data), leader_epoch=0, now_ms=NOW_MS)
    log.sync()


def reader(log: PartitionLog) -> Callable[[], float]:
    """Reads one batch at a random offset, again and again."""
    chance = random.Random(1)

    def read() -> float:
        offsets = [chance.randrange(log.end_offset) for _ in range(READS)]
        with cpu_watch() as seconds:
            for offset in offsets:
                region = log.read(offset, 4096).region
                assert region is not None
                region.read()
                region.close()
        return seconds()

    return read


def read_and_recover(directory: str) -> list[Figure]:
    small, large = fresh_log(directory, "small"), fresh_log(directory, "large")
    fill(small, SMALL_LOG_BYTES)
    fill(large, LARGE_LOG_BYTES)
    small_seconds, large_seconds = medians(7, reader(small), reader(large))
    size, path = large.size_bytes, large.directory
    small.abandon()
    large.abandon()
    with stopwatch() as seconds:
        recovered, report = open_log(Files(SystemDisk()), path, LogConfig(), now_ms=NOW_MS)
    assert report.scanned_bytes == size
    recovered.abandon()
    return [
        at_most("random read by offset, 2 GB log / 20 MB log", large_seconds / small_seconds, "×", 1.3),
        Figure("random read by offset in 2 GB", large_seconds / READS * 1e6, "µs"),
        Figure("recovery, every byte read and checked", seconds() / (size / 1e9), "s/GB"),
    ]


def append(directory: str, kib: int, count: int, aim: float) -> list[Figure]:
    ratio, micros = append_rate(directory, kib * 1024, count)
    return [
        at_least(f"append {kib} KiB batches / os.write of the same bytes", ratio, "×", aim),
        Figure(f"append {kib} KiB batch", micros, "µs"),
    ]


def append_as_follower(directory: str, size: int, batches: int, count: int) -> float:
    """Microseconds that a follower's append of so many bytes takes, which came as so many batches."""
    one = batch_of(size // batches)
    offsets = read_header(one).last_offset_delta + 1
    runs = []
    for at in range(count):
        run = bytearray(one * batches)
        for number in range(batches):
            stamp(run, number * len(one), (at * batches + number) * offsets, 0)
        runs.append(memoryview(run).toreadonly())

    def measure() -> float:
        log = fresh_log(directory, "follower")
        with cpu_watch() as seconds:
            for run in runs:
                log.append_as_follower(run, now_ms=NOW_MS, leader_epoch=0)
        log.abandon()
        shutil.rmtree(log.directory)
        return seconds()

    return medians(9, measure)[0] / count * 1e6


def follow(directory: str) -> list[Figure]:
    return [
        at_most("follower append 16 KiB", append_as_follower(directory, 16 * KIB, 1, 2_000), "µs", 40),
        Figure(
            "follower append 16 KiB, 16 batches", append_as_follower(directory, 16 * KIB, 16, 2_000), "µs"
        ),
    ]


def in_scratch(measure: Callable[[str], list[Figure]]) -> list[Figure]:
    directory = tempfile.mkdtemp(prefix="dlog-bench-")
    try:
        return measure(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def run(bench: Bench) -> None:
    bench.case("append 16 KiB", lambda: in_scratch(lambda directory: append(directory, 16, 2_000, 0.5)))
    bench.case("append 1 KiB", lambda: in_scratch(lambda directory: append(directory, 1, 10_000, 0.2)))
    bench.case("follower append", lambda: in_scratch(follow))
    bench.case("sync rounds", measure_sync_rounds)
    for codec, aim in VALIDATION_AIMS.items():
        case = partial(validate, codec=codec, count=1_000, aim=aim)
        bench.case(f"validation {codec.name.lower()}", partial(in_scratch, case))
    bench.case("read and recover", lambda: in_scratch(read_and_recover))
