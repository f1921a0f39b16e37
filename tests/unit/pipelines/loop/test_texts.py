import pytest

from distributedlog.pipelines.loop.texts import depends_on, names_a_moment
from distributedlog.pipelines.template import files_of

NEW = {
    path: text
    for path, text in files_of("shop", "orders", "127.0.0.1:1", "file:///tmp/storage").items()
    if path.startswith("transformations/")
}


def test_what_a_new_project_has_depends_on_nothing_else() -> None:
    assert depends_on(NEW) is None
    assert not names_a_moment(NEW)


@pytest.mark.parametrize(
    "text",
    [
        "import datetime",
        "from datetime import date",
        "import pyspark.sql.functions as F, os",
        "from pyspark import SparkFiles",
        "from . import tables",
        "from helpers import tables",
        "import importlib",
        "names = open('/etc/tables').read().split()",
        "exec('import time')",
        "time = __import__('time')",
        "clock = spark.__class__.__subclasses__()",
        "names = [row.name for row in spark.read.table('names').collect()]",
        "def (",
    ],
)
def test_a_definition_that_may_look_elsewhere_is_not_believed(text: str) -> None:
    assert "more.py" in (depends_on({**NEW, "more.py": text}) or "nothing")


@pytest.mark.parametrize(
    "text",
    [
        "from __future__ import annotations",
        "from pyspark.sql import functions as F",
        "import json, re\nPATTERN = re.compile('a')",
        "from collections.abc import Iterator",
        "from distributedlog.spark import by_target_partition",
    ],
)
def test_what_only_computes_is(text: str) -> None:
    assert depends_on({**NEW, "more.py": text}) is None


def test_without_definitions_or_with_others_nothing_is_known() -> None:
    assert depends_on({}) is not None
    assert depends_on({"notes.txt": ""}) is not None


@pytest.mark.parametrize("text", ["SELECT date 'today'", "SELECT TIMESTAMP ' Now'", 'F.lit("yesterday")'])
def test_words_for_a_time_are_found(text: str) -> None:
    assert names_a_moment({"a.sql": text})
