"""Taking unreadable records out of a log: no offset moves, no readable record goes, nothing is lost."""

from distributedlog.model.errors import InvalidRecordError
from distributedlog.records.batch import read_header
from distributedlog.records.compression import Codec
from distributedlog.records.record import Record, encode_batch, finish_batch
from distributedlog.storage.append import Origin
from distributedlog.storage.files import Files
from distributedlog.storage.repair.unreadable import UnreadableRecord, drop_unreadable, find_unreadable
from tests.simulation.disk import PowerCut, SimDisk
from tests.unit.storage.support import (
    DIRECTORY,
    NOW_MS,
    append_data,
    append_numbers,
    bare,
    batch_of,
    open_on,
    read_records,
    value_of,
)

BAD = b"bad"


def check(_key: bytes | None, value: bytes | None) -> None:
    if value == BAD:
        raise InvalidRecordError("it is a bad one")


def unwalkable(count: int = 3) -> bytearray:
    """A batch with a right checksum whose last record is cut."""
    sound = encode_batch([Record(b"v", timestamp_ms=NOW_MS)] * count)
    return finish_batch(sound[:-1], read_header(sound))


def mixed(codec: Codec = Codec.NONE) -> bytearray:
    records = [Record(value, timestamp_ms=NOW_MS + at) for at, value in enumerate((b"a", BAD, b"c", BAD))]
    return encode_batch(records, codec=codec)


def a_disk() -> SimDisk:
    """Three segments: sound batches, mixed ones, one of a bad record alone, and one that cannot be walked."""
    disk = SimDisk(1)
    log, _ = open_on(disk)
    append_numbers(log, range(12))
    append_data(log, mixed())
    append_data(log, mixed(Codec.ZSTD))
    append_numbers(log, range(20, 32))
    log.append_as_leader(
        unwalkable(), leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR, is_validated=True
    )
    append_data(log, batch_of([BAD]))
    append_numbers(log, range(36, 40))
    log.close()
    return disk


READABLE = [
    *((number, value_of(number)) for number in range(12)),
    (12, b"a"),
    (14, b"c"),
    (16, b"a"),
    (18, b"c"),
    *((number, value_of(number)) for number in range(20, 32)),
    *((number, value_of(number)) for number in range(36, 40)),
]
UNREADABLE = [(13, 1), (15, 1), (17, 1), (19, 1), (32, 3), (35, 1)]


def find(disk: SimDisk) -> list[UnreadableRecord]:
    return list(find_unreadable(Files(disk), DIRECTORY, check))


def readable(disk: SimDisk, *, is_clean: bool = True) -> list[tuple[int, bytes | None]]:
    log, report = open_on(disk, is_clean=is_clean, recovery_point=40)
    assert report.is_sound
    assert log.end_offset == 40
    found = bare(read_records(log))
    log.close()
    return found


def test_what_cannot_be_read_is_found_and_the_log_left_alone() -> None:
    disk = a_disk()
    before = disk.files()
    found = find(disk)
    assert [(each.offset, each.record_count) for each in found] == UNREADABLE
    assert found[0].reason == "it is a bad one"
    assert all(each.is_droppable for each in found)
    assert disk.files() == before


def test_without_a_reader_of_its_records_a_log_has_only_batches_that_cannot_be_walked() -> None:
    disk = a_disk()
    assert [each.offset for each in find_unreadable(Files(disk), DIRECTORY)] == [32]


def test_every_readable_record_stays_at_its_offset_and_what_goes_is_kept() -> None:
    disk = a_disk()
    before = disk.files()
    kept = drop_unreadable(Files(disk), DIRECTORY, find(disk))
    assert readable(disk) == READABLE
    assert find(disk) == []
    originals = b"".join(raw for path, raw in before.items() if path.endswith(".log"))
    assert len(kept) == 4
    assert all(disk.files()[path] in originals for path in kept)
    assert {read_header(disk.files()[path]).base_offset for path in kept} == {12, 16, 32, 35}


def test_a_log_without_unreadable_records_is_not_touched() -> None:
    disk = a_disk()
    drop_unreadable(Files(disk), DIRECTORY, find(disk))
    before = disk.files()
    assert drop_unreadable(Files(disk), DIRECTORY, find(disk)) == []
    assert disk.files() == before


def test_what_a_crash_left_at_the_end_is_copied_as_it_is() -> None:
    disk = a_disk()
    last = max(path for path in disk.files() if path.endswith(".log"))
    torn = bytes(batch_of([b"torn"]))[:-5]
    disk.open(last, write=True).write_at(len(disk.files()[last]), torn)
    drop_unreadable(Files(disk), DIRECTORY, find(disk))
    assert disk.files()[last].endswith(torn)
    assert readable(disk, is_clean=False) == READABLE


def test_a_power_cut_at_any_moment_loses_nothing() -> None:
    whole = a_disk()
    for operations in range(1000):
        disk = whole.fork(seed=operations)
        found = find(disk)
        disk.fail_after(operations)
        try:
            drop_unreadable(Files(disk), DIRECTORY, found)
        except PowerCut:
            disk.crash("random")
        else:
            assert operations > 20
            return
        opened = disk.fork()
        log, report = open_on(opened, recovery_point=40)
        assert report.is_sound
        assert log.end_offset == 40
        log.close()
        drop_unreadable(Files(opened), DIRECTORY, find(opened))
        assert readable(opened) == READABLE
    raise AssertionError("it never came to an end")
