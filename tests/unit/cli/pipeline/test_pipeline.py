"""`dlog pipeline` without Spark: projects made, looked at and reset.  Runs: `tests/spark/test_pipelines`."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from distributedlog.cli.main import root
from distributedlog.cli.pipeline.run import spell_progress
from distributedlog.pipelines.history import History
from distributedlog.pipelines.project import find_project
from distributedlog.pipelines.runner import RunProgress
from tests.unit.cli.conftest import Dlog

COMMANDS = ["init", "run", "validate", "status", "health", "compact", "reset", "prepare"]


@pytest.fixture
def shop(dlog: Dlog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert dlog("pipeline", "init", "shop", "--bootstrap", "127.0.0.1:1").code == 0
    return tmp_path / "shop"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(command: str) -> None:
    shown = CliRunner().invoke(root, ["pipeline", command, "-h"])
    assert shown.exit_code == 0
    assert f"Usage: dlog pipeline {command}" in shown.output
    assert f"  dlog pipeline {command}" in shown.output


def test_a_new_project_has_never_run_and_nothing_is_wrong_with_it(dlog: Dlog, shop: Path) -> None:
    outcome = dlog("pipeline", "status", "-p", shop, "-o", "json")
    assert outcome.code == 0
    (row,) = outcome.rows
    assert (row["name"], row["state"], row["runs"], row["lag"]) == ("shop", "never ran", 0, None)


def test_a_project_is_found_from_inside_of_it(
    dlog: Dlog, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = shop / "deeper"
    inside.mkdir()
    monkeypatch.chdir(inside)
    assert dlog("pipeline", "status").out.startswith("shop: never ran")


def test_a_run_that_failed_is_told_and_is_the_exit_code(dlog: Dlog, shop: Path) -> None:
    history = History(find_project(str(shop)).history_path)
    history.note("run", run=1, state="started")
    history.note("run", run=1, state="failed", error="no room")
    outcome = dlog("pipeline", "status", "-p", shop)
    assert outcome.code == 1
    assert "failed" in outcome.out
    assert "last error: no room" in outcome.out


def test_a_pipeline_that_has_nothing_to_do_says_so(dlog: Dlog, shop: Path) -> None:
    history = History(find_project(str(shop)).history_path)
    history.note("run", run=1, state="started")
    ended = history.note("run", run=1, state="completed", milliseconds=9, rows=0)
    assert "nothing new" not in dlog("pipeline", "status", "-p", shop).out
    while (looked := history.note("idle", run=1))["time_ms"] == ended["time_ms"]:
        pass
    assert "completed, 1 runs" in (out := dlog("pipeline", "status", "-p", shop).out)
    assert "nothing new since" in out
    (row,) = dlog("pipeline", "status", "-p", shop, "-o", "json").rows
    assert (row["is_idle"], row["looked_ms"]) == (True, looked["time_ms"])
    assert "well: completed, 1 runs, nothing new since" in dlog("pipeline", "health", shop).out


def test_the_lag_is_unknown_where_nobody_can_be_asked(dlog: Dlog, shop: Path) -> None:
    history = History(find_project(str(shop)).history_path)
    history.note("run", run=1, state="started")
    history.note(
        "batch", run=1, flow="raw", batch=0, milliseconds=5, rows=2, rows_total=2,
        positions={"orders": {"0": 2}},
    )  # fmt: skip
    history.note("run", run=1, state="completed", milliseconds=9, rows=2)
    outcome = dlog("pipeline", "status", "-p", shop, "-o", "json")
    assert outcome.code == 0
    assert "the lag is not known" in outcome.err
    assert [row["rows"] for row in outcome.of_type("flow")] == [2]


def test_a_project_without_tables_is_not_compacted(dlog: Dlog, shop: Path) -> None:
    outcome = dlog("pipeline", "compact", "-p", shop)
    assert outcome.code == 1
    assert "dlog pipeline run makes them" in outcome.err


def test_a_table_that_is_not_there_is_told_before_spark_is_started(dlog: Dlog, shop: Path) -> None:
    (shop / ".dlog" / "metastore").mkdir()
    table = {"database": "default", "name": "orders", "provider": "parquet", "location": "", "schema": {}}
    (shop / ".dlog" / "tables.json").write_text(json.dumps({"version": 1, "tables": [table]}))
    outcome = dlog("pipeline", "compact", "oders", "-p", shop)
    assert outcome.code == 2
    assert "did you mean orders?" in outcome.err
    assert not (shop / ".dlog" / "spark.log").exists()


@pytest.mark.parametrize("value", ["many", "1", "-5", ""])
def test_a_number_of_files_that_is_none_is_refused(dlog: Dlog, shop: Path, value: str) -> None:
    spec = shop / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace('# dlog.compact.files: "50"', f'dlog.compact.files: "{value}"'))
    outcome = dlog("pipeline", "run", "-p", shop)
    assert outcome.code == 2
    assert "dlog.compact.files" in outcome.err


def test_a_name_that_is_taken_is_refused_and_what_is_there_stays(dlog: Dlog, shop: Path) -> None:
    (shop / "mine").write_text("mine")
    outcome = dlog("pipeline", "init", "shop")
    assert outcome.code == 1
    assert "is there already" in outcome.err
    assert (shop / "mine").read_text() == "mine"


def test_where_there_is_no_project_that_is_said(dlog: Dlog, tmp_path: Path) -> None:
    outcome = dlog("pipeline", "status", "-p", tmp_path)
    assert outcome.code == 1
    assert "dlog pipeline init" in outcome.err


@pytest.mark.parametrize(
    "arguments", [["--topic", "a/b"], ["--bootstrap", "a:b"]], ids=["topic", "bootstrap"]
)
def test_a_project_is_not_made_of_wrong_values(
    dlog: Dlog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert dlog("pipeline", "init", "shop", *arguments).code == 2
    assert not (tmp_path / "shop").exists()


def test_a_reset_needs_somebody_who_means_it(dlog: Dlog, shop: Path) -> None:
    project = find_project(str(shop))
    History(project.history_path).note("run", run=1, state="started")
    assert dlog("pipeline", "reset", "-p", shop).code == 2
    assert Path(project.history_path).exists()
    assert dlog("pipeline", "reset", "-p", shop, "--yes").code == 0
    assert not Path(project.history_path).exists()


def test_health_is_an_exit_code_for_all_projects_that_are_named(dlog: Dlog, shop: Path) -> None:
    outcome = dlog("pipeline", "health", shop, "-o", "json")
    assert outcome.code == 1
    assert outcome.rows[0]["problems"] == ["it has never run"]
    history = History(find_project(str(shop)).history_path)
    history.note("run", run=1, state="started")
    history.note("run", run=1, state="completed", milliseconds=5)
    assert dlog("pipeline", "health", shop).out == "shop: well: completed, 1 runs\n"
    assert dlog("pipeline", "init", "other", "-b", "127.0.0.1:1").code == 0
    both = dlog("pipeline", "health", shop, shop.parent / "other")
    assert (both.code, both.out.splitlines()[1]) == (1, "other: it has never run")
    assert dlog("pipeline", "health", shop, "--silent-max", "soon").code == 2
    assert dlog("pipeline", "health", shop, "--lag-max", "0").code == 1, "nobody can be asked for its lag"


def test_what_goes_on_is_told_in_one_line() -> None:
    states = {"raw": "completed", "orders": "running", "minutes": "queued"}
    progress = RunProgress(
        is_started=True, is_running=True, run=3, rows=12_000, batches=4, flow_states=states, lag=7
    )
    told = "run 3; 1 of 3 flows done; 12,000 rows in 4 batches; 7 records behind; orders"
    assert spell_progress(progress) == told
    assert spell_progress(replace(progress, is_running=False)) == "run 3 is over; waiting for the next"
    idle = replace(progress, is_running=False, is_idle=True)
    assert spell_progress(idle) == "nothing new since run 3"
    assert spell_progress(replace(progress, is_started=False)) == "starting Spark"


def test_a_new_project_says_if_its_topics_could_not_be_made(
    dlog: Dlog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = dlog("pipeline", "init", "shop", "--bootstrap", "127.0.0.1:1")
    assert outcome.code == 0
    assert "no topic was made" in outcome.err
    assert "no topic was made" not in dlog("pipeline", "init", "quiet", "--no-topics").err


def test_an_unknown_table_is_refused_before_anything_is_started(dlog: Dlog, shop: Path) -> None:
    """No broker answers there: whoever gets so far ends with exit code 3."""
    outcome = dlog("pipeline", "run", "-p", shop, "--full-refresh", "oders")
    assert outcome.code == 2
    assert "this pipeline has no table oders: did you mean orders" in outcome.err
    assert not (shop / ".dlog" / "spark.log").exists()
