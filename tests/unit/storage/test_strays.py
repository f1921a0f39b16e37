"""Strays are renamed, kept and found again, and go when they were kept for long enough."""

from distributedlog.model.ids import TopicPartition, Uuid
from distributedlog.storage.files import Files
from distributedlog.storage.strays import STRAY_FILE, StrayLogs, aside_name
from tests.simulation.disk import SimDisk

ROOT = "/data"
KEY = TopicPartition("orders", 0)
IDENTITY = Uuid(b"sixteen bytes id")
DAY_MS = 86_400_000


def strays_of(disk: SimDisk) -> StrayLogs:
    return StrayLogs(Files(disk), ROOT)


def disk_with_log(name: str = "orders-0") -> SimDisk:
    disk = SimDisk()
    files = Files(disk)
    files.make_directory(ROOT)
    files.make_directory(f"{ROOT}/{name}")
    files.write_atomically(f"{ROOT}/{name}/00000000000000000000.log", b"records")
    return disk


def test_a_stray_has_kafkas_name_and_all_its_files_also_after_a_power_cut() -> None:
    disk = disk_with_log()
    name = strays_of(disk).set_aside(KEY, IDENTITY, 1_000)
    assert name == f"orders-0.{IDENTITY}-stray"
    disk.crash("drop")
    assert disk.files()[f"{ROOT}/{name}/00000000000000000000.log"] == b"records"
    assert not disk.is_directory(f"{ROOT}/orders-0")


def test_a_stray_is_kept_from_when_it_was_found_over_restarts_and_then_deleted() -> None:
    disk = disk_with_log()
    name = strays_of(disk).set_aside(KEY, IDENTITY, 1_000)
    after = strays_of(disk)
    assert after.find(name, 5_000)
    assert after.since_ms == {name: 1_000}
    assert after.remove_expired(1_000 + DAY_MS - 1, DAY_MS) == []
    assert disk.is_directory(f"{ROOT}/{name}")
    assert after.remove_expired(1_000 + DAY_MS, DAY_MS) == [name]
    assert not disk.is_directory(f"{ROOT}/{name}")
    assert after.since_ms == {}


def test_a_stray_of_kafka_or_from_the_future_counts_from_when_it_is_first_seen() -> None:
    name = "orders-0.0123456789abcdef0123456789abcdef-stray"
    disk = disk_with_log(name)
    strays = strays_of(disk)
    assert strays.find(name, 7_000)
    assert strays.since_ms == {name: 7_000}
    later = strays_of(disk)
    assert later.find(name, 9_000)
    assert later.since_ms == {name: 7_000}
    earlier = strays_of(disk)
    assert earlier.find(name, 500), "a clock that was set back does not make it immortal"
    assert earlier.since_ms == {name: 500}


def test_nothing_else_is_taken_for_a_stray() -> None:
    strays = strays_of(disk_with_log())
    for name in (
        "orders-0",
        "my-stray",
        "orders-0.x-stray.old",
        "orders-x.y-stray",
        "orders-0-stray",
        "-stray",
    ):
        assert not strays.find(name, 0)
    assert strays.since_ms == {}


def test_a_long_name_is_cut_and_stays_a_name() -> None:
    name = aside_name(TopicPartition("t" * 249, 12), IDENTITY, "-stray")
    assert len(name) == 255
    assert strays_of(disk_with_log(name)).find(name, 0)
    assert STRAY_FILE not in name
