import threading
from pathlib import Path

import pytest

from distributedlog.pipelines import history as module
from distributedlog.pipelines.history import History, read_history


def test_what_was_noted_is_read_in_order(tmp_path: Path) -> None:
    path = str(tmp_path / "deep" / "history.jsonl")
    history = History(path)
    for run in range(3):
        history.note("run", run=run, state="started")
    assert [event["run"] for event in read_history(path)] == [0, 1, 2]
    assert all(event["time_ms"] > 0 for event in read_history(path))


def test_a_line_cut_by_a_crash_is_skipped_and_costs_no_other(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    History(str(path)).note("run", run=1, state="started")
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])  # the process died while it wrote the second line
    History(str(path)).note("run", run=2, state="started")
    assert [event["run"] for event in read_history(str(path))] == [1, 2]


def test_lines_that_are_no_events_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text('[1]\n{"type": 3, "time_ms": 1}\n{"type": "run"}\n"x"\n{"type": "run", "time_ms": 5}\n')
    assert [event["time_ms"] for event in read_history(str(path))] == [5]


def test_there_is_no_history_before_the_first_run(tmp_path: Path) -> None:
    assert list(read_history(str(tmp_path / "nothing"))) == []


def test_a_large_history_is_moved_aside_and_still_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FILE_BYTES_MAX", 400)
    path = tmp_path / "history.jsonl"
    history = History(str(path))
    for run in range(40):
        history.note("run", run=run, state="started")
    assert path.stat().st_size <= 500
    runs = [event["run"] for event in read_history(str(path))]
    assert runs == list(range(runs[0], 40))
    assert len(runs) >= 5
    assert sorted(each.name for each in tmp_path.iterdir()) == ["history.jsonl", "history.jsonl.1"]


def test_threads_write_whole_lines(tmp_path: Path) -> None:
    path = str(tmp_path / "history.jsonl")
    history = History(path)

    def write(number: int) -> None:
        for _ in range(50):
            history.note("lag", run=number, records=1)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(read_history(path))) == 200


def test_an_endless_error_is_cut(tmp_path: Path) -> None:
    path = str(tmp_path / "history.jsonl")
    History(path).note("run", run=1, state="failed", error="x" * 1_000_000)
    assert [len(event["error"]) for event in read_history(path)] == [module.ERROR_CHARACTERS_MAX]
