"""What a run has to have been for the next one to be left out.  Plans, which only Spark has, and the ends of
topics are given; with real ones it is tests/spark/test_pipeline_loop.py."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from distributedlog.model.errors import BrokerUnreachableError, PipelineError
from distributedlog.pipelines.graph_reader import GraphReader
from distributedlog.pipelines.loop import watch as module
from distributedlog.pipelines.loop.news import REVIEW_SECONDS, FlowReads
from distributedlog.pipelines.loop.watch import NO_RUN, Watch
from distributedlog.pipelines.project import Project, make_project

READER = cast(GraphReader, None)


class Stage:
    def __init__(self, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
        self.definitions = Path(project.directory) / "transformations"
        self.now = 1000.0
        self.reads: tuple[FlowReads, ...] | None = (FlowReads("raw"),)
        self.has_broker = True
        self.resolved = 0
        self.watch = Watch(project, clock=lambda: self.now)
        monkeypatch.setattr(module, "reads_of", self._reads_of)
        monkeypatch.setattr(module, "look_at_ends", self._look_at_ends)

    def _reads_of(self, _: GraphReader) -> tuple[FlowReads, ...]:
        self.resolved += 1
        if self.reads is None:
            raise PipelineError("not resolved")
        return self.reads

    def _look_at_ends(self, _: object) -> dict[object, object]:
        if not self.has_broker:
            raise BrokerUnreachableError("nobody")
        return {}

    def run(self, *, is_whole: bool = True) -> None:
        self.watch.begin()
        self.watch.on_graph(READER)
        self.watch.end(is_whole=is_whole)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    project = make_project(str(tmp_path), "shop", topic="orders", bootstrap="127.0.0.1:1")
    return Stage(project, monkeypatch)


def test_before_the_first_run_one_is_made_and_after_it_none(stage: Stage) -> None:
    assert stage.watch.news() == NO_RUN
    stage.run()
    assert stage.watch.news() is None


def test_after_a_run_that_failed_or_made_tables_anew_one_is_made(stage: Stage) -> None:
    stage.run()
    stage.run(is_whole=False)
    assert stage.watch.news() == NO_RUN


def test_what_is_edited_while_a_run_goes_on_is_news_after_it(stage: Stage) -> None:
    stage.watch.begin()
    stage.watch.on_graph(READER)
    (stage.definitions / "more.sql").write_text("")
    stage.watch.end(is_whole=True)
    assert "more.sql has changed" in (stage.watch.news() or "nothing")


def test_after_a_while_a_run_is_made_all_the_same(stage: Stage) -> None:
    stage.run()
    stage.now += REVIEW_SECONDS - 1
    assert stage.watch.news() is None
    stage.now += 1
    assert stage.watch.news() is not None


def test_without_a_broker_a_run_is_made_that_tells_it(stage: Stage) -> None:
    stage.run()
    stage.has_broker = False
    assert stage.watch.news() == "nobody"
    stage.run()
    stage.has_broker = True
    assert stage.watch.news() == "nobody", "what was there before that run is not known"


def test_what_cannot_be_known_means_a_run(stage: Stage) -> None:
    for reads in (None, (FlowReads("raw", others=("Relation parquet",)),)):
        stage.reads = reads
        stage.run()
        assert stage.watch.news() is not None
    stage.reads = (FlowReads("raw"),)
    (stage.definitions / "clock.py").write_text("import time\n")
    stage.run()
    assert "clock.py uses time" in (stage.watch.news() or "nothing")


def test_words_for_a_time_matter_where_everything_is_computed_anew(stage: Stage) -> None:
    (stage.definitions / "day.sql").write_text("SELECT date 'today'")
    stage.run()
    assert stage.watch.news() is None
    assert stage.reads is not None
    stage.reads = (replace(stage.reads[0], is_streaming=False),)
    (stage.definitions / "day.sql").write_text("SELECT date 'Today'")
    stage.run()
    assert stage.watch.news() is not None


def test_plans_are_read_until_a_run_has_made_their_tables_and_again_for_other_files(stage: Stage) -> None:
    for resolved in (1, 2, 2, 2):
        stage.run()
        assert stage.resolved == resolved
    (stage.definitions / "more.sql").write_text("")
    stage.run()
    assert stage.resolved == 3
