"""What a compaction leaves when it is killed: a child kills itself behind each step."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from distributedlog.model.errors import PipelineError
from distributedlog.pipelines.compaction.plan import TARGET_BYTES
from distributedlog.pipelines.compaction.replacement import (
    STEPS,
    WORKING,
    find_candidates,
    replace_files,
    sweep,
)
from distributedlog.pipelines.compaction.streams import find_streams
from tests.unit.pipelines.compaction.tables import (
    HOUR_MS,
    ROWS,
    make_checkpoint,
    make_table,
    merge_with_arrow,
    named_files,
    next_ids,
    read_ids,
)

BATCHES = 23


class Stage:
    """A table of 23 batches; a stream that has read all, one that lags, one that was killed in the middle."""

    def __init__(self, directory: Path) -> None:
        self.table = directory / "a table"
        self.notes = directory / "notes"
        self.streams = directory / "checkpoints"
        entries = make_table(self.table, BATCHES)
        self.ahead = make_checkpoint(self.streams / "ahead" / "0", [entries[:20], entries[20:]], committed=1)
        self.behind = make_checkpoint(self.streams / "behind" / "0", [entries[:5]], committed=0)
        self.killed = make_checkpoint(
            self.streams / "killed" / "0", [entries[:9], entries[9:12]], committed=0
        )

    def check(self) -> None:
        """Rows, as everybody finds them."""
        assert read_ids(named_files(self.table)) == list(range(BATCHES * ROWS))
        assert next_ids(self.table, self.streams, self.ahead) == []
        assert next_ids(self.table, self.streams, self.behind) == list(range(5 * ROWS, BATCHES * ROWS))
        assert next_ids(self.table, self.streams, self.killed) == list(range(9 * ROWS, BATCHES * ROWS))

    def compact(self, kill_after: str | None = None) -> None:
        """Compacts as a process of its own that may kill itself."""
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                __name__,
                str(self.table),
                str(self.notes),
                str(self.streams),
                str(kill_after),
            ],
            check=False,
            cwd=Path(__file__).parents[4],
        )
        assert done.returncode == (0 if kill_after is None else -signal.SIGKILL)

    def files(self) -> list[str]:
        return sorted(str(path) for path in self.table.glob("part-*"))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def compact(table: str, notes: str, streams: str, kill_after: str) -> None:
    def on_step(step: str) -> None:
        if step == kill_after:
            os.kill(os.getpid(), signal.SIGKILL)

    sweep(notes, keep_ms=HOUR_MS, now_ms=HOUR_MS)
    candidates = find_candidates(table, find_streams(streams), TARGET_BYTES)
    assert candidates is not None
    if candidates.merges:
        replace_files(candidates, merge_with_arrow, notes, HOUR_MS, on_step)


def test_rows_are_the_same_for_all_who_read(stage: Stage) -> None:
    stage.check()
    stage.compact()
    stage.check()
    # 0-4 | 5-8 | 9-11 pending for one | 12-19; and the three batches behind the newest compact
    assert len(named_files(stage.table)) == 3 + 3 + 3
    assert len(stage.files()) == BATCHES + 3  # those that were replaced are still there


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_behind_a_step_changes_no_row(stage: Stage, step: str) -> None:
    stage.compact(kill_after=step)
    stage.check()
    stage.compact()
    stage.check()
    assert sweep(str(stage.notes), keep_ms=0, now_ms=HOUR_MS) == 17
    stage.check()
    assert stage.files() == sorted(named_files(stage.table))
    assert not (stage.table / WORKING).exists()
    assert list(stage.notes.iterdir()) == []


def test_what_was_replaced_stays_for_a_time(stage: Stage) -> None:
    stage.compact()
    assert sweep(str(stage.notes), keep_ms=HOUR_MS, now_ms=HOUR_MS * 2 - 1) == 0
    assert len(stage.files()) == BATCHES + 3
    assert sweep(str(stage.notes), keep_ms=HOUR_MS, now_ms=HOUR_MS * 2) == 17
    assert stage.files() == sorted(named_files(stage.table))
    assert not list(stage.table.glob(".part-00000-1-*"))  # nor their checksums
    stage.check()


def test_a_file_merged_twice_goes_with_the_second(stage: Stage) -> None:
    stage.compact()
    (merged, *_) = sorted(
        set(named_files(stage.table)) - {str(each) for each in stage.table.glob("part-00000-*")}
    )
    (note,) = stage.notes.iterdir()
    told = json.loads(note.read_text())
    later = {**told, "time_ms": told["time_ms"] + 1, "replaced": [merged], "merged": ["/nowhere"]}
    (stage.notes / "later.json").write_text(json.dumps(later))
    log = stage.table / "_spark_metadata" / "19.compact"
    log.write_text("\n".join(line for line in log.read_text().split("\n") if Path(merged).name not in line))
    sweep(str(stage.notes), keep_ms=10, now_ms=told["time_ms"] + 10)
    assert Path(merged).exists()
    sweep(str(stage.notes), keep_ms=10, now_ms=told["time_ms"] + 11)
    assert not Path(merged).exists()


def test_a_merge_that_fails_leaves_nothing(stage: Stage) -> None:
    def fill_up(paths: object, to: str) -> None:
        os.makedirs(to)
        Path(to, "part-half").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    before = stage.files()
    candidates = find_candidates(str(stage.table), find_streams(str(stage.streams)), TARGET_BYTES)
    assert candidates is not None
    with pytest.raises(OSError, match="No space left"):
        replace_files(candidates, fill_up, str(stage.notes), 0)
    assert stage.files() == before
    assert not (stage.table / WORKING).exists()
    stage.check()


def test_a_table_that_was_made_anew_keeps_its_files(stage: Stage) -> None:
    stage.compact()
    for path in stage.table.iterdir():
        if path.is_file():
            path.unlink()
    for path in (stage.table / "_spark_metadata").iterdir():
        path.unlink()
    kept = stage.table / "part-new"
    kept.touch()
    assert sweep(str(stage.notes), keep_ms=0, now_ms=HOUR_MS) == 0
    assert kept.exists()
    assert list(stage.notes.iterdir()) == []


def test_a_log_with_entries_of_another_kind_is_left(stage: Stage) -> None:
    log = stage.table / "_spark_metadata" / "19.compact"
    log.write_text(log.read_text().replace('"action":"add"', '"action":"delete"', 1))
    with pytest.raises(PipelineError, match="other than"):
        find_candidates(str(stage.table), (), TARGET_BYTES)


def test_a_note_that_is_none_is_told(stage: Stage) -> None:
    stage.notes.mkdir()
    (stage.notes / "x.json").write_text("{}")
    with pytest.raises(PipelineError, match="no note of a compaction"):
        sweep(str(stage.notes), 0, 0)


if __name__ == "__main__":
    compact(*sys.argv[1:])
