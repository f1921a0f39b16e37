"""Directories that earlier versions of this project wrote: every later one reads the same from them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from distributedlog.model.config import LogConfig
from distributedlog.model.ids import TopicPartition
from distributedlog.ports.disk import SystemDisk
from distributedlog.storage.checkpoints import CLEAN_SHUTDOWN_FILE
from distributedlog.storage.store import LogStore
from tests.simulation.clock import ManualClock, SeededRandomness
from tests.unit.storage.make_golden import NOW_MS, PRODUCER
from tests.unit.storage.test_golden import visible

GOLDEN = Path(__file__).parent / "golden"
VERSIONS = sorted(path.parent.name for path in GOLDEN.glob("*/expected.json"))


def open_copy(version: str, tmp_path: Path, *, was_killed: bool = False) -> LogStore:
    shutil.copytree(GOLDEN / version / "data", tmp_path / "data")
    if was_killed:
        (tmp_path / "data" / CLEAN_SHUTDOWN_FILE).unlink()
    return LogStore.open(
        SystemDisk(),
        str(tmp_path / "data"),
        clock=ManualClock(NOW_MS),
        randomness=SeededRandomness(1),
        config=LogConfig(retention_ms=-1),
    )


def facts(version: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((GOLDEN / version / "expected.json").read_text())
    return loaded


@pytest.mark.parametrize("was_killed", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_what_an_earlier_version_wrote_is_read_as_it_read_it(
    version: str, was_killed: bool, tmp_path: Path
) -> None:
    store = open_copy(version, tmp_path, was_killed=was_killed)
    assert {str(partition) for partition in store.logs} == set(facts(version))
    for name, known in facts(version).items():
        partition = TopicPartition.from_directory_name(name)
        log = store.logs[partition]
        assert store.reports[partition].is_sound
        assert (log.start_offset, log.end_offset) == (known["start_offset"], known["end_offset"])
        assert log.last_stable_offset == known["last_stable_offset"]
        assert visible(log, committed_only=False) == known["read_uncommitted"]
        assert visible(log, committed_only=True) == known["read_committed"]
        assert [list(entry) for entry in log.epochs.entries] == known["epochs"]
        batches = log.walk(log.start_offset, log.end_offset)
        assert [[batch.header.base_offset, batch.header.crc] for batch in batches] == known["batches"]
    store.abandon()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_last_five_batches_of_a_producer_are_still_known(version: str, tmp_path: Path) -> None:
    store = open_copy(version, tmp_path)
    log = store.log("transactions")
    assert log is not None
    state = log.producers.get(PRODUCER)
    assert state is not None
    assert [batch.first_sequence for batch in state.batches] == [15, 16, 17, 18, 19]
    store.abandon()


def test_this_version_has_a_directory_of_its_own() -> None:
    assert "0.1.0" in VERSIONS
