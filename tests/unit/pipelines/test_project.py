import ast
import fcntl
import os
from pathlib import Path

import pytest
import yaml

from distributedlog.model.errors import ConfigError, DirectoryLockedError, PipelineError
from distributedlog.pipelines.project import (
    Project,
    find_project,
    is_running,
    make_project,
    parse_topics,
    read_project,
    reset_project,
)


def made(tmp_path: Path, name: str = "shop") -> Project:
    return make_project(str(tmp_path), name, topic="orders", bootstrap="127.0.0.1:9092")


def test_a_new_project_is_spark_s_own_and_says_what_it_needs(tmp_path: Path) -> None:
    project = made(tmp_path)
    spec = yaml.safe_load(Path(project.spec_path).read_text())
    assert set(spec) == {"name", "storage", "libraries", "configuration"}
    assert project.topics() == {"orders": 2, "orders-dead": 1, "orders-per-minute": 1}
    assert project.bootstrap == "127.0.0.1:9092"
    assert project.storage == f"file://{tmp_path}/shop/.dlog/storage"
    for path in Path(project.directory).rglob("*.py"):
        ast.parse(path.read_text())
    assert sorted(path.name for path in (tmp_path / "shop" / "transformations").iterdir()) == [
        "orders.py",
        "orders_per_minute.sql",
    ]


def test_nothing_that_is_there_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    with pytest.raises(PipelineError, match="is there already"):
        made(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shop"]


@pytest.mark.parametrize("name", ["", "9lives", "a/b", "../x", "a b", "x" * 200, "-x"])
def test_a_name_is_one_that_every_file_system_takes(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="no name for a pipeline"):
        made(tmp_path, name)


def test_a_project_is_found_from_below(tmp_path: Path) -> None:
    made(tmp_path)
    inside = tmp_path / "shop" / "transformations"
    assert find_project(str(inside)).name == "shop"
    assert find_project(str(tmp_path / "shop" / "spark-pipeline.yml")).name == "shop"
    with pytest.raises(PipelineError, match="dlog pipeline init"):
        find_project(str(tmp_path))


def test_the_directory_above_a_project_is_not_within_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`dlog pipeline reset -p ..` must not take the project that it was called in."""
    made(tmp_path)
    monkeypatch.chdir(tmp_path / "shop")
    with pytest.raises(PipelineError, match=r"there is no pipeline in \.\. or above it"):
        find_project("..")
    monkeypatch.chdir(tmp_path / "shop" / "transformations")
    assert find_project("..").name == "shop"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2", "is not YAML"),
        ("just words", "holds no settings"),
        ("storage: x", "names no name"),
        ("name: x", "names no storage"),
        ("name: x\nstorage: y\nconfiguration: [1]", "no list of KEY: VALUE"),
        ("name: x\nstorage: y\nconfiguration: {a: 5}", "write it in quotes"),
        ("name: x\nstorage: y\nconfiguration: {dlog.topics: 'a:many'}", "NAME:PARTITIONS"),
    ],
)
def test_a_wrong_specification_says_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "spark-pipeline.yml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_project(tmp_path / "spark-pipeline.yml")


def test_topics_are_named_with_their_partitions() -> None:
    assert parse_topics(" a:2  b c:10") == {"a": 2, "b": 1, "c": 10}
    for wrong in ("a:0", ":1", "a:99999999", "a:-1", "a:b:c"):
        with pytest.raises(ConfigError):
            parse_topics(wrong)


def test_reset_forgets_tables_and_checkpoints_together_and_keeps_the_definitions(tmp_path: Path) -> None:
    project = made(tmp_path)
    state = Path(project.state_directory)
    (state / "warehouse" / "orders").mkdir(parents=True)
    (state / "storage" / "_checkpoints").mkdir()
    (state / "history.jsonl").write_text("{}\n")
    assert reset_project(project) == ["history.jsonl", "storage", "warehouse"]
    assert sorted(path.name for path in state.iterdir()) == ["storage"]
    assert list((state / "storage").iterdir()) == []
    assert (tmp_path / "shop" / "transformations" / "orders.py").is_file()
    assert sorted(path.name for path in (tmp_path / "shop").iterdir() if "dlog" in path.name) == [".dlog"]


def test_reset_removes_checkpoints_that_lie_elsewhere_and_nothing_beside_them(tmp_path: Path) -> None:
    elsewhere = tmp_path / "a b"
    (elsewhere / "_checkpoints" / "x").mkdir(parents=True)
    (elsewhere / "mine").write_text("kept")
    project = Project(str(tmp_path), str(tmp_path / "s.yml"), "x", f"file://{elsewhere}")
    assert reset_project(project) == [str(elsewhere / "_checkpoints")]
    assert (elsewhere / "mine").read_text() == "kept"


def test_reset_finishes_what_a_crash_interrupted(tmp_path: Path) -> None:
    project = made(tmp_path)
    trash = tmp_path / "shop" / ".dlog.trash"
    (trash / "warehouse").mkdir(parents=True)
    reset_project(project)
    assert not trash.exists()


def test_checkpoints_on_another_machine_are_not_forgotten_silently(tmp_path: Path) -> None:
    project = Project(str(tmp_path), str(tmp_path / "s.yml"), "x", "s3a://bucket/x")
    with pytest.raises(PipelineError, match="remove _checkpoints there"):
        reset_project(project)


def test_a_running_pipeline_is_not_reset(tmp_path: Path) -> None:
    project = made(tmp_path)
    assert not is_running(project)
    lock = os.open(os.path.join(project.state_directory, "lock"), os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert is_running(project)
        with pytest.raises(DirectoryLockedError, match="is running"):
            reset_project(project)
    finally:
        os.close(lock)
    assert not is_running(project)


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_tables_that_lie_elsewhere_are_not_left_behind_by_a_reset(tmp_path: Path, scheme: str) -> None:
    """Spark would refuse to make them again where their files are."""
    table = tmp_path / "tables" / "orders"
    table.mkdir(parents=True)
    state = tmp_path / ".dlog"
    (state / "storage" / "_checkpoints").mkdir(parents=True)
    where = {"spark.sql.warehouse.dir": f"{scheme}{tmp_path}/tables"}
    project = Project(str(tmp_path), str(tmp_path / "s.yml"), "x", f"file://{state}/storage", where)
    with pytest.raises(PipelineError, match="nothing was removed"):
        reset_project(project)
    assert (state / "storage" / "_checkpoints").is_dir()
    table.rmdir()
    assert reset_project(project) == ["storage"]


def test_tables_on_another_machine_are_not_forgotten_silently(tmp_path: Path) -> None:
    where = {"spark.sql.warehouse.dir": "s3a://bucket/tables"}
    project = Project(str(tmp_path), str(tmp_path / "s.yml"), "x", f"file://{tmp_path}/s", where)
    with pytest.raises(PipelineError, match="remove their files yourself"):
        reset_project(project)


@pytest.mark.parametrize(("text", "expected"), [("true", True), ("false", False)])
def test_a_project_says_whether_every_run_is_made(text: str, expected: bool) -> None:
    project = Project("/shop", "/shop/spark-pipeline.yml", "shop", "", {"dlog.run.always": text})
    assert project.runs_always() is expected


def test_a_word_for_it_that_is_none_is_refused() -> None:
    project = Project("/shop", "/shop/spark-pipeline.yml", "shop", "", {"dlog.run.always": "yes"})
    with pytest.raises(ConfigError, match=r"dlog\.run\.always"):
        project.runs_always()
    assert not Project("/shop", "/shop/spark-pipeline.yml", "shop", "").runs_always()
