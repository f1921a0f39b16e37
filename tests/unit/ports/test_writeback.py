"""Beginning to write a file: the system's call is there, and its errors are the sync's to report."""

import sys
from pathlib import Path

import pytest

from distributedlog.ports.writeback import SYNC_FILE_RANGE_WRITE, _system_call, start_writeback


@pytest.mark.skipif(sys.platform != "linux", reason="the call is Linux's")
def test_the_system_takes_the_call(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb", buffering=0) as file:
        file.write(bytes(100_000))
        assert _system_call()(file.fileno(), 0, 0, SYNC_FILE_RANGE_WRITE) == 0


def test_an_error_is_left_to_the_sync() -> None:
    start_writeback(-1)
