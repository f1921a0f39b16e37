"""The tables of a project compacted, with Spark reading what is merged and writing it again.

| a table                                        | is                                                        |
|------------------------------------------------|-----------------------------------------------------------|
| written by streams, with files to be merged    | compacted                                                 |
| the same, without                              | left: there is nothing to merge                           |
| written as a whole by each run, or not yet     | left: it has no log of streams                            |
| not on this machine's file systems             | left: elsewhere a rename may be no single step            |
| of another format than Parquet and ORC         | left: those alone give back just what was written         |

Spark is asked first which files it would read, and it has to be those that the log names here; rows are
counted on both sides of every merge.  If one of both is not so, the table is left as it is.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from distributedlog.model.errors import ConfigError, DlogError, PipelineError
from distributedlog.model.suggestions import did_you_mean
from distributedlog.pipelines.compaction.metadata_log import local_path, read_entries, valid_batches
from distributedlog.pipelines.compaction.plan import TARGET_BYTES
from distributedlog.pipelines.compaction.replacement import (
    METADATA,
    Candidates,
    find_candidates,
    remove_unfinished,
    replace_files,
    sweep,
)
from distributedlog.pipelines.compaction.streams import FileStream, find_streams
from distributedlog.pipelines.project import Project, local_directory
from distributedlog.pipelines.tables import Table, save_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession

FORMATS: Final = frozenset({"parquet", "orc"})
NOTES: Final = "compaction"
KEEP_SECONDS_DEFAULT: Final = 600.0
NO_LOG: Final = "it has no log of streams with a .compact yet"


@dataclass(frozen=True, slots=True)
class TableCompaction:
    """What was done with a table."""

    table: str
    files_before: int = 0
    files_after: int = 0
    reason: str | None = None
    """Why it was left as it is."""
    error: str | None = None
    """Why it could not be done."""


class Compactor:
    """The compactor of one project, whose lock this process holds, while none of its flows is running."""

    def __init__(
        self,
        project: Project,
        spark: "SparkSession",
        *,
        keep_seconds: float = KEEP_SECONDS_DEFAULT,
        checkpoints: Sequence[str] = (),
        target_bytes: int = TARGET_BYTES,
    ) -> None:
        """`checkpoints`: where streams of others that read the tables have theirs."""
        self._project = project
        self._spark = spark
        self._keep_ms = int(keep_seconds * 1000)
        self._checkpoints = checkpoints
        self._target_bytes = target_bytes
        self._notes = os.path.join(project.state_directory, NOTES)

    def compact(
        self,
        names: Sequence[str] = (),
        *,
        files_min: int = 2,
        on_step: Callable[[str], None] = lambda _: None,
    ) -> list[TableCompaction]:
        """All tables, or those.  `files_min`: tables of which fewer can be merged are left."""
        tables = choose_tables(save_tables(self._spark, self._project.state_directory), names)
        storage = local_directory(self._project, self._project.storage)
        if storage is None:
            raise PipelineError(f"the checkpoints are not on this machine ({self._project.storage})")
        sweep(self._notes, self._keep_ms, _now_ms())
        streams = [each for root in (storage, *self._checkpoints) for each in find_streams(root)]
        return [self._attempt(table, streams, files_min, on_step) for table in tables]

    def _attempt(
        self, table: Table, streams: Sequence[FileStream], files_min: int, on_step: Callable[[str], None]
    ) -> TableCompaction:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        name = f"{table.database}.{table.name}"
        try:
            return self._compact(name, table, streams, files_min, on_step)
        except (DlogError, OSError, PySparkException, Py4JError) as error:
            return TableCompaction(name, error=" ".join(str(error).split())[:1000])

    def _compact(
        self,
        name: str,
        table: Table,
        streams: Sequence[FileStream],
        files_min: int,
        on_step: Callable[[str], None],
    ) -> TableCompaction:
        # The list of tables has places as Hadoop writes them, where a blank is a blank.
        location = local_directory(self._project, table.location)
        if location is None:
            return TableCompaction(name, reason=f"it is not on this machine ({table.location})")
        remove_unfinished(location)
        if table.provider.lower() not in FORMATS:
            return TableCompaction(name, reason=f"its format is {table.provider}")
        candidates = find_candidates(location, streams, self._target_bytes)
        if candidates is None:
            return TableCompaction(name, reason=NO_LOG)
        if candidates.files_merged < max(files_min, 1):
            return TableCompaction(name, candidates.files, candidates.files, "there is nothing to merge")
        self._check_files(table, candidates)
        after = replace_files(candidates, self._merger(table), self._notes, _now_ms(), on_step)
        self._spark.catalog.refreshTable(f"`{table.database}`.`{table.name}`")
        return TableCompaction(name, candidates.files, after)

    def _check_files(self, table: Table, candidates: Candidates) -> None:
        """Spark reads what we think that it reads."""
        from pyspark.sql.types import StructType

        batches = valid_batches(os.path.join(candidates.location, METADATA))
        ours = {local_path(entry["path"]) for batch in batches for entry in read_entries(batch)}
        frame = self._reader(table).schema(StructType.fromJson(table.schema)).load(table.location)
        theirs = {local_path(path) for path in frame.inputFiles()}
        if ours != theirs:
            raise PipelineError(
                f"Spark reads {len(theirs)} files of it, and its log names {len(ours)} as we read it;"
                " nothing was changed"
            )

    def _merger(self, table: Table) -> Callable[[Sequence[str], str], None]:
        def merge_files(paths: Sequence[str], to: str) -> None:
            frame = self._reader(table).load([f"file://{path}" for path in paths])
            expected = frame.count()
            frame.coalesce(1).write.format(table.provider).save(f"file://{to}")
            written = self._reader(table).load(f"file://{to}").count()
            if written != expected:
                raise PipelineError(
                    f"{len(paths)} files have {expected:,} rows, and {written:,} were written;"
                    " nothing was changed"
                )

        return merge_files

    def _reader(self, table: Table) -> "DataFrameReader":
        """Returns a reader of the columns that the files themselves have; one that cannot be read is an
        error, whatever the session is told to pass over.  Paths are taken as they are, without patterns."""
        return self._spark.read.format(table.provider).options(
            mergeSchema="true", ignoreCorruptFiles="false", ignoreMissingFiles="false", __globPaths__="false"
        )


def _now_ms() -> int:
    return int(time.time() * 1000)


def choose_tables(tables: Sequence[Table], names: Sequence[str]) -> list[Table]:
    """Those that are named, each by its name or with its database before it."""
    chosen = []
    for name in names:
        found = [each for each in tables if name in (each.name, f"{each.database}.{each.name}")]
        if not found:
            known = [each.name for each in tables]
            otherwise = f"its tables are: {', '.join(known[:20]) or 'none'}"
            raise ConfigError(f"this pipeline has no table {name}: {did_you_mean(name, known, otherwise)}")
        if len(found) > 1:
            raise ConfigError(f"{name} is in several databases: write DATABASE.{name}")
        chosen += found
    return chosen or list(tables)
