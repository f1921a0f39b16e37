"""Searches by time, in steps: what a step costs, and what may happen to the log between two of them."""

import pytest

from distributedlog.model.config import MIB, LogConfig
from distributedlog.model.errors import LogClosedError, RegionChangedError
from distributedlog.records.compression import Codec
from distributedlog.records.record import Record, encode_batch
from distributedlog.storage import timestamps
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.timestamps import Found, Step, Steps
from tests.simulation.disk import SimDisk
from tests.unit.storage.support import NOW_MS, append_data, append_numbers, batch_of, commit_all, open_on


def a_log() -> PartitionLog:
    log, _ = open_on(SimDisk(1))
    append_numbers(log, range(40))
    commit_all(log)
    return log


def begun(log: PartitionLog) -> tuple[Steps[Found], Step]:
    steps = log.search_timestamp(0)
    return steps, next(steps)


def is_held(log: PartitionLog) -> bool:
    return any(segment.log.pins > segment.is_dirty for segment in log.segments)


def test_a_search_that_is_given_up_lets_go_of_its_file() -> None:
    log = a_log()
    steps, step = begun(log)
    step()
    assert is_held(log)
    steps.close()
    assert not is_held(log)


def test_what_is_deleted_meanwhile_can_still_be_searched() -> None:
    log = a_log()
    steps, step = begun(log)
    log.advance_start_offset(30, NOW_MS)
    assert log.remove_deleted_files(NOW_MS) > 0
    step()
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value.offset == 0


def test_a_truncation_meanwhile_is_noticed() -> None:
    log = a_log()
    steps = log.search_max_timestamp()
    step = next(steps)
    log.truncate_to(39, NOW_MS)
    with pytest.raises(RegionChangedError):
        step()
    steps.close()


def test_a_log_that_is_closed_meanwhile_is_searched_no_further() -> None:
    log = a_log()
    steps = log.search_max_timestamp()
    next(steps)()
    log.close()
    with pytest.raises(LogClosedError):
        timestamps.run(steps)


def test_a_long_search_has_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timestamps, "STEP_BYTES", 200)
    log = a_log()
    for segment in log.segments:
        segment.max_timestamp = NOW_MS + 7  # as a header may claim
    steps, count = log.search_max_timestamp(), 0
    for step in steps:
        step()
        count += 1
    assert count > 10


def test_a_batch_that_opens_to_too_much_stands_for_its_first_record() -> None:
    log, _ = open_on(SimDisk(1), LogConfig(record_validation="header"))
    append_data(log, batch_of([b"old"], timestamp_ms=NOW_MS - 10))
    records = [Record(bytes(40 * MIB), timestamp_ms=NOW_MS - 1), Record(b"", timestamp_ms=NOW_MS)]
    append_data(log, encode_batch(records, codec=Codec.ZSTD))
    commit_all(log)
    assert log.find_timestamp(NOW_MS - 10) == (NOW_MS - 10, 0)
    assert log.find_timestamp(NOW_MS) == (NOW_MS, 1)
    assert log.find_max_timestamp() == (NOW_MS, 1)
