"""What is remembered of the last run, to know whether the next one may find anything new.

| when                                     | what                                                            |
|------------------------------------------|-----------------------------------------------------------------|
| before the definitions are read          | the files are looked at                                         |
| the graph is there, nothing is run yet   | its plans say what is read; the ends of those topics are asked  |
| the run has completed                    | what was seen before it has been read: it is believed           |
| instead of the next run                  | files and ends are looked at again, and compared                |

Whatever cannot be known or asked, or goes wrong here, means that the next run is made.
"""

import time
from collections.abc import Callable, Mapping
from typing import Final

from distributedlog.model.errors import DlogError
from distributedlog.pipelines.graph_reader import GraphReader
from distributedlog.pipelines.loop.looking import look_at_ends, look_at_files
from distributedlog.pipelines.loop.news import (
    REVIEW_SECONDS,
    FlowReads,
    Sight,
    Stamp,
    difference,
    topics_of,
    unknowable,
)
from distributedlog.pipelines.loop.plans import reads_of
from distributedlog.pipelines.loop.texts import depends_on, names_a_moment
from distributedlog.pipelines.project import Project
from distributedlog.pipelines.written_names import definition_texts

NO_RUN: Final = "no run has completed yet"


class Watch:
    """The memory of one project's runs, in the process that makes them."""

    def __init__(self, project: Project, clock: Callable[[], float] = time.monotonic) -> None:
        self._project = project
        self._clock = clock
        self._files: Mapping[str, Stamp] | None = None
        self._texts: Mapping[str, str] = {}
        self._reads: tuple[FlowReads, ...] | None = None
        """Once they are sure to stay as they are, while the files do."""
        self._files_completed: Mapping[str, Stamp] | None = None
        """Those with which the last run completed."""
        self._seen: Sight | None = None
        """What was there before the run that is going on."""
        self._read: Sight | None = None
        """What was there before the last run, which has completed."""
        self._why = NO_RUN
        self._begun = 0.0

    def news(self) -> str | None:
        """Returns why a run has to be made; None if it would find nothing new."""
        if self._read is None:
            return self._why
        if self._clock() - self._begun >= REVIEW_SECONDS:
            return "the last run was long ago"
        try:
            now = Sight(look_at_files(self._project), look_at_ends(self._read.ends))
        except (DlogError, OSError) as error:
            return str(error)
        return difference(self._read, now)

    def begin(self) -> None:
        """A run is about to begin."""
        self._begun = self._clock()
        self._read = self._seen = self._files = None
        try:
            self._files = look_at_files(self._project)
            self._texts = definition_texts(self._project)
        except (DlogError, OSError) as error:
            self._why = str(error)

    def on_graph(self, reader: GraphReader) -> None:
        """The definitions have been read, and nothing has been run yet."""
        if self._files is None:
            return
        try:
            self._why = self._doubt(reader, self._files)
        except (DlogError, OSError) as error:
            self._why = str(error)

    def end(self, *, is_whole: bool) -> None:
        """The run has ended; `is_whole` if it completed and was of all tables as they are."""
        self._read = self._seen if is_whole else None
        self._files_completed = self._files if is_whole else None
        if not is_whole:
            self._why = NO_RUN

    def _doubt(self, reader: GraphReader, files: Mapping[str, Stamp]) -> str:
        """Sees what is there; or returns why that cannot be known."""
        if elsewhere := self._texts.keys() - files.keys():
            return f"{min(elsewhere)} is not looked at"
        if (more := depends_on(self._texts)) is not None:
            return more
        reads = self._reads_of(reader, files)
        if (why := unknowable(reads)) is not None:
            return why
        if names_a_moment(self._texts) and not all(each.is_streaming for each in reads):
            return "a definition may name a moment"
        self._seen = Sight(files, look_at_ends(topics_of(reads)))
        return NO_RUN

    def _reads_of(self, reader: GraphReader, files: Mapping[str, Stamp]) -> tuple[FlowReads, ...]:
        """A plan may name a table as it is, once a run has made it (`withColumn` does): what is read from
        plans after a completed run holds for the next ones."""
        if files != self._files_completed:
            self._reads = None
            return reads_of(reader)
        if self._reads is None:
            self._reads = reads_of(reader)
        return self._reads
