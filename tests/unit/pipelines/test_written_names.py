"""Names read from the text of definitions: believed where they are plain, and nowhere else."""

from pathlib import Path

import pytest

from distributedlog.model.errors import ConfigError
from distributedlog.pipelines.project import Project, make_project
from distributedlog.pipelines.written_names import check_tables, definition_texts, read_written

HEAD = "from pyspark import pipelines as dp\nfrom pyspark.sql import functions as F\nfrom shop import make\n"
TABLE = "@dp.table\ndef orders(): return spark.table('x')\n"


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    return make_project(str(tmp_path), "shop", topic="orders", bootstrap="127.0.0.1:1")


def test_the_project_that_init_writes_names_all_plainly(shop: Project) -> None:
    written = read_written(definition_texts(shop))
    assert written is not None
    assert sorted(written.tables) == ["orders", "orders_per_minute", "orders_raw"]
    assert written.views == ("orders_parsed",)
    assert written.sinks == ("dead_letters", "per_minute")


def test_a_name_that_is_not_there_is_refused_and_one_that_is_passes(shop: Project) -> None:
    check_tables(shop, [])
    check_tables(shop, ["orders", "spark_catalog.default.orders_per_minute"])
    with pytest.raises(ConfigError, match="no table oders: did you mean orders"):
        check_tables(shop, ["orders", "oders"])
    with pytest.raises(ConfigError, match="orders_parsed is a view"):
        check_tables(shop, ["orders_parsed"])


def test_what_cannot_be_read_is_left_to_spark(shop: Project) -> None:
    (Path(shop.directory) / "transformations" / "more.py").write_text("this is no Python")
    check_tables(shop, ["oders"])


@pytest.mark.parametrize(
    ("python", "names"),
    [
        (TABLE, ["orders"]),
        ('@dp.materialized_view(name="a.total")\ndef _(): return 1\n', ["a.total"]),
        ('@dp.table(comment="x")\ndef orders(): return 1\n', ["orders"]),
        ('dp.create_streaming_table("late")\n', ["late"]),
        ('dp.create_streaming_table(name="late", comment="c")\n', ["late"]),
        (TABLE + 'X = [F.lit(1), str(2), "a".upper(), spark.conf.get("a").split()[0]]\n', ["orders"]),
        (TABLE + 'dp.create_auto_cdc_flow(target="orders", source="s", keys=["k"])\n', ["orders"]),
        (TABLE + '@dp.append_flow(target="orders")\ndef more(): return 1\n', ["orders"]),
    ],
)
def test_plain_python(python: str, names: list[str]) -> None:
    written = read_written({"a.py": HEAD + python})
    assert written is not None
    assert list(written.tables) == names


@pytest.mark.parametrize(
    "python",
    [
        'for each in "ab":\n    dp.create_streaming_table(each)\n',
        "dp.create_streaming_table(f'orders_{1}')\n",
        "@dp.table(name=NAME)\ndef orders(): return 1\n",
        "@dp.table(**how)\ndef orders(): return 1\n",
        "make(dp)\n",
        "make('orders_no')\n",
        "tables = [make(each) for each in 'ab']\n",
        "tables = make.all('ab')\n",
        "tables = list(map(make, 'ab'))[0]()\nmake()\n",
        "@make\ndef orders_no(): return 1\n",
        "def later():\n    dp.create_streaming_table('a')\n",
        "x = dp.create_streaming_table\n",
        "class Tables:\n    dp.create_streaming_table('a')\n",
        "if spark:\n    dp.create_streaming_table('a')\n",
        "dp.something_new('a')\n",
        "from pyspark.pipelines import table\n",
        "import pyspark.pipelines\n",
        "import mine\nmine.make()\n",
    ],
)
def test_python_that_may_make_other_tables_is_not_believed(python: str) -> None:
    assert read_written({"a.py": HEAD + TABLE}) is not None
    assert read_written({"a.py": HEAD + TABLE + python}) is None


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("CREATE STREAMING TABLE a AS SELECT ';' AS x FROM STREAM b", ["a"]),
        ("create or refresh materialized view `x`.`of b` as select 1; SET a=1;", ["x.of b"]),
        ("-- CREATE STREAMING TABLE no\n/* ; */ CREATE STREAMING TABLE IF NOT EXISTS c;", ["c"]),
        ("CREATE STREAMING TABLE t; CREATE FLOW f AS INSERT INTO t BY NAME SELECT 1", ["t"]),
        ("CREATE STREAMING TABLE t; CREATE TEMPORARY VIEW v AS SELECT 1", ["t"]),
    ],
)
def test_plain_sql(sql: str, names: list[str]) -> None:
    written = read_written({"a.sql": sql})
    assert written is not None
    assert list(written.tables) == names


@pytest.mark.parametrize("sql", ["", "SELECT 1", "CREATE STREAMING TABLE t; CREATE TABLE u (a INT)"])
def test_other_sql_is_not_believed(sql: str) -> None:
    assert read_written({"a.sql": sql}) is None
    assert read_written({}) is None
    assert read_written({"a.txt": "?"}) is None
