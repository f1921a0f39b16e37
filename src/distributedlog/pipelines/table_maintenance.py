"""What a runner does beside its runs, so that a pipeline's tables can be read and stay readable.

| when                             | what                                                              |
|----------------------------------|-------------------------------------------------------------------|
| a flow runs for the first time   | the list of tables is written (`tables`): its table is there now  |
| a run has ended                  | the same; columns may have changed                                |
| a run has completed              | tables of many small files are compacted, if that was asked for   |

It is done by the thread that runs the pipeline, between what Spark tells of the run.  A run does not fail for
it: what goes wrong is said in the log, and tried again after the next run.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from distributedlog.pipelines.compaction.compactor import Compactor, TableCompaction
from distributedlog.pipelines.project import Project
from distributedlog.pipelines.tables import save_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG: Final = logging.getLogger(__name__)


class TableMaintenance:
    """The care for the tables of one project, in one session."""

    def __init__(
        self,
        project: Project,
        spark: "SparkSession",
        *,
        compact_files: int | None = None,
        on_compaction: Callable[[TableCompaction], None] = lambda _: None,
    ) -> None:
        """`compact_files`: how many must be there to be merged; None: tables are not compacted."""
        self._project = project
        self._spark = spark
        self._compact_files = compact_files
        self._on_compaction = on_compaction
        self._flows: set[str] = set()

    def on_flow(self, flow: str) -> None:
        """A flow has begun to run."""
        if flow not in self._flows:
            self._flows.add(flow)
            self._attempt("the list of tables was not written", self._save_tables)

    def on_run(self, *, is_completed: bool) -> None:
        """A run has ended.  After one that failed Spark may not have stopped all flows yet."""
        self._attempt("the list of tables was not written", self._save_tables)
        if is_completed and self._compact_files is not None:
            self._attempt("tables were not compacted", self._compact)

    def _compact(self) -> None:
        for done in Compactor(self._project, self._spark).compact(files_min=self._compact_files or 0):
            if done.error is not None:
                LOG.warning("table %s was not compacted: %s", done.table, done.error)
            elif done.reason is None:
                self._on_compaction(done)

    def _save_tables(self) -> None:
        save_tables(self._spark, self._project.state_directory)

    def _attempt(self, failure: str, what: Callable[[], None]) -> None:
        try:
            what()
        except Exception as error:
            LOG.warning("%s: %s", failure, " ".join(str(error).split())[:1000])
