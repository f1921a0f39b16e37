"""Files; topics are in tests/spark/test_pipeline_loop.py."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from distributedlog.model.errors import BrokerUnreachableError, PipelineError
from distributedlog.pipelines.loop import looking
from distributedlog.pipelines.loop.looking import look_at_ends, look_at_files
from distributedlog.pipelines.loop.news import FlowReads as Reads
from distributedlog.pipelines.loop.news import Sight, difference, topics_of
from distributedlog.pipelines.project import Project, make_project
from distributedlog.spark.source.options import parse_stream_options
from tests.ports import free_port


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    return make_project(str(tmp_path), "shop", topic="orders", bootstrap="127.0.0.1:1")


def news(project: Project, happening: Callable[[Path], object]) -> str | None:
    before = look_at_files(project)
    happening(Path(project.directory))
    return difference(Sight(before, {}), Sight(look_at_files(project), {}))


def write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")


@pytest.mark.parametrize(
    "name", ["spark-pipeline.yml", "transformations/orders.py", "transformations/deep/new.sql", "notes.txt"]
)
def test_files_of_the_project_are_news(shop: Project, name: str) -> None:
    assert "has changed" in (news(shop, lambda place: write(place / name)) or "nothing")


def test_so_is_one_of_the_same_size_and_time(shop: Project) -> None:
    def exchange(place: Path) -> None:
        path = place / "transformations" / "orders.py"
        other, before = path.with_name("other"), path.stat()
        other.write_bytes(b"#" * before.st_size)
        os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
        other.rename(path)

    assert "orders.py has changed" in (news(shop, exchange) or "nothing")


@pytest.mark.parametrize("name", [".dlog/history.jsonl", ".git/index", "transformations/__pycache__/a.pyc"])
def test_what_runs_and_tools_leave_is_not(shop: Project, name: str) -> None:
    assert news(shop, lambda place: write(place / name)) is None


def test_nor_are_checkpoints_and_tables_that_the_project_keeps_elsewhere(shop: Project) -> None:
    moved = replace(
        shop,
        storage=f"file://{shop.directory}/checkpoints",
        configuration={**shop.configuration, "spark.sql.warehouse.dir": f"{shop.directory}/tables"},
    )
    assert news(moved, lambda place: write(place / "checkpoints" / "offsets" / "1")) is None
    assert news(moved, lambda place: write(place / "tables" / "orders" / "1")) is None


def test_too_many_files_are_not_looked_at(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "FILES_MAX", 2)
    with pytest.raises(PipelineError, match="more than 2 files"):
        look_at_files(shop)


def test_without_a_broker_nothing_is_known_soon() -> None:
    servers = f"127.0.0.1:{free_port()}"
    options = parse_stream_options({"kafka.bootstrap.servers": servers, "subscribe": "orders"})
    with pytest.raises(BrokerUnreachableError):
        look_at_ends(topics_of((Reads("raw", (options,)),)))
