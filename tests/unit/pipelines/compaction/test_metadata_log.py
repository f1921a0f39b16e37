from pathlib import Path

import pytest

from distributedlog.model.errors import PipelineError
from distributedlog.pipelines.compaction.metadata_log import (
    local_path,
    read_entries,
    replace_entries,
    valid_batches,
)
from tests.unit.pipelines.compaction.tables import write_log


def test_the_newest_compact_and_what_is_behind_it_counts(tmp_path: Path) -> None:
    for name in ("7", "8", "9.compact", "18", "19.compact", "20", "21"):
        write_log(tmp_path / name, [{"path": f"file:///{name}"}])
    (tmp_path / ".22.tmp").touch()
    assert [each.batch for each in valid_batches(str(tmp_path))] == [19, 20, 21]


def test_without_a_compact_all_count(tmp_path: Path) -> None:
    for name in ("0", "1", "2"):
        write_log(tmp_path / name, [])
    assert [each.batch for each in valid_batches(str(tmp_path))] == [0, 1, 2]
    assert valid_batches(str(tmp_path / "nowhere")) == ()


def test_a_log_with_a_gap_is_not_understood(tmp_path: Path) -> None:
    for name in ("9.compact", "11"):
        write_log(tmp_path / name, [])
    with pytest.raises(PipelineError, match="has no batch 10"):
        valid_batches(str(tmp_path))


@pytest.mark.parametrize("text", ["", "v2\n{}", "v1\nno JSON", 'v1\n{"size":1}', 'v1\n["a"]'])
def test_what_is_no_log_is_not_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "0").write_text(text)
    (batch,) = valid_batches(str(tmp_path))
    with pytest.raises(PipelineError):
        read_entries(batch)


def test_a_file_is_replaced_and_its_checksum_goes(tmp_path: Path) -> None:
    write_log(tmp_path / "9.compact", [{"path": "file:///a"}])
    (batch,) = valid_batches(str(tmp_path))
    replace_entries(batch, [{"path": "file:///ö%20b", "size": 1}])
    assert (tmp_path / "9.compact").read_text() == 'v1\n{"path":"file:///ö%20b","size":1}'
    assert [each.name for each in tmp_path.iterdir()] == ["9.compact"]


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("file:///a%20b/c", "/a b/c"),
        ("file:/a", "/a"),
        ("/a", "/a"),
        ("hdfs://host/a", None),
        ("file://elsewhere/a", None),
    ],
)
def test_places_on_this_machine(place: str, path: str | None) -> None:
    assert local_path(place) == path
