"""Is a log sound?  What is right is found right, what a crash leaves repairable, and the rest damaged."""

import os
from collections.abc import Iterator

import pytest

from distributedlog.model.ids import TopicPartition
from distributedlog.records.batch import read_header
from distributedlog.records.record import Record, encode_batch, finish_batch
from distributedlog.storage.append import Origin
from distributedlog.storage.files import Files
from distributedlog.storage.log import PartitionLog
from distributedlog.storage.verification.directory import DirectoryVerification, PartitionVerification
from distributedlog.storage.verification.findings import Circumstances, Finding, Severity, Totals
from tests.simulation.disk import SimDisk
from tests.unit.storage.support import (
    DIRECTORY,
    NOW_MS,
    PARTITION,
    ROOT,
    append,
    append_data,
    append_numbers,
    batch_of,
    commit_all,
    marker_of,
    open_store,
    value_of,
)

IS_SOAK = os.environ.get("DLOG_SOAK") == "1"
FIRST = f"{DIRECTORY}/{0:020d}"


def verify(disk: SimDisk, *, is_live: bool = False) -> list[Finding]:
    return list(DirectoryVerification(Files(disk), ROOT, is_live=is_live).run())


def severities(findings: list[Finding]) -> set[Severity]:
    return {finding.severity for finding in findings}


def only(findings: list[Finding]) -> Finding:
    (finding,) = findings
    return finding


def begin(log: PartitionLog, producer_id: int, sequence: int, *values: bytes, leader_epoch: int = 0) -> None:
    batch = batch_of(
        values, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True
    )
    append_data(log, batch, leader_epoch=leader_epoch)


def end(log: PartitionLog, producer_id: int, *, commit: bool, leader_epoch: int = 0) -> None:
    append_data(
        log, marker_of(producer_id, commit=commit), leader_epoch=leader_epoch, origin=Origin.COORDINATOR
    )


def write_history(log: PartitionLog) -> None:
    """Three segments, four epochs, transactions committed, aborted and open."""
    append_numbers(log, range(6))
    begin(log, 7, 0, b"a1", b"a2")
    begin(log, 8, 0, b"b1")
    end(log, 7, commit=False)
    end(log, 8, commit=True)
    for number in range(10, 30):
        append(log, value_of(number), leader_epoch=number // 10, timestamp_ms=NOW_MS - 1000 + number)
    begin(log, 7, 2, b"c1", leader_epoch=2)
    end(log, 7, commit=False, leader_epoch=2)
    begin(log, 9, 0, b"d1", leader_epoch=3)
    commit_all(log)


def append_more(log: PartitionLog, count: int) -> None:
    for number in range(30, 30 + count):
        append(log, value_of(number), leader_epoch=3, timestamp_ms=NOW_MS + number)


def closed_store() -> SimDisk:
    disk = SimDisk()
    store = open_store(disk)
    write_history(store.create_log("t", 0))
    store.close()
    return disk


def killed_store(mode: str = "keep") -> SimDisk:
    """Returns a store to which more was written after a checkpoint, and then the machine stopped."""
    disk = SimDisk()
    store = open_store(disk)
    log = store.create_log("t", 0)
    write_history(log)
    store.checkpoint()
    append_more(log, 20)
    disk.crash(mode)  # type: ignore[arg-type]
    return disk


def paths(disk: SimDisk, directory: str = ROOT) -> Iterator[str]:
    for name in disk.list_directory(directory):
        path = f"{directory}/{name}"
        if disk.is_directory(path):
            yield from paths(disk, path)
        else:
            yield path


def rewrite(disk: SimDisk, path: str, content: bytes) -> None:
    file = disk.open(path, create=True)
    file.truncate(0)
    file.write_at(0, content)
    file.close()


def content(disk: SimDisk, path: str) -> bytes:
    file = disk.open(path)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


# --- sound --------------------------------------------------------------------------------------


def test_a_store_that_was_closed_is_sound() -> None:
    disk = closed_store()
    before = {path: content(disk, path) for path in paths(disk)}
    operations = disk.operations
    verification = DirectoryVerification(Files(disk), ROOT)
    assert list(verification.run()) == []
    totals = verification.totals
    assert (totals.segments, totals.batches, totals.records) == (3, 33, 34)
    assert totals.oldest_timestamp == NOW_MS - 3_600_000
    assert totals.newest_timestamp == NOW_MS
    assert totals.snapshots == 3
    (partition,) = verification.partitions.values()
    assert (partition.first_offset, partition.end_offset) == (0, 34)
    assert disk.operations == operations, "a verification writes nothing"
    assert {path: content(disk, path) for path in paths(disk)} == before


def test_progress_adds_up_to_the_bytes_of_the_log_files() -> None:
    disk = closed_store()
    steps: list[int] = []
    list(DirectoryVerification(Files(disk), ROOT, on_progress=steps.append).run())
    assert sum(steps) == sum(disk.size(path) for path in paths(disk) if path.endswith(".log"))


# --- damage -------------------------------------------------------------------------------------


def _flips(disk: SimDisk, endings: tuple[str, ...], stride: int) -> Iterator[tuple[str, int]]:
    for path in paths(disk):
        if path.endswith(endings):
            for position in range(0, disk.size(path), 1 if IS_SOAK else stride):
                yield path, position


def test_a_flipped_bit_anywhere_in_a_log_file_is_damage_and_its_place_is_named() -> None:
    disk = closed_store()
    for path, position in _flips(disk, (".log",), 13):
        rotten = disk.fork()
        rotten.flip_bit(path, position, position % 8)
        damage = [finding for finding in verify(rotten) if finding.severity is Severity.DAMAGE]
        assert damage, f"{path} at {position}"
        places = [finding.position for finding in damage if finding.path == path]
        named = [place for place in places if place is not None and place <= position]
        epochs_or_gap = any(finding.path != path for finding in damage)
        assert named or epochs_or_gap, f"{path} at {position}: {damage}"


def test_a_flipped_bit_in_an_index_or_snapshot_is_repairable() -> None:
    disk = closed_store()
    for path, position in _flips(disk, (".index", ".timeindex", ".txnindex", ".snapshot"), 5):
        rotten = disk.fork()
        rotten.flip_bit(path, position, position % 8)
        found = verify(rotten)
        assert severities(found) == {Severity.REPAIRABLE}, f"{path} at {position}: {found}"
        assert {finding.path for finding in found} == {path}


def test_a_flipped_bit_in_the_epoch_history_is_seen() -> None:
    disk = closed_store()
    for path, position in _flips(disk, ("leader-epoch-checkpoint",), 1):
        rotten = disk.fork()
        rotten.flip_bit(path, position, 2)
        assert severities(verify(rotten)) & {Severity.DAMAGE, Severity.REPAIRABLE}, position


def test_damage_in_the_middle_does_not_hide_the_rest() -> None:
    disk = closed_store()
    disk.flip_bit(f"{FIRST}.log", 88 + 70, 1)
    verification = DirectoryVerification(Files(disk), ROOT)
    finding = only(list(verification.run()))
    assert finding.severity is Severity.DAMAGE
    assert (finding.position, finding.offset) == (88, 1)
    assert "go on at position 176" in finding.message
    assert verification.totals.batches == 32


def test_records_that_do_not_decode_behind_a_right_checksum_are_damage() -> None:
    disk = closed_store()
    raw = bytearray(content(disk, f"{FIRST}.log"))
    header = read_header(raw, 0)
    body = bytearray(raw[: header.size])
    body[61:63] = b"\x7f\x7f"
    raw[: header.size] = finish_batch(body, header)
    rewrite(disk, f"{FIRST}.log", bytes(raw))
    finding = verify(disk)[0]
    assert (finding.severity, finding.position, finding.offset) == (Severity.DAMAGE, 0, 0)
    assert "bytes" in finding.message


def test_a_count_of_records_that_is_a_lie_is_damage() -> None:
    disk = closed_store()
    raw = bytearray(content(disk, f"{FIRST}.log"))
    header = read_header(raw, 0)
    raw[: header.size] = finish_batch(
        bytearray(raw[: header.size]), header._replace(record_count=2, last_offset_delta=0)
    )
    rewrite(disk, f"{FIRST}.log", bytes(raw))
    assert severities(verify(disk)) >= {Severity.DAMAGE}


def test_a_segment_that_is_gone_from_the_middle_is_damage() -> None:
    disk = closed_store()
    for suffix in ("log", "index", "timeindex", "txnindex"):
        path = f"{DIRECTORY}/{13:020d}.{suffix}"
        if disk.exists(path):
            disk.remove(path)
    findings = verify(disk)
    assert any(
        finding.severity is Severity.DAMAGE and "offsets 13 to 23 are missing" in finding.message
        for finding in findings
    )


def test_a_log_shorter_than_what_was_synced_is_damage() -> None:
    disk = closed_store()
    last = f"{DIRECTORY}/{24:020d}.log"
    rewrite(disk, last, content(disk, last)[:264])
    damage = [finding for finding in verify(disk) if finding.severity is Severity.DAMAGE]
    assert "the log ends at 27, and everything below 34 was synced" in damage[-1].message


def test_a_batch_in_the_wrong_segment_is_damage() -> None:
    disk = closed_store()
    stray = encode_batch([Record(b"stray", timestamp_ms=NOW_MS)], base_offset=13, leader_epoch=1)
    rewrite(disk, f"{FIRST}.log", content(disk, f"{FIRST}.log") + bytes(stray))
    assert any("belongs to the next segment, which begins at 13" in str(finding) for finding in verify(disk))


def test_a_disk_that_cannot_be_read_is_damage_and_not_an_exception() -> None:
    disk = closed_store()
    disk.inject("read", f"*/{13:020d}.log", error=5, count=1000)
    findings = verify(disk)
    assert [finding.severity for finding in findings if finding.path.endswith(f"{13:020d}.log")] == [
        Severity.DAMAGE
    ]


@pytest.mark.parametrize("name", ["meta.properties", "t-0/partition.metadata"])
def test_identity_that_cannot_be_read_is_damage(name: str) -> None:
    disk = closed_store()
    rewrite(disk, f"{ROOT}/{name}", b"nonsense\xff")
    assert only(verify(disk)).severity is Severity.DAMAGE


# --- repairable ---------------------------------------------------------------------------------


def test_a_torn_end_above_the_recovery_point_is_repairable() -> None:
    disk = killed_store()
    last = max(path for path in paths(disk) if path.endswith(".log"))
    rewrite(disk, last, content(disk, last)[:-7])
    torn = next(finding for finding in verify(disk) if finding.path == last)
    assert torn.severity is Severity.REPAIRABLE
    assert "torn write, 81 bytes" in torn.message
    assert torn.offset == 53


def test_the_same_torn_end_below_the_recovery_point_is_damage() -> None:
    disk = closed_store()
    last = f"{DIRECTORY}/{24:020d}.log"
    rewrite(disk, last, content(disk, last)[:-7])
    torn = next(finding for finding in verify(disk) if finding.path == last)
    assert torn.severity is Severity.DAMAGE
    assert "below offset 34 was synced" in torn.message


@pytest.mark.parametrize("mode", ["drop", "keep"])
def test_what_a_kill_leaves_is_repairable(mode: str) -> None:
    disk = killed_store(mode)
    assert severities(verify(disk)) <= {Severity.REPAIRABLE, Severity.NOTE}
    open_store(disk).close()
    assert verify(disk) == []


@pytest.mark.parametrize("suffix", ["index", "timeindex", "txnindex"])
def test_a_missing_index_is_repairable(suffix: str) -> None:
    disk = closed_store()
    disk.remove(f"{FIRST}.{suffix}")
    finding = only(verify(disk))
    assert finding.severity is Severity.REPAIRABLE
    assert finding.path.endswith(suffix)


def test_an_index_that_stops_early_is_repairable() -> None:
    disk = SimDisk()
    store = open_store(disk, open_files_max=8)
    log = store.create_log(
        "t", 0, config=store.config.__class__(segment_bytes=1 << 20, index_interval_bytes=100)
    )
    append_numbers(log, range(400))
    store.close()
    index = f"{FIRST}.index"
    rewrite(disk, index, content(disk, index)[:16])
    finding = only(verify(disk))
    assert finding.severity is Severity.REPAIRABLE
    assert "has no entry for the last" in finding.message


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (f"{0:020d}.log.5-0-9.cleaned", "compaction that was cut short"),
        ("leader-epoch-checkpoint.tmp", "a write that was cut short"),
        (f"{99:020d}.index", "no log file beside it"),
        (f"{99:020d}.snapshot", "the log ends at 34"),
    ],
)
def test_leftovers_are_repairable_and_go_when_the_log_is_opened(name: str, says: str) -> None:
    disk = closed_store()
    rewrite(disk, f"{DIRECTORY}/{name}", content(disk, f"{DIRECTORY}/{24:020d}.snapshot"))
    finding = only(verify(disk))
    assert finding.severity is Severity.REPAIRABLE
    assert says in finding.message


def test_a_deleted_partition_that_is_still_there_is_repairable() -> None:
    disk = closed_store()
    disk.make_directory(f"{ROOT}/old-0.abc-delete")
    assert only(verify(disk)).severity is Severity.REPAIRABLE
    open_store(disk).close()
    assert verify(disk) == []


def test_checkpoints_that_cannot_be_read_are_repairable() -> None:
    disk = closed_store()
    rewrite(disk, f"{ROOT}/recovery-point-offset-checkpoint", b"0\nmany\n")
    finding = only(verify(disk))
    assert finding.severity is Severity.REPAIRABLE
    assert "taken as empty" in finding.message


# --- what a replay says -------------------------------------------------------------------------


def test_a_snapshot_with_a_right_checksum_and_a_wrong_story_is_damage() -> None:
    disk = closed_store()
    other = SimDisk()
    store = open_store(other)
    log = store.create_log("t", 0)
    begin(log, 7, 5, b"x")
    store.close()
    rewrite(disk, f"{DIRECTORY}/{13:020d}.snapshot", content(other, f"{DIRECTORY}/{1:020d}.snapshot"))
    finding = only(verify(disk))
    assert finding.severity is Severity.DAMAGE
    assert "producer 7" in finding.message
    assert "remove it" in finding.message


def test_the_same_snapshot_above_the_recovery_point_of_a_log_that_was_not_closed_is_repairable() -> None:
    disk = closed_store()
    store = open_store(disk)
    begin(store.logs[PARTITION], 11, 5, b"x", leader_epoch=3)
    store.abandon()
    wrong = content(disk, f"{DIRECTORY}/{13:020d}.snapshot")
    rewrite(disk, f"{DIRECTORY}/{35:020d}.snapshot", wrong)
    finding = next(finding for finding in verify(disk) if finding.path.endswith(f"{35:020d}.snapshot"))
    assert finding.severity is Severity.REPAIRABLE
    assert "opening the log removes it" in finding.message


def test_epochs_that_contradict_the_batches_are_damage() -> None:
    disk = closed_store()
    rewrite(disk, f"{DIRECTORY}/leader-epoch-checkpoint", b"0\n2\n0 0\n1 12\n")
    finding = only(verify(disk))
    assert finding.severity is Severity.DAMAGE
    assert finding.offset == 11
    assert "says epoch 0 for offset 11; the batch there carries 1" in finding.message


def test_a_transaction_index_of_another_segment_is_noticed() -> None:
    disk = closed_store()
    rewrite(disk, f"{FIRST}.txnindex", content(disk, f"{DIRECTORY}/{24:020d}.txnindex"))
    assert "where no abort marker stands" in only(verify(disk)).message


def test_where_the_log_begins_later_the_first_snapshot_is_believed() -> None:
    disk = closed_store()
    store = open_store(disk)
    store.logs[PARTITION].advance_start_offset(14, NOW_MS)
    store.close()
    assert severities(verify(disk)) == {Severity.NOTE}, "what was deleted is removed later"
    open_store(disk).close()
    assert verify(disk) == []
    assert not disk.exists(f"{FIRST}.log")


def test_a_control_batch_that_is_no_marker_is_damage() -> None:
    disk = closed_store()
    marker = encode_batch(
        [Record(b"v", b"k", timestamp_ms=NOW_MS)],
        base_offset=34,
        leader_epoch=3,
        producer_id=7,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    last = f"{DIRECTORY}/{24:020d}.log"
    rewrite(disk, last, content(disk, last) + bytes(marker))
    damage = [finding for finding in verify(disk) if finding.severity is Severity.DAMAGE]
    assert "ends no transaction" in only(damage).message


# --- circumstances ------------------------------------------------------------------------------


def test_a_log_that_is_open_elsewhere_is_not_blamed_for_what_is_in_memory() -> None:
    disk = SimDisk()
    store = open_store(disk)
    log = store.create_log("t", 0)
    write_history(log)
    append_more(log, 3)
    assert [finding for finding in verify(disk, is_live=True) if finding.severity is not Severity.NOTE] == []
    last = max(path for path in paths(disk) if path.endswith(".log"))
    rewrite(disk, last, content(disk, last) + b"\0" * 30)
    assert any("just being written" in finding.message for finding in verify(disk, is_live=True))
    store.abandon()


def test_a_partition_without_its_data_directory_is_verified_alone() -> None:
    disk = closed_store()
    verification = PartitionVerification(Files(disk), DIRECTORY)
    assert list(verification.run()) == []
    assert verification.totals.records == 34


def test_a_partition_whose_directory_was_only_just_made_is_sound() -> None:
    disk = closed_store()
    disk.make_directory(f"{ROOT}/new-0")
    assert verify(disk) == []


def test_a_partition_that_lost_every_segment_is_damaged() -> None:
    disk = closed_store()
    for path in list(paths(disk, DIRECTORY)):
        disk.remove(path)
    damage = [finding for finding in verify(disk) if finding.severity is Severity.DAMAGE]
    assert "the log ends at 0, and everything below 34 was synced" in only(damage).message


def test_only_the_wanted_partitions_are_read() -> None:
    disk = closed_store()
    store = open_store(disk)
    append(store.create_log("u", 3), b"x")
    store.close()
    disk.flip_bit(f"{FIRST}.log", 70, 0)
    verification = DirectoryVerification(Files(disk), ROOT, is_wanted=lambda each: each.topic == "u")
    assert list(verification.run()) == []
    assert list(verification.partitions) == [TopicPartition("u", 3)]


def test_notes_are_given_for_what_is_strange_and_right() -> None:
    disk = closed_store()
    rewrite(disk, f"{DIRECTORY}/letter.txt", b"hello")
    disk.make_directory(f"{DIRECTORY}/quarantine")
    disk.make_directory(f"{ROOT}/lost+found")
    assert [(finding.severity, finding.path.rpartition("/")[2]) for finding in verify(disk)] == [
        (Severity.NOTE, "lost+found"),
        (Severity.NOTE, "letter.txt"),
        (Severity.NOTE, "quarantine"),
    ]


def test_what_stands_below_the_high_watermark_is_worth_a_note() -> None:
    disk = closed_store()
    view = Circumstances(high_watermark=50)
    finding = only(list(PartitionVerification(Files(disk), DIRECTORY, view).run()))
    assert finding.severity is Severity.NOTE
    assert "below its high watermark 50" in finding.message


def test_totals_of_several_logs_add_up() -> None:
    totals = Totals()
    totals.add(Totals(segments=1, bytes=10, batches=2, records=3, oldest_timestamp=5, newest_timestamp=9))
    totals.add(Totals(segments=2, bytes=20, batches=4, records=6, oldest_timestamp=-1, newest_timestamp=-1))
    totals.add(Totals(oldest_timestamp=2, newest_timestamp=3))
    assert (totals.segments, totals.bytes, totals.batches, totals.records) == (3, 30, 6, 9)
    assert (totals.oldest_timestamp, totals.newest_timestamp) == (2, 9)


def test_a_finding_reads_as_a_line() -> None:
    finding = Finding(Severity.DAMAGE, "t-0/x.log", "it is broken", 12, 3)
    assert str(finding) == "damage: t-0/x.log at position 12 (offset 3): it is broken"
