"""Writes a data directory as this version writes it, to be kept as `golden/VERSION`.

    python -m tests.unit.storage.make_golden tests/unit/storage/golden/0.1.0

Run it once for a release that changes what is on disk; never change a directory that is kept.  What later
versions must read from it is written beside it, in expected.json.
"""

import json
import sys
from pathlib import Path

from distributedlog.model.config import LogConfig
from distributedlog.ports.disk import SystemDisk
from distributedlog.records.compression import Codec
from distributedlog.records.control import ControlType, EndMarker, encode_end_marker_batch
from distributedlog.records.record import Header, Record, encode_batch
from distributedlog.storage.append import Origin
from distributedlog.storage.compaction.log import commit_compaction, plan_compaction, run_compaction
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.store import LogStore
from tests.simulation.clock import ManualClock, SeededRandomness
from tests.unit.storage.test_golden import visible

NOW_MS = 1_700_000_000_000
PRODUCER = 41


def write_plain(log: PartitionLog) -> None:
    for number in range(40):
        record = Record(b"value %d" % number, b"key %d" % (number % 7), (Header("h", b"x"),), NOW_MS + number)
        batch = encode_batch([record, Record(None, b"gone", (), NOW_MS + number)], codec=Codec(number % 5))
        log.append_as_leader(batch, leader_epoch=number // 15, now_ms=NOW_MS)


def write_transactions(log: PartitionLog) -> None:
    """Committed, aborted, and the last one left open; each batch with its sequence."""
    for number in range(20):
        batch = encode_batch(
            [Record(b"tx %d" % number, b"key", (), NOW_MS)],
            producer_id=PRODUCER, producer_epoch=1, base_sequence=number, is_transactional=True,
        )  # fmt: skip
        log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
        if number % 4 == 3 and number < 19:
            kind = ControlType.ABORT if number % 8 == 3 else ControlType.COMMIT
            marker = encode_end_marker_batch(
                EndMarker(kind, 2), producer_id=PRODUCER, producer_epoch=1, timestamp_ms=NOW_MS
            )
            log.append_as_leader(marker, leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)


def write_compacted(log: PartitionLog) -> None:
    write_plain(log)
    log.sync()
    log.advance_high_watermark(log.end_offset)
    log.roll(NOW_MS)
    log.sync()
    plan = plan_compaction(log, 0, NOW_MS, force=True)
    assert plan is not None
    assert commit_compaction(log, run_compaction(plan, SystemDisk()), NOW_MS)


def main() -> None:
    home = Path(sys.argv[1])
    config = LogConfig(segment_bytes=2048, max_message_bytes=1024, index_interval_bytes=256, retention_ms=-1)
    compacted = LogConfig(
        segment_bytes=2048, max_message_bytes=1024, index_interval_bytes=256, cleanup_policy=("compact",)
    )
    store = LogStore.open(
        SystemDisk(),
        str(home / "data"),
        clock=ManualClock(NOW_MS),
        randomness=SeededRandomness(1),
        config=config,
    )
    write_plain(store.create_log("plain"))
    write_transactions(store.create_log("transactions"))
    write_compacted(store.create_log("compacted", config=compacted))
    trimmed = store.create_log("trimmed")
    write_plain(trimmed)
    trimmed.sync()
    trimmed.advance_high_watermark(trimmed.end_offset)
    trimmed.advance_start_offset(33, NOW_MS)
    expected = {}
    for partition, log in store.logs.items():
        log.sync()
        log.advance_high_watermark(log.end_offset)
        log.remove_deleted_files(2**62)
        expected[str(partition)] = {
            "start_offset": log.start_offset,
            "end_offset": log.end_offset,
            "last_stable_offset": log.last_stable_offset,
            "read_uncommitted": visible(log, committed_only=False),
            "read_committed": visible(log, committed_only=True),
            "epochs": [list(entry) for entry in log.epochs.entries],
            "batches": [
                [batch.header.base_offset, batch.header.crc]
                for batch in log.walk(log.start_offset, log.end_offset)
            ],
        }
    store.close()
    (home / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
