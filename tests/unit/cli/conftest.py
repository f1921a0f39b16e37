"""Running `dlog` in this process, and directories to run it on."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from distributedlog import LogConfig, Record, Store
from distributedlog.cli.main import main

GOLDEN = Path(__file__).parents[1] / "storage" / "golden"
TIME_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The JSON objects that were printed."""
        return [json.loads(line) for line in self.out.splitlines()]

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["type"] == kind]


Dlog = Callable[..., Outcome]


@pytest.fixture
def dlog(capsys: pytest.CaptureFixture[str]) -> Dlog:
    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Users by key, over several segments and written over and over; and events without keys."""
    path = tmp_path / "data"
    config = LogConfig(segment_bytes=4096, index_interval_bytes=512)
    with Store.open(str(path), config=config, background=False) as store:
        for turn in range(12):
            store.log("users").append_many(
                [
                    Record(b"value-%d" % turn, b"user-%d" % user, (), TIME_MS + turn * 1000 + user)
                    for user in range(20)
                ]
            )
        store.log("events").append_many([Record(b"an event", timestamp_ms=TIME_MS)])
        store.log("events", 1).append_many([Record(b"another", timestamp_ms=TIME_MS)])
    return path


@pytest.fixture
def golden_copy(tmp_path: Path) -> Callable[[str], Path]:
    """A copy of one of Kafka's directories, to be changed at will."""

    def copy(kind: str) -> Path:
        target = tmp_path / kind
        shutil.copytree(GOLDEN / kind / "data", target)
        return target

    return copy


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, to see that nothing was touched."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def flip(path: Path, position: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[position] ^= 0x10
    path.write_bytes(raw)


def first_log(directory: Path) -> Path:
    return min(directory.glob("*.log"))


def last_log(directory: Path) -> Path:
    return max(directory.glob("*.log"))
