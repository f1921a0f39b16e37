from pathlib import Path

from distributedlog.pipelines.compaction.streams import find_streams, mark_read
from tests.unit.pipelines.compaction.tables import make_checkpoint, make_table, write_log


def test_what_is_committed_is_read_and_the_rest_is_pending(tmp_path: Path) -> None:
    entries = make_table(tmp_path / "table", 3)
    log = make_checkpoint(tmp_path / "flow" / "0", [entries[:2], entries[2:]], committed=0)
    (stream,) = find_streams(str(tmp_path / "flow"))
    assert stream.log_directory == str(log)
    assert [Path(path).name for path in stream.read] == [Path(each["path"]).name for each in entries[:2]]
    assert [Path(path).name for path in stream.pending] == [Path(entries[2]["path"]).name]


def test_a_stream_without_commits_has_read_nothing(tmp_path: Path) -> None:
    entries = make_table(tmp_path / "table", 2)
    make_checkpoint(tmp_path / "flow", [entries], committed=-1)
    (stream,) = find_streams(str(tmp_path / "flow"))
    assert (len(stream.read), len(stream.pending)) == (0, 2)


def test_offsets_that_cannot_be_made_out_leave_all_pending(tmp_path: Path) -> None:
    entries = make_table(tmp_path / "table", 2)
    make_checkpoint(tmp_path / "flow", [entries], committed=0)
    for text in ("v1\n{}\n-", "v3\n{}\n0", "v1", '{"logOffset":0}'):
        (tmp_path / "flow" / "offsets" / "0").write_text(text)
        (stream,) = find_streams(str(tmp_path / "flow"))
        assert (len(stream.read), len(stream.pending)) == (0, 2), text


def test_of_several_sources_the_one_furthest_behind_counts(tmp_path: Path) -> None:
    entries = make_table(tmp_path / "table", 2)
    make_checkpoint(tmp_path / "flow", [entries[:1], entries[1:]], committed=1)
    (tmp_path / "flow" / "offsets" / "1").write_text('v1\n{}\n{"logOffset":1}\n{"logOffset":0}')
    write_log(tmp_path / "flow" / "sources" / "1" / "0", [])
    first, _ = find_streams(str(tmp_path / "flow"))
    assert (len(first.read), len(first.pending)) == (1, 1)


def test_named_sources_have_offsets_of_their_own(tmp_path: Path) -> None:
    entries = make_table(tmp_path / "table", 2)
    make_checkpoint(tmp_path / "flow", [entries[:1], entries[1:]], committed=1)
    (tmp_path / "flow" / "sources" / "0").rename(tmp_path / "flow" / "sources" / "orders")
    (tmp_path / "flow" / "offsets" / "1").write_text('v2\n{}\nother:{"logOffset":0}\norders:{"logOffset":1}')
    (stream,) = find_streams(str(tmp_path / "flow"))
    assert (len(stream.read), len(stream.pending)) == (2, 0)


def test_checkpoints_of_a_flow_that_was_made_anew_are_passed_over(tmp_path: Path) -> None:
    entries = make_table(tmp_path / "table", 2)
    for version in (0, 2, 10):
        make_checkpoint(tmp_path / "_checkpoints" / "flow" / str(version), [entries], committed=0)
    (stream,) = find_streams(str(tmp_path))
    assert "/flow/10/" in stream.log_directory


def test_a_mark_is_remembered_and_comes_first(tmp_path: Path) -> None:
    entries = make_table(tmp_path / "table", 1)
    log = make_checkpoint(tmp_path / "flow", [entries], committed=0)
    (stream,) = find_streams(str(tmp_path / "flow"))
    mark_read(stream, [("file:///merged", 7)])
    lines = (log / "0").read_text().split("\n")
    assert lines[1] == '{"path":"file:///merged","timestamp":7,"batchId":-1}'
    assert len(lines) == 3
    (stream,) = find_streams(str(tmp_path / "flow"))
    assert "/merged" in stream.read
