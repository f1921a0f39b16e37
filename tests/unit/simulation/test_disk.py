"""What the simulated disk forgets, tears and refuses."""

import errno
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.disk import PowerCut, SimDisk
from tests.simulation.inodes import SECTOR_BYTES, CrashMode


def disk_with(content: bytes = b"", seed: int = 1) -> SimDisk:
    """A disk whose file /d/a is durable, name and all."""
    disk = SimDisk(seed)
    disk.make_directory("/d")
    disk.sync_directory("/")
    file = disk.open("/d/a", create=True)
    file.write_at(0, content)
    file.sync()
    file.close()
    disk.sync_directory("/d")
    return disk


def content_of(disk: SimDisk, path: str = "/d/a") -> bytes:
    return disk.files()[path]


# --- what a crash leaves -----------------------------------------------------------------------


def test_unsynced_bytes_are_gone_after_a_crash_and_synced_ones_are_not() -> None:
    disk = disk_with(b"old")
    file = disk.open("/d/a", write=True)
    file.write_at(3, b" synced")
    file.sync()
    file.write_at(0, b"NEW")
    file.write_at(20, b"far")
    disk.crash("drop")
    assert content_of(disk) == b"old synced"


def test_an_unsynced_truncation_is_undone_by_a_crash() -> None:
    disk = disk_with(b"abcdef")
    file = disk.open("/d/a", write=True)
    file.truncate(2)
    file.write_at(2, b"xy")
    file.truncate(10)
    disk.crash("drop")
    assert content_of(disk) == b"abcdef"


def test_a_synced_truncation_stays() -> None:
    disk = disk_with(b"abcdef")
    file = disk.open("/d/a", write=True)
    file.truncate(2)
    file.sync()
    disk.crash("drop")
    assert content_of(disk) == b"ab"


def test_a_killed_process_loses_nothing_but_what_it_did_not_sync_stays_at_risk() -> None:
    disk = disk_with(b"old")
    file = disk.open("/d/a", write=True)
    file.write_at(0, b"new")
    disk.crash("keep")
    assert content_of(disk) == b"new"
    disk.crash("drop")
    assert content_of(disk) == b"old"


def test_a_new_file_vanishes_with_its_name_although_its_bytes_were_synced() -> None:
    disk = disk_with()
    file = disk.open("/d/new", create=True)
    file.write_at(0, b"x")
    file.sync()
    disk.crash("drop")
    assert disk.list_directory("/d") == ["a"]


def test_a_synced_name_without_synced_bytes_is_an_empty_file() -> None:
    disk = disk_with()
    disk.open("/d/new", create=True).write_at(0, b"x")
    disk.sync_directory("/d")
    disk.crash("drop")
    assert content_of(disk, "/d/new") == b""


def test_an_unsynced_removal_and_rename_are_undone() -> None:
    disk = disk_with(b"x")
    disk.rename("/d/a", "/d/b")
    disk.remove("/d/b")
    disk.open("/d/a", create=True).write_at(0, b"other")
    disk.crash("drop")
    assert disk.files() == {"/d/a": b"x"}


def test_a_replaced_file_comes_back_if_the_rename_was_not_synced() -> None:
    disk = disk_with(b"old")
    file = disk.open("/d/next", create=True)
    file.write_at(0, b"new")
    file.sync()
    disk.sync_directory("/d")
    disk.rename("/d/next", "/d/a")
    before, after = disk.fork(), disk
    before.crash("drop")
    assert before.files() == {"/d/a": b"old", "/d/next": b"new"}
    after.sync_directory("/d")
    after.crash("drop")
    assert after.files() == {"/d/a": b"new"}


def test_a_directory_that_was_not_synced_takes_its_files_along() -> None:
    disk = disk_with()
    disk.make_directory("/d/e/f")
    file = disk.open("/d/e/f/g", create=True)
    file.sync()
    disk.sync_directory("/d/e/f")
    disk.sync_directory("/d/e")
    kept = disk.fork()
    disk.crash("drop")
    assert not disk.exists("/d/e")
    kept.sync_directory("/d")
    kept.crash("drop")
    assert kept.exists("/d/e/f/g")


def test_a_move_between_directories_needs_both_synced() -> None:
    disk = disk_with(b"x")
    disk.make_directory("/e")
    disk.sync_directory("/")
    disk.rename("/d/a", "/e/a")
    target, source = disk.fork(), disk.fork()
    target.sync_directory("/e")
    target.crash("drop")
    assert target.files() == {"/d/a": b"x", "/e/a": b"x"}
    source.sync_directory("/d")
    source.crash("drop")
    assert source.files() == {}


def test_handles_and_locks_do_not_outlive_a_crash() -> None:
    disk = disk_with(b"abc")
    file = disk.open("/d/a", write=True)
    old_lock = disk.lock("/d/.lock")
    disk.crash("keep")
    uses: list[Callable[[], object]] = [
        lambda: file.read_at(0, 1),
        lambda: file.write_at(0, b"x"),
        lambda: file.truncate(0),
        file.size,
        file.sync,
    ]
    for use in uses:
        with pytest.raises(OSError) as caught:
            use()
        assert caught.value.errno == errno.EBADF
    file.close()
    disk.lock("/d/.lock")
    old_lock.release()  # the dead process's: it frees nothing
    with pytest.raises(BlockingIOError):
        disk.lock("/d/.lock")


# --- a random crash ----------------------------------------------------------------------------


def random_remains(*steps: Callable[[SimDisk], None], runs: int = 300) -> set[bytes]:
    remains = set()
    for seed in range(runs):
        disk = disk_with(b"a" * 10, seed)
        for step in steps:
            step(disk)
        disk.crash("random")
        remains.add(content_of(disk))
    return remains


def test_a_small_unsynced_write_is_kept_lost_or_zeros() -> None:
    remains = random_remains(lambda disk: disk.open("/d/a", write=True).write_at(10, b"xy"))
    assert remains == {b"a" * 10, b"a" * 10 + b"xy", b"a" * 10 + b"\0\0"}


def test_a_large_unsynced_write_tears_at_sectors_and_nowhere_else() -> None:
    new = b"x" * (3 * SECTOR_BYTES)
    remains = random_remains(lambda disk: disk.open("/d/a", write=True).write_at(10, new))
    cuts = {len(content) for content in remains}
    assert cuts == {10, SECTOR_BYTES, 2 * SECTOR_BYTES, 3 * SECTOR_BYTES, 3 * SECTOR_BYTES + 10}
    torn_inside = {content for content in remains if b"\0x" in content and b"x\0" in content}
    assert torn_inside, "no crash lost a sector in the middle"
    for content in remains:
        for start in range(0, len(content), SECTOR_BYTES):
            assert len(set(content[max(10, start) : start + SECTOR_BYTES])) <= 1, "a sector is torn"


def test_writes_are_lost_independently_of_their_order() -> None:
    def write_twice(disk: SimDisk) -> None:
        file = disk.open("/d/a", write=True)
        file.write_at(0, b"1")
        file.write_at(5, b"2")

    remains = {content[:1] + content[5:6] for content in random_remains(write_twice)}
    assert remains >= {b"aa", b"1a", b"a2", b"12"}


def test_synced_bytes_survive_every_random_crash() -> None:
    def write_and_sync(disk: SimDisk) -> None:
        file = disk.open("/d/a", write=True)
        file.write_at(10, b"synced")
        file.sync()
        file.write_at(16, b"not")

    for content in random_remains(write_and_sync):
        assert content.startswith(b"a" * 10 + b"synced")


def test_of_a_directorys_changes_a_random_crash_keeps_the_first_ones() -> None:
    remains = set()
    for seed in range(100):
        disk = disk_with(b"", seed)
        disk.open("/d/b", create=True)
        disk.rename("/d/b", "/d/c")
        disk.remove("/d/a")
        disk.crash("random")
        remains.add(tuple(disk.list_directory("/d")))
    assert remains == {("a",), ("a", "b"), ("a", "c"), ("c",)}


def test_the_same_seed_gives_the_same_remains() -> None:
    def run(seed: int) -> dict[str, bytes]:
        disk = disk_with(b"a" * 600, seed)
        file = disk.open("/d/a", write=True)
        for at in range(20):
            file.write_at(at * 300, bytes([at]) * 700)
            disk.open(f"/d/{at}", create=True)
        disk.crash("random")
        return disk.files()

    assert run(5) == run(5)
    assert len({tuple(run(seed).items()) for seed in range(10)}) > 5


# --- against a plain model ---------------------------------------------------------------------

FILE_STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 1500), st.binary(max_size=1200)),
    st.tuples(st.just("truncate"), st.integers(0, 2000), st.just(b"")),
    st.tuples(st.just("sync"), st.just(0), st.just(b"")),
    st.tuples(st.just("fork"), st.just(0), st.just(b"")),
    st.tuples(st.just("crash"), st.sampled_from([0, 1]), st.just(b"")),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(FILE_STEPS, max_size=30))
def test_a_file_is_what_a_volatile_and_a_durable_copy_would_be(steps: list[tuple[str, int, bytes]]) -> None:
    disk = disk_with()
    file = disk.open("/d/a", write=True)
    volatile, durable = bytearray(), b""
    for step, number, data in steps:
        if step == "write":
            file.write_at(number, data)
            if data:
                volatile.extend(bytes(max(0, number - len(volatile))))
                volatile[number : number + len(data)] = data
        elif step == "truncate":
            file.truncate(number)
            del volatile[number:]
            volatile.extend(bytes(number - len(volatile)))
        elif step == "sync":
            file.sync()
            durable = bytes(volatile)
        else:
            if step == "fork":
                original, disk = disk, disk.fork()
                original.open("/d/a", write=True).write_at(0, b"the original's own")
            else:
                mode: CrashMode = "keep" if number else "drop"
                disk.crash(mode)
                volatile = volatile if number else bytearray(durable)
            file = disk.open("/d/a", write=True)
        assert content_of(disk) == volatile
        assert disk.used_bytes == len(volatile)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2000), st.binary(min_size=1, max_size=1500)), max_size=8),
    st.integers(0, 99),
)
def test_a_random_crash_invents_no_bytes(writes: list[tuple[int, bytes]], seed: int) -> None:
    disk = disk_with(b"\xaa" * 1000, seed)
    file = disk.open("/d/a", write=True)
    possible = [{0xAA} for _ in range(1000)]
    for position, data in writes:
        file.write_at(position, data)
        possible += [{0} for _ in range(position + len(data) - len(possible))]
        for at, byte in enumerate(data, position):
            possible[at].add(byte)
            if at >= 1000:
                possible[at].add(0)
    disk.crash("random")
    content = content_of(disk)
    assert 1000 <= len(content) <= len(possible)
    assert all(byte in choices for byte, choices in zip(content, possible, strict=False))


# --- forks -------------------------------------------------------------------------------------


def test_forks_do_not_see_each_others_writes() -> None:
    disk = disk_with(b"same")
    twin = disk.fork()
    disk.open("/d/a", write=True).write_at(0, b"mine")
    twin.open("/d/a", write=True).write_at(0, b"hers")
    twin.open("/d/b", create=True)
    assert disk.files() == {"/d/a": b"mine"}
    assert twin.files() == {"/d/a": b"hers", "/d/b": b""}


def test_a_fork_has_the_same_unsynced_changes_and_syncs_them_for_itself_alone() -> None:
    disk = disk_with(b"old")
    disk.open("/d/a", write=True).write_at(0, b"new")
    twin = disk.fork()
    twin.open("/d/a", write=True).sync()
    disk.crash("drop")
    twin.crash("drop")
    assert content_of(disk) == b"old"
    assert content_of(twin) == b"new"


def test_a_removed_file_can_come_back_in_a_fork() -> None:
    disk = disk_with(b"x")
    disk.remove("/d/a")
    twin = disk.fork()
    twin.crash("drop")
    assert twin.files() == {"/d/a": b"x"}


# --- power cuts --------------------------------------------------------------------------------


def replace_atomically(disk: SimDisk) -> None:
    file = disk.open("/d/next", create=True)
    file.write_at(0, b"new")
    file.sync()
    file.close()
    disk.rename("/d/next", "/d/a")
    disk.sync_directory("/d")


def test_the_power_can_be_cut_before_each_operation() -> None:
    survivors = []
    for operations in range(6):
        disk = disk_with(b"old")
        disk.fail_after(operations)
        if operations < 5:
            with pytest.raises(PowerCut):
                replace_atomically(disk)
        else:
            replace_atomically(disk)
        disk.crash("drop")
        survivors.append(content_of(disk))
    assert survivors == [b"old"] * 5 + [b"new"]


def test_every_boundary_of_one_run_can_be_seen_by_forking() -> None:
    disk = disk_with(b"old")
    names, forks = [], []

    def fork_before(operation: str, path: str) -> None:
        names.append((operation, path))
        forks.append(disk.fork())

    disk.on_operation = fork_before
    replace_atomically(disk)
    assert names == [
        ("create", "/d/next"),
        ("write", "/d/next"),
        ("sync", "/d/next"),
        ("rename", "/d/next"),
        ("dirsync", "/d"),
    ]
    for fork in forks:
        fork.crash("random")
        assert content_of(fork) in (b"old", b"new")


def test_with_the_power_off_nothing_works_until_the_crash_is_over() -> None:
    disk = disk_with(b"old")
    file = disk.open("/d/a", write=True)
    disk.fail_after(0)
    uses: list[Callable[[], object]] = [
        lambda: file.write_at(0, b"x"),
        lambda: file.read_at(0, 1),
        file.sync,
        lambda: disk.open("/d/b", create=True),
        lambda: disk.exists("/d/a"),
        lambda: disk.list_directory("/d"),
        lambda: disk.make_directory("/e"),
        lambda: disk.remove("/d/missing"),
        lambda: disk.rename("/d/a", "/d/b"),
        lambda: disk.sync_directory("/d"),
        lambda: disk.lock("/d/.lock"),
    ]
    for use in uses:
        with pytest.raises(PowerCut):
            use()
    file.close()
    disk.crash("keep")
    assert disk.files() == {"/d/a": b"old"}


def test_only_what_changes_the_disk_is_counted() -> None:
    disk = disk_with(b"abc")
    file = disk.open("/d/a", write=True)
    before = disk.operations
    file.read_at(0, 1)
    file.size()
    disk.exists("/d/a")
    disk.list_directory("/d")
    disk.make_directory("/d")
    disk.open("/d/a", create=True)
    assert disk.operations == before
    file.write_at(0, b"x")
    file.truncate(1)
    file.sync()
    disk.make_directory("/e/f")
    disk.lock("/e/.lock")
    disk.rename("/d/a", "/e/a")
    disk.remove("/e/a")
    disk.remove_directory("/e/f")
    disk.sync_directory("/e")
    assert disk.operations == before + 10


# --- faults ------------------------------------------------------------------------------------


def test_a_fault_strikes_the_operations_it_names_and_then_is_over() -> None:
    disk = disk_with(b"abc")
    disk.open("/d/b.log", create=True)
    fault = disk.inject("open", "*.log", errno.EACCES, count=2, after=1)
    disk.open("/d/a")
    disk.open("/d/b.log")
    for _ in range(2):
        with pytest.raises(PermissionError):
            disk.open("/d/b.log")
    disk.open("/d/b.log")
    assert fault.hits == 2


def test_a_rename_is_struck_by_either_name() -> None:
    disk = disk_with(b"abc")
    disk.inject("rename", "*/new")
    with pytest.raises(OSError):
        disk.rename("/d/a", "/d/new")
    assert disk.files() == {"/d/a": b"abc"}


def test_healing_ends_all_faults() -> None:
    disk = disk_with(b"abc")
    disk.inject("*", "*", count=1000)
    with pytest.raises(OSError):
        disk.open("/d/a")
    disk.heal()
    assert disk.open("/d/a").read_at(0, 3) == b"abc"


def test_a_failed_write_leaves_any_prefix() -> None:
    sizes = set()
    for seed in range(100):
        disk = disk_with(b"", seed)
        disk.inject("write", "/d/a")
        with pytest.raises(OSError) as caught:
            disk.open("/d/a", write=True).write_at(0, b"abcd")
        assert caught.value.errno == errno.EIO
        assert b"abcd".startswith(content_of(disk))
        sizes.add(len(content_of(disk)))
    assert sizes == {0, 1, 2, 3, 4}


def test_a_failed_sync_is_not_made_good_by_the_next_one() -> None:
    disk = disk_with(b"")
    file = disk.open("/d/a", write=True)
    file.write_at(0, b"lost")
    disk.inject("sync", "/d/a")
    with pytest.raises(OSError):
        file.sync()
    file.write_at(4, b"later")
    file.sync()
    assert file.read_at(0, 9) == b"lostlater"
    disk.crash("drop")
    assert content_of(disk) == b"\0\0\0\0later"


def test_a_fork_keeps_its_own_account_of_a_failed_sync() -> None:
    disk = disk_with(b"")
    file = disk.open("/d/a", write=True)
    file.write_at(0, b"lost")
    disk.inject("sync")
    with pytest.raises(OSError):
        file.sync()
    file.write_at(4, b"x")
    twin = disk.fork()
    file.sync()
    twin.crash("drop")
    disk.crash("drop")
    assert content_of(twin) == b""
    assert content_of(disk) == b"\0\0\0\0x"


def test_a_flipped_bit_stays_flipped_whatever_was_unsynced() -> None:
    disk = disk_with(b"abcd")
    file = disk.open("/d/a", write=True)
    file.write_at(4, b"unsynced")
    disk.flip_bit("/d/a", 0, 1)
    disk.flip_bit("/d/a", 5, 0)
    assert file.read_at(0, 6) == b"cbcduo"
    disk.crash("drop")
    assert content_of(disk) == b"cbcd"


# --- a full disk -------------------------------------------------------------------------------


def test_a_full_disk_takes_what_fits_and_says_so() -> None:
    disk = disk_with(b"abc")
    disk.capacity_bytes = 5
    file = disk.open("/d/a", write=True)
    with pytest.raises(OSError) as caught:
        file.write_at(3, b"defg")
    assert caught.value.errno == errno.ENOSPC
    assert content_of(disk) == b"abcde"
    assert disk.free_bytes("/d") == 0
    file.write_at(0, b"ABCDE")  # over what is there: needs no room
    with pytest.raises(OSError):
        file.truncate(6)
    assert content_of(disk) == b"ABCDE"


def test_removal_frees_room_once_the_file_is_closed() -> None:
    disk = disk_with(b"abc")
    disk.capacity_bytes = 4
    reader = disk.open("/d/a")
    disk.remove("/d/a")
    assert disk.free_bytes("/") == 1
    reader.close()
    assert disk.free_bytes("/") == 4
    disk.open("/d/b", create=True).write_at(0, b"defg")
    assert disk.free_bytes("/") == 0


def test_replacing_a_file_frees_the_old_one() -> None:
    disk = disk_with(b"abc")
    disk.capacity_bytes = 100
    disk.open("/d/b", create=True).write_at(0, b"xy")
    disk.rename("/d/b", "/d/a")
    assert disk.used_bytes == 2
    disk.open("/d/a", write=True).truncate(1)
    assert disk.free_bytes("/") == 99


def test_a_crash_gives_back_the_room_of_what_it_took() -> None:
    disk = disk_with(b"abc")
    disk.capacity_bytes = 10
    disk.open("/d/b", create=True).write_at(0, b"1234567")
    disk.crash("drop")
    assert disk.free_bytes("/") == 7
