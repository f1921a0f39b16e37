"""Cold pages are read in the executor before they are sent, warm ones are not."""

import os
from pathlib import Path

import pytest

from distributedlog.broker.net.warming import PageWarmer
from distributedlog.ports.disk import SystemDisk
from distributedlog.storage.files import FileRegion, Files
from tests.simulation.disk import SimDisk
from tests.simulation.executor import StepExecutor

SIZE = 1024 * 1024


def a_region(path: Path) -> FileRegion:
    files = Files(SystemDisk())
    managed = files.create(str(path))
    managed.append_at(0, os.urandom(SIZE))
    managed.sync()
    return FileRegion(managed, 0, SIZE)


def make_cold(region: FileRegion) -> None:
    os.posix_fadvise(region.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_warm_pages_are_sent_at_once(tmp_path: Path) -> None:
    executor = StepExecutor()
    region = a_region(tmp_path / "log")
    region.read()
    assert PageWarmer(executor).warm(region, lambda: pytest.fail("it was warm"))
    assert executor.waiting == 0
    region.close()


def test_cold_pages_are_read_beside_the_loop_and_are_warm_then(tmp_path: Path) -> None:
    executor = StepExecutor()
    warmer = PageWarmer(executor)
    region = a_region(tmp_path / "log")
    make_cold(region)
    ready: list[bool] = []
    if warmer.warm(region, lambda: ready.append(True)):
        assert warmer.cold_regions == 0, "this file system keeps its pages, whatever it is asked"
        region.close()
        return
    assert not ready, "not from within the call"
    executor.run_all()
    assert ready == [True]
    assert warmer.warm(region, lambda: pytest.fail("it was read"))
    assert warmer.cold_regions == 1
    region.close()


def test_a_file_that_was_cut_meanwhile_is_no_error_here(tmp_path: Path) -> None:
    """Sending finds out and says so."""
    executor = StepExecutor()
    warmer = PageWarmer(executor)
    region = a_region(tmp_path / "log")
    make_cold(region)
    ready: list[bool] = []
    is_warm = warmer.warm(region, lambda: ready.append(True))
    os.truncate(tmp_path / "log", 10)
    executor.run_all()
    assert is_warm or ready == [True]
    region.close()


def test_a_disk_that_is_not_the_systems_counts_as_warm() -> None:
    files = Files(SimDisk(1))
    managed = files.create("/log")
    managed.append_at(0, b"x" * SIZE)
    region = FileRegion(managed, 0, SIZE)
    assert PageWarmer(StepExecutor()).warm(region, lambda: pytest.fail("it cannot be sent so"))
    region.close()
