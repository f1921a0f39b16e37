"""The Python that Spark's workers are."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from distributedlog.spark.session.python import launcher_path, make_launcher, name_workers_python


def spark_home() -> str:
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    return os.path.dirname(spark.origin)


def told_by(launcher: str, code: str, path: str) -> list[str]:
    told = subprocess.run(
        [launcher, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    return told.stdout.splitlines()


def test_workers_load_pyspark_compiled_and_keep_the_rest_of_the_path(tmp_path: Path) -> None:
    """Spark's own zip stands first on the path that it gives them."""
    launcher = make_launcher({"XDG_CACHE_HOME": str(tmp_path / "a cache")})
    assert launcher is not None
    mine = tmp_path / "with a blank *"
    mine.mkdir()
    (mine / "own.py").write_text("")
    home = spark_home()
    path = f"{home}/python/lib/pyspark.zip:{home}/python/lib/py4j-src.zip:{home}/jars/x.jar:{mine}"
    code = "import own, pyspark, py4j, sys; print(own.__file__, pyspark.__file__, py4j.__file__, sep='\\n')"
    places = told_by(launcher, f"{code}; print(sys.executable)", path)
    assert places[0] == str(mine / "own.py")
    assert places[1] == f"{home}/__init__.py"
    assert ".zip" not in places[2]
    assert places[3] == sys.executable
    assert told_by(launcher, "print('alone')", "") == ["alone"]


def test_what_the_environment_names_stays(tmp_path: Path) -> None:
    cache = {"XDG_CACHE_HOME": str(tmp_path)}
    environment = {**cache, "PYSPARK_PYTHON": "/opt/python"}
    name_workers_python(environment, is_local=True)
    assert environment["PYSPARK_PYTHON"] == "/opt/python"
    assert launcher_path({**cache, "SPARK_HOME": "/opt/spark"}) is None


def test_a_cluster_is_told_the_python_and_not_the_launcher(tmp_path: Path) -> None:
    """It is told so also by a process that had a session on this machine before."""
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    name_workers_python(environment, is_local=True)
    assert environment["PYSPARK_PYTHON"] == launcher_path(environment)
    name_workers_python(environment, is_local=False)
    assert environment["PYSPARK_PYTHON"] == environment["PYSPARK_DRIVER_PYTHON"] == sys.executable


def test_without_a_place_for_it_there_is_no_launcher(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    environment = {"XDG_CACHE_HOME": str(tmp_path / "file")}
    name_workers_python(environment, is_local=True)
    assert environment["PYSPARK_PYTHON"] == sys.executable


def test_a_launcher_that_may_not_be_run_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is so on a file system that is mounted so; the system says it, whoever asks."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert make_launcher({"XDG_CACHE_HOME": str(tmp_path)}) is None
