"""Compaction of a log of 100-byte values in which every key stands twice."""

import random
import shutil
import tempfile

from distributedlog.model.config import MIB, LogConfig
from distributedlog.ports.disk import SystemDisk
from distributedlog.records.record import Record, encode_batch
from distributedlog.storage.compaction.log import commit_compaction, plan_compaction, run_compaction
from distributedlog.storage.files import Files
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.recovery import open_log
from tests.bench.figures import Figure, medians, stopwatch
from tests.bench.harness import Bench

NOW_MS = 1_700_000_000_000
LOG_BYTES = 64 * MIB
RECORD_BYTES = 100 + 16 + 8
RECORDS_PER_BATCH = 128


def fill(log: PartitionLog) -> int:
    """Each key twice, anywhere, so that nearly every batch loses some records; how many there are."""
    chance = random.Random(1)
    keys = [b"key-%012d" % number for number in range(LOG_BYTES // RECORD_BYTES // 2)] * 2
    chance.shuffle(keys)
    value = chance.randbytes(100)
    for start in range(0, len(keys), RECORDS_PER_BATCH):
        records = [Record(value, key, timestamp_ms=NOW_MS) for key in keys[start : start + RECORDS_PER_BATCH]]
        log.append_as_leader(encode_batch(records), leader_epoch=0, now_ms=NOW_MS)
    log.roll(NOW_MS)
    log.sync()
    log.advance_high_watermark(log.end_offset)
    return len(keys)


def run(bench: Bench) -> None:
    bench.case("compaction", compacting)


def compacting() -> list[Figure]:
    directory = tempfile.mkdtemp(prefix="dlog-bench-")
    config = LogConfig(cleanup_policy=("compact",), segment_bytes=16 * MIB)
    try:
        log, _ = open_log(Files(SystemDisk()), f"{directory}/compaction-0", config, now_ms=NOW_MS)
        record_count = fill(log)
        plan = plan_compaction(log, 0, NOW_MS)
        assert plan is not None

        def work() -> float:
            with stopwatch() as seconds:
                run_compaction(plan, SystemDisk())
            return seconds()

        (work_seconds,) = medians(3, work)
        result = run_compaction(plan, SystemDisk())
        with stopwatch() as commit_seconds:
            assert commit_compaction(log, result, NOW_MS)
        assert result.counts.records_after == record_count // 2
        log.abandon()
        return [
            Figure(
                "compaction, half of it replaced", result.counts.bytes_before / MIB / work_seconds, "MB/s"
            ),
            Figure("compaction, records read", record_count / work_seconds, "records/s"),
            Figure("compaction's swap, on the log's own thread", commit_seconds() * 1e3, "ms"),
        ]
    finally:
        shutil.rmtree(directory, ignore_errors=True)
