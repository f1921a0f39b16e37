"""The ready report: whole or not there."""

import json
import os
from pathlib import Path

import pytest

from distributedlog.broker.ready import ReadyReport, write_file_atomically, write_to_descriptor

REPORT = ReadyReport(1, 123, "127.0.0.1:9092", "127.0.0.1:9093", "127.0.0.1:9644", "/var/lib/dlog")


def test_a_report_is_one_json_line_with_null_for_what_is_off() -> None:
    assert "\n" not in REPORT.to_json()
    assert json.loads(REPORT.to_json()) == {
        "id": 1,
        "pid": 123,
        "client": "127.0.0.1:9092",
        "control": "127.0.0.1:9093",
        "ops": "127.0.0.1:9644",
        "data_dir": "/var/lib/dlog",
    }


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "ready.json"
    path.write_text("old")
    write_file_atomically(str(path), "new")
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["ready.json"]


def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "ready.json").mkdir()
    with pytest.raises(IsADirectoryError):
        write_file_atomically(str(tmp_path / "ready.json"), "new")
    assert os.listdir(tmp_path) == ["ready.json"]


def test_a_pipe_gets_the_line_and_its_end() -> None:
    reader, writer = os.pipe()
    write_to_descriptor(writer, "a report\n")
    with open(reader, encoding="utf-8") as pipe:
        assert pipe.read() == "a report\n"
