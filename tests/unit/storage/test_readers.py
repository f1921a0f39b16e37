"""What a reader holds: across deletion, compaction, truncation, closing, and files that come and go."""

import pytest

from distributedlog.model.errors import (
    CorruptLogError,
    LogClosedError,
    OffsetOutOfRangeError,
    RegionChangedError,
)
from distributedlog.storage.compaction.log import commit_compaction, plan_compaction, run_compaction
from distributedlog.storage.files import FileRegion, Files
from distributedlog.storage.log import PartitionLog
from tests.simulation.disk import SimDisk
from tests.unit.storage.support import (
    NOW_MS,
    append,
    append_data,
    append_numbers,
    bare,
    batch_of,
    batches_in,
    commit_all,
    open_on,
    open_store,
    read_batches,
    read_records,
    value_of,
    with_small_segments,
)


def a_log(count: int = 40, *, open_files_max: int = 64) -> tuple[SimDisk, Files, PartitionLog]:
    disk = SimDisk(1)
    files = Files(disk, open_files_max=open_files_max)
    log, _ = open_on(disk, files=files)
    append_numbers(log, range(count))
    commit_all(log)
    return disk, files, log


def region_at(log: PartitionLog, offset: int) -> FileRegion:
    region = log.read(offset, 300).region
    assert region is not None
    return region


def first_offset_in(region: FileRegion) -> int:
    return batches_in(region.read())[0][0].base_offset


def test_a_region_outlives_the_deletion_of_its_segment_and_even_of_its_file() -> None:
    disk, _, log = a_log()
    with region_at(log, 3) as region:
        log.advance_start_offset(30, NOW_MS)
        assert first_offset_in(region) == 3
        assert log.remove_deleted_files(NOW_MS) > 0
        assert not any(path.endswith(".deleted") for path in disk.files())
        assert first_offset_in(region) == 3
    with pytest.raises(OffsetOutOfRangeError):
        log.read(3, 100)


def test_a_deleted_file_is_closed_once_its_last_reader_is_done() -> None:
    _, files, log = a_log()
    region = region_at(log, 3)
    log.advance_start_offset(30, NOW_MS)
    log.remove_deleted_files(NOW_MS)
    open_before = files.open_count
    region.close()
    assert files.open_count == open_before - 1


def test_a_region_notices_a_truncation_also_one_behind_it() -> None:
    _, _, log = a_log(8)
    with region_at(log, 2) as region:
        log.truncate_to(6, NOW_MS)
        append(log, b"other", leader_epoch=1)
        with pytest.raises(RegionChangedError):
            region.read()
        with pytest.raises(RegionChangedError):
            region.check_unchanged()
    with region_at(log, 2) as region:
        assert first_offset_in(region) == 2


def test_a_region_of_a_segment_that_a_truncation_removes_is_void() -> None:
    _, _, log = a_log(40)
    with region_at(log, 30) as region:
        log.truncate_to(5, NOW_MS)
        append_numbers(log, range(5, 40))
        with pytest.raises(RegionChangedError):
            region.read()


def test_a_region_outlives_the_log_that_gave_it() -> None:
    _, files, log = a_log()
    with region_at(log, 3) as region:
        log.close()
        files.close()
        assert first_offset_in(region) == 3
    assert files.open_count == 0
    with pytest.raises(LogClosedError):
        log.read(3, 100)


def test_a_closed_region_says_so() -> None:
    _, _, log = a_log()
    region = region_at(log, 3)
    region.close()
    region.close()
    with pytest.raises(ValueError, match="closed"):
        region.read()


def test_a_region_that_the_file_no_longer_has_is_damage_and_not_a_short_answer() -> None:
    disk, _, log = a_log(8)
    with region_at(log, 5) as region:
        other = disk.open("/data/t-0/00000000000000000000.log", write=True)
        other.truncate(100)
        with pytest.raises(CorruptLogError, match="ends at"):
            region.read()


def test_a_region_outlives_compaction() -> None:
    disk = SimDisk(1)
    config = with_small_segments(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    log, _ = open_on(disk, config)
    for number in range(40):
        append_data(log, batch_of([value_of(number)], keys=[b"key-%d" % (number % 3)]))
    commit_all(log)
    with region_at(log, 3) as region:
        plan = plan_compaction(log, 0, NOW_MS)
        assert plan is not None
        assert commit_compaction(log, run_compaction(plan, disk), NOW_MS)
        log.remove_deleted_files(NOW_MS)
        assert first_offset_in(region) == 3
    assert 3 not in dict(bare(read_records(log)))


@pytest.mark.parametrize("open_files_max", [1, 2, 4])
def test_few_open_files_are_enough_to_read_and_write_many_segments(open_files_max: int) -> None:
    _, files, log = a_log(120, open_files_max=open_files_max)
    assert len(log.segments) > 10
    for _ in range(2):
        assert bare(read_records(log, max_bytes=200)) == [(n, value_of(n)) for n in range(120)]
        assert files.open_count <= open_files_max
    for number in (5, 50, 115, 6, 51):
        assert log.find_timestamp(NOW_MS - 3_600_000 + number * 10) is not None
        append_numbers(log, [1])
        log.sync()
    assert files.open_count <= max(open_files_max, 2)


def test_pinned_files_stay_open_beyond_the_limit_and_are_closed_when_let_go() -> None:
    _, files, log = a_log(60, open_files_max=2)
    regions = [region_at(log, offset) for offset in range(0, 60, 12)]
    assert files.open_count >= len(regions)
    assert [first_offset_in(region) for region in regions] == list(range(0, 60, 12))
    for region in regions:
        region.close()
    assert files.open_count <= 2


def test_fifty_logs_share_eight_open_files() -> None:
    disk = SimDisk(1)
    store = open_store(disk, open_files_max=8)
    logs = [store.create_log("t", partition) for partition in range(50)]
    for turn in range(3):
        for number, log in enumerate(logs):
            append_numbers(log, [number * 10 + turn])
            commit_all(log)
            assert store.files.open_count <= 9
    for number, log in enumerate(logs):
        assert [record.value for record in read_records(log)] == [
            value_of(number * 10 + turn) for turn in range(3)
        ]
    assert store.files.open_count <= 8
    assert len(store.files.index_blocks) <= 8
    store.close()
    assert store.files.open_count == 0


def test_an_index_that_is_looked_at_while_it_is_synced_stays_open_for_the_sync() -> None:
    disk = SimDisk(1)
    log, _ = open_on(disk)
    append_numbers(log, range(10))
    log.roll(NOW_MS)
    append_numbers(log, range(10, 12))
    job = log.begin_sync()
    assert job is not None
    assert log.find_timestamp(NOW_MS - 3_600_000 + 50) is not None
    read_records(log)
    job.run()
    log.end_sync(job, succeeded=True)
    assert log.flushed_end_offset == 12
    assert log.files.failure is None


# --- what read returns -------------------------------------------------------------------------


def test_reads_outside_of_the_log_are_refused_and_at_its_end_are_empty() -> None:
    _, _, log = a_log(5)
    for offset in (-1, 6, 2**40):
        with pytest.raises(OffsetOutOfRangeError, match="not in the log"):
            log.read(offset, 100)
    assert log.read(5, 100).region is None
    assert log.read(3, 100, up_to=3).region is None


def test_a_byte_limit_cuts_but_not_the_first_batch() -> None:
    _, _, log = a_log(8)
    sizes = [segment.size for segment in log.segments]
    for max_bytes in (0, 1, 100, sizes[0]):
        with region_at_most(log, max_bytes) as region:
            batches = batches_in(region.read())
            assert batches
            assert region.length <= max(max_bytes, batches[0][0].size)
    assert log.read(0, 0, at_least_one=False).region is None
    assert log.read(0, 10, at_least_one=False).region is None


def region_at_most(log: PartitionLog, max_bytes: int) -> FileRegion:
    region = log.read(0, max_bytes).region
    assert region is not None
    return region


def test_no_batch_that_reaches_the_bound_is_returned() -> None:
    disk = SimDisk(1)
    log, _ = open_on(disk)
    append(log, b"a", b"b", b"c")
    append(log, b"d", b"e")
    for bound in (0, 1, 2):
        assert log.read(0, 1000, up_to=bound).region is None
    for bound in (3, 4):
        with log.read(0, 1000, up_to=bound).region or pytest.fail("nothing was read") as region:
            assert [header.base_offset for header, _ in batches_in(region.read())] == [0]


def test_a_batch_is_found_by_each_of_its_offsets() -> None:
    disk = SimDisk(1)
    log, _ = open_on(disk)
    append(log, b"a", b"b", b"c")
    append(log, b"d", b"e")
    assert [log.read(offset, 1).base_offset for offset in range(5)] == [0, 0, 0, 3, 3]


@pytest.mark.parametrize("left", [0, 40, 300])
def test_a_log_file_that_is_cut_short_is_an_error_that_names_it_and_others_are_read(left: int) -> None:
    disk = SimDisk(1)
    log, _ = open_on(disk)
    append_numbers(log, range(60))
    commit_all(log)
    cut, following = log.segments.sealed[1], log.segments.sealed[2]
    first = list(range(cut.base_offset))
    disk.open(cut.log.path, write=True).truncate(left)
    for _ in range(3):
        with pytest.raises(CorruptLogError, match=cut.log.path):
            log.read(cut.base_offset + 5, 1 << 20)
    assert [record.offset for record in read_records(log, following.base_offset)] == list(
        range(following.base_offset, 60)
    )
    assert [header.base_offset for header, _ in read_batches(log, 0)] == first
    assert log.files.failure is None
