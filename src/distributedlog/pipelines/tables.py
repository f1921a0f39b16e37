"""The tables of a pipeline, for those who read them, also while it runs.

The catalog of a pipeline is Hive's with Derby, which lets one process in.  Whoever only reads does not need
it: a table is files, and what has to be known to read them is its place, its format and its columns.  So each
run leaves that in a list, and a reader makes of it tables of its own catalog, which is in memory.

    .dlog/tables.json    {"version": 1, "tables": [{"database", "name", "provider", "location", "schema"}, …]}

The list is replaced as a whole, so a reader finds an old one or a new one.  It is written when a run ends,
and by the first micro-batch of a table that is not in it; what was never written has no files either.

**Which files** belong to a table, Spark's own log beside them says (`_spark_metadata`), which a streaming
table's writer extends by one file for each micro-batch: a query sees whole micro-batches.  It is read again
for every query, for Spark would keep what it once read.

A reader can only read: what it names are views, and Spark writes into none.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from distributedlog.model.errors import PipelineError
from distributedlog.pipelines.durable_files import replace_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERSION: Final = 1
FILE: Final = "tables.json"
FILE_BYTES_MAX: Final = 64 * 1024 * 1024
FILES_DATABASE: Final = "pipeline_files"
"""Where a reader's catalog has the files themselves; people see the views."""


@dataclass(frozen=True, slots=True)
class Table:
    database: str
    name: str
    provider: str
    location: str
    schema: dict[str, Any]


# --- the one who runs --------------------------------------------------------------------------


def save_tables(spark: "SparkSession", directory: str) -> list[Table]:
    """Writes the list anew if it is another."""
    tables = sorted(_catalogued(spark), key=lambda table: (table.database, table.name))
    path = os.path.join(directory, FILE)
    text = json.dumps({"version": VERSION, "tables": [asdict(each) for each in tables]}, indent=1)
    with contextlib.suppress(OSError, UnicodeDecodeError), open(path, encoding="utf-8") as file:
        if file.read(FILE_BYTES_MAX) == text:
            return tables
    replace_file(path, text.encode("utf-8"))
    return tables


def _catalogued(spark: "SparkSession") -> Iterator[Table]:
    """Tables that are files.  The catalog is asked directly: a query for each would take longer than a run
    that finds nothing to do."""
    jvm: Any = spark.sparkContext._jvm
    catalog = spark._jsparkSession.sessionState().catalog().externalCatalog()
    databases = catalog.listDatabases()
    for database in (databases.apply(at) for at in range(databases.size())):
        names = catalog.listTables(database)
        for name in (names.apply(at) for at in range(names.size())):
            table = catalog.getTable(database, name)
            if table.tableType().name() == "VIEW" or table.provider().isEmpty():
                continue
            if table.storage().locationUri().isEmpty():
                continue
            place = jvm.org.apache.hadoop.fs.Path(table.storage().locationUri().get()).toString()
            schema = json.loads(table.schema().json())
            yield Table(str(database), str(name), str(table.provider().get()), str(place), schema)


# --- those who read ----------------------------------------------------------------------------


class TableReader:
    """A pipeline's tables as views of a session whose catalog is in memory."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._path = os.path.join(directory, FILE)
        self._state: tuple[int, int] | None = None
        self._files: dict[tuple[str, str], str] = {}

    def refresh(self, spark: "SparkSession", words: set[str]) -> set[str]:
        """Makes views of what is in the list now; the names that need no database before them, in lower
        case.  What these words name is looked up on disk by the next query."""
        state = self._look()
        if state is None:
            if os.path.isdir(os.path.join(self._directory, "warehouse")):
                raise PipelineError(
                    f"there is no list of tables in {self._directory} yet; dlog pipeline run writes it"
                )
            return set()
        if state != self._state:
            self._register(spark, read_tables(self._path))
            self._state = state
        current = str(spark.catalog.currentDatabase())
        for (_, name), files in self._files.items():
            if name.lower() in words:
                spark.catalog.refreshTable(files)
        return {name.lower() for database, name in self._files if database == current}

    def _look(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return None
        return found.st_mtime_ns, found.st_ino

    def _register(self, spark: "SparkSession", tables: list[Table]) -> None:
        from pyspark.sql.types import StructType

        spark.sql(f"DROP DATABASE IF EXISTS {FILES_DATABASE} CASCADE")
        spark.sql(f"CREATE DATABASE {FILES_DATABASE}")
        before, self._files = self._files, {}
        for number, table in enumerate(tables):
            files = f"{FILES_DATABASE}.table_{number}"
            schema = StructType.fromJson(table.schema)
            spark.catalog.createTable(files, path=table.location, source=table.provider, schema=schema)
            spark.sql(f"CREATE DATABASE IF NOT EXISTS {_quoted(table.database)}")
            spark.sql(f"CREATE OR REPLACE VIEW {_name(table)} AS SELECT * FROM {files}")  # noqa: S608 (ours)
            self._files[table.database, table.name] = files
        for database, name in before.keys() - self._files.keys():
            spark.sql(f"DROP VIEW IF EXISTS {_quoted(database)}.{_quoted(name)}")


def _name(table: Table) -> str:
    return f"{_quoted(table.database)}.{_quoted(table.name)}"


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def list_tables(directory: str) -> list[Table] | None:
    """Returns what the last run has left in a project's directory; None if there was none."""
    path = os.path.join(directory, FILE)
    return read_tables(path) if os.path.exists(path) else None


def read_tables(path: str) -> list[Table]:
    try:
        with open(path, encoding="utf-8") as file:
            saved = json.loads(file.read(FILE_BYTES_MAX))
        if saved["version"] != VERSION:
            raise PipelineError(
                f"{path} is of version {saved['version']}, and this is {VERSION}; update dlog"
            )
        return [
            Table(
                str(each["database"]),
                str(each["name"]),
                str(each["provider"]),
                str(each["location"]),
                dict(each["schema"]),
            )
            for each in saved["tables"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise PipelineError(
            f"{path} is no list of tables ({error}); remove it, and the next run writes it anew"
        ) from error
