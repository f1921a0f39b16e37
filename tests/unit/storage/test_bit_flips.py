"""One bit of one file rots: what is read is right, or it is said that something is wrong.  Never neither."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from distributedlog.model.errors import CorruptLogError, DlogError
from distributedlog.records.record import decode_batch
from distributedlog.storage.append import Origin
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.recovery import RecoveryReport
from distributedlog.storage.store import LogStore
from tests.simulation.disk import SimDisk
from tests.unit.storage.support import (
    NOW_MS,
    PARTITION,
    append,
    append_data,
    batch_of,
    batches_in,
    commit_all,
    marker_of,
    open_store,
    read_batches,
    value_of,
    with_small_segments,
)

SOAK = os.environ.get("DLOG_SOAK") == "1"
CONFIG = with_small_segments(index_interval_bytes=0)
START_OFFSET = 2
SMALL_BYTES = 64
EPOCH_SUFFIX = "leader-epoch-checkpoint"


@dataclass
class Truth:
    records: dict[int, bytes]
    times: dict[int, tuple[int, int] | None]
    aborted: list[tuple[int, int, int]]
    epochs: list[tuple[int, int]]
    producers: dict[int, tuple[int, list[int]]]
    end_offset: int


Make = Callable[[], tuple[SimDisk, Truth]]


def write_a_log(disk: SimDisk) -> LogStore:
    """Three segments with all there is: epochs, producers, a committed and an aborted transaction, a trim."""
    store = open_store(disk, CONFIG)
    log = store.create_log("t")
    append(log, value_of(0), timestamp_ms=NOW_MS - 500)
    append(log, value_of(1), value_of(2), timestamp_ms=NOW_MS - 490)
    append_data(
        log,
        batch_of([value_of(3)], timestamp_ms=NOW_MS - 480, producer_id=3, producer_epoch=0, base_sequence=0),
    )
    log.roll(NOW_MS)
    for producer_id, commit in ((5, False), (6, True)):
        data = batch_of(
            [value_of(producer_id)],
            timestamp_ms=NOW_MS - 100 * producer_id + 100,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        append_data(log, data, leader_epoch=1)
        marker = marker_of(producer_id, commit=commit, timestamp_ms=NOW_MS - 300 + producer_id)
        append_data(log, marker, leader_epoch=1, origin=Origin.COORDINATOR)
    log.roll(NOW_MS)
    commit_all(log)
    store.checkpoint()
    append(log, value_of(8), leader_epoch=3, timestamp_ms=NOW_MS - 200)
    append(log, value_of(9), leader_epoch=3, timestamp_ms=NOW_MS - 190)
    commit_all(log)
    log.advance_start_offset(START_OFFSET, NOW_MS)
    store.checkpoint_starts()
    return store


def truth_of(log: PartitionLog) -> Truth:
    records = {
        record.offset: record.value or b""
        for batch in log.walk(START_OFFSET, log.end_offset)
        for record in decode_batch(batch.data)
    }
    return Truth(
        {offset: value for offset, value in records.items() if offset >= START_OFFSET},
        {time: log.find_timestamp(time) for time in asked_times()},
        [entry[:3] for entry in log.find_aborted_transactions(START_OFFSET, log.end_offset)],
        [(entry.epoch, entry.start_offset) for entry in log.epochs.entries],
        producers_of(log),
        log.end_offset,
    )


def asked_times() -> list[int]:
    return [NOW_MS - ago for ago in (600, 485, 480, 400, 295, 200, 190, 0)]


def producers_of(log: PartitionLog) -> dict[int, tuple[int, list[int]]]:
    return {
        state.producer_id: (state.epoch, [batch.last_offset for batch in state.batches])
        for state in log.producers
    }


def closed_store() -> tuple[SimDisk, Truth]:
    disk = SimDisk(1)
    store = write_a_log(disk)
    truth = truth_of(store.logs[PARTITION])
    store.close()
    return disk, truth


def crashed_store() -> tuple[SimDisk, Truth]:
    disk = SimDisk(1)
    store = write_a_log(disk)
    truth = truth_of(store.logs[PARTITION])
    disk.crash("keep")
    return disk, truth


def flips(disk: SimDisk, ending: str) -> Iterator[tuple[str, int, int]]:
    """One bit of every byte, each time another one; all of them in small files and in a soak."""
    for path, content in disk.files().items():
        if path.endswith(ending) and "/.lock" not in path:
            is_thorough = SOAK or len(content) <= SMALL_BYTES
            for position in range(len(content)):
                for bit in range(8) if is_thorough else [position * 5 % 8]:
                    yield path, position, bit


def opened(disk: SimDisk) -> tuple[PartitionLog, RecoveryReport] | None:
    """None if the directory refuses to open, and says why."""
    try:
        store = open_store(disk, CONFIG)
    except CorruptLogError as error:
        if "/data/" not in str(error):
            pytest.fail(f"it does not name the file: {error}")
        return None
    log = store.logs[PARTITION]
    log.advance_high_watermark(log.end_offset)
    return log, store.reports[PARTITION]


def is_said(report: RecoveryReport) -> bool:
    """A rotten last batch cannot be told from a torn one if a crash came after it: its bytes are counted."""
    return not report.is_sound or bool(report.notes) or report.truncated_bytes > 0


# --- files that can be made again --------------------------------------------------------------


@pytest.mark.parametrize("make", [closed_store, crashed_store])
@pytest.mark.parametrize("ending", [".index", ".timeindex", ".txnindex", ".snapshot", EPOCH_SUFFIX])
def test_what_can_be_made_from_the_log_is_right_whatever_its_file_says(make: Make, ending: str) -> None:
    disk, truth = make()
    tried = 0
    for path, position, bit in flips(disk, ending):
        rotten = disk.fork(0)
        rotten.flip_bit(path, position, bit)
        found = opened(rotten)
        assert found is not None
        log, _ = found
        for offset, value in truth.records.items():
            assert value_at(log, offset) == value, (path, position, bit)
        assert truth_of(log) == truth, (path, position, bit)
        assert log.start_offset == START_OFFSET
        tried += 1
    assert tried > 5


@pytest.mark.parametrize("make", [closed_store, crashed_store])
@pytest.mark.parametrize(
    "ending", ["-offset-checkpoint", ".copy", "meta.properties", "partition.metadata", "cleanshutdown"]
)
def test_a_wrong_small_file_hides_no_record(make: Make, ending: str) -> None:
    disk, truth = make()
    for path, position, bit in flips(disk, ending):
        rotten = disk.fork(0)
        rotten.flip_bit(path, position, bit)
        found = opened(rotten)
        if found is None:
            assert ending == "meta.properties"
            continue
        log, report = found
        assert log.start_offset <= START_OFFSET, (path, position, bit)
        assert log.start_offset == START_OFFSET or is_said(report)
        for offset, value in truth.records.items():
            assert value_at(log, offset) == value, (path, position, bit)
        if log.start_offset == START_OFFSET:
            assert [tuple(entry) for entry in log.epochs.entries] == truth.epochs
        assert log.end_offset == truth.end_offset


def value_at(log: PartitionLog, offset: int) -> bytes | None:
    for _, data in read_batches(log, offset, 1):
        for record in decode_batch(data):
            if record.offset == offset:
                return record.value
    return None


# --- the log itself ----------------------------------------------------------------------------


def outcome_at(log: PartitionLog, offset: int) -> bytes | DlogError | None:
    try:
        return value_at(log, offset)
    except DlogError as error:
        return error


def time_outcome(log: PartitionLog, time: int) -> tuple[int, int] | DlogError | None:
    try:
        return log.find_timestamp(time)
    except DlogError as error:
        return error


@pytest.mark.parametrize("make", [closed_store, crashed_store])
def test_a_rotten_bit_in_the_log_is_never_read_as_data_and_never_hides_any(make: Make) -> None:
    disk, truth = make()
    fields = field_of_each_byte(disk)
    for path, position, bit in flips(disk, ".log"):
        rotten = disk.fork(0)
        rotten.flip_bit(path, position, bit)
        found = opened(rotten)
        assert found is not None
        log, report = found
        where = (path, position, bit, fields[path][position], report)
        said = is_said(report)
        for offset, value in truth.records.items():
            outcome = outcome_at(log, offset)
            assert outcome == value or isinstance(outcome, DlogError) or said, where
            if outcome != value and not isinstance(outcome, DlogError):
                assert outcome is None, where  # gone, and said so; never another value
            if isinstance(outcome, DlogError) and not said:
                assert log.segments.from_offset(offset)[0].log.path == path, where
        for time, expected in truth.times.items():
            answer = time_outcome(log, time)
            assert answer == expected or isinstance(answer, DlogError) or said, where
        if fields[path][position] not in ("leader epoch",):
            noticed = said or any(isinstance(outcome_at(log, offset), DlogError) for offset in truth.records)
            assert noticed or is_below_the_start(path, position, disk), where


def field_of_each_byte(disk: SimDisk) -> dict[str, list[str]]:
    """Which field of a batch each byte of the log files belongs to."""
    named = {}
    for path, content in disk.files().items():
        if not path.endswith(".log"):
            continue
        names: list[str] = []
        for header, _ in batches_in(content):
            names += ["base offset"] * 8 + ["length"] * 4 + ["leader epoch"] * 4
            names += ["checked"] * (header.size - 16)
        named[path] = names
    return named


def is_below_the_start(path: str, position: int, disk: SimDisk) -> bool:
    """Batches that only hold what was trimmed are not read."""
    if int(path.rsplit("/", 1)[1].split(".")[0]) != 0:
        return False
    first = batches_in(disk.files()[path])[0][0]
    assert first.next_offset <= START_OFFSET
    return position < first.size
