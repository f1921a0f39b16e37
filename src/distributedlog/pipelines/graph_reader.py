"""The graph of a pipeline whose definitions were registered, read from Spark.

Connect tells its clients nothing of it.  The server is in the same JVM as the session, though, and keeps the
graph with the client's session: it is read from there, and resolved as a run would resolve it, which asks
sources for their columns and reads no rows.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from distributedlog.model.errors import PipelineError
from distributedlog.pipelines.failures import Location
from distributedlog.pipelines.graph import DataflowGraph, FlowNode
from distributedlog.spark.session.connect import SERVICE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession

SESSION_KEY: Final = "org.apache.spark.sql.connect.service.SessionKey"
TREE_PATTERN: Final = "org.apache.spark.sql.catalyst.trees.TreePattern"
CLASSIC_SESSION: Final = "org.apache.spark.sql.classic.SparkSession"


@dataclass(frozen=True, slots=True)
class FlowPlan:
    name: str
    kind: str
    """Spark's class for flows of its kind."""
    plan: Any
    """Java's: the plan, resolved."""


class GraphReader:
    """A reader of one client's graph, as it is when it is read."""

    def __init__(
        self, spark: "SparkSession", client: "ConnectSession", graph_id: str, directory: str
    ) -> None:
        """Files are named as seen from `directory`."""
        self._root = f"{Path(directory).resolve()}{os.sep}"
        self._spark = spark
        self._client = client
        self._graph_id = graph_id
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        self._jvm: Any = jvm

    def locations(self) -> dict[str, Location]:
        """Returns where each flow is defined, by its whole name; nothing is resolved for it."""
        try:
            flows = self._registered().flows()
            return {_name(flow.identifier()): self._location(flow) for flow in each_of(flows)}
        except Exception:  # what is told without it is enough
            return {}

    def resolved(self) -> DataflowGraph:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]

        try:
            return self._read(self._resolved())
        except Py4JError as error:
            raise PipelineError(f"this Spark does not tell what the pipeline consists of: {error}") from error

    def plans(self) -> list[FlowPlan]:
        """Returns the plans of all flows, also of views; each holds those of the views that it reads."""
        graph = self._resolved()
        if unresolved := [_name(each.identifier()) for each in each_of(graph.resolutionFailedFlows())]:
            raise PipelineError(f"not resolved: {', '.join(unresolved)}")
        return [
            FlowPlan(
                _name(flow.identifier()),
                str(flow.getClass().getSimpleName()),
                flow.df().queryExecution().analyzed(),
            )
            for flow in each_of(graph.resolvedFlows())
        ]

    def pattern(self, name: str) -> Any:
        """Returns one of Spark's names for what plans may contain."""
        return getattr(_class(self._jvm, TREE_PATTERN), name)()

    def columns_present(self, tables: Iterable[str]) -> dict[str, dict[str, str]]:
        """Returns table → column → type, of those that are there already."""
        session = self._holder().session()
        return {
            name: dict(_columns(session.table(name).schema()))
            for name in tables
            if session.catalog().tableExists(name)
        }

    # --- Java's side ---------------------------------------------------------------------------

    def _holder(self) -> Any:
        service = self._jvm.java.lang.Class.forName(SERVICE).getField("MODULE$").get(None)
        key = _class(self._jvm, SESSION_KEY)(
            self._client.client._user_id or "", self._client.client._session_id
        )
        return service.sessionManager().getIsolatedSessionIfPresent(key).get()

    def _registered(self) -> Any:
        registry = self._holder().dataflowGraphRegistry()
        return registry.getDataflowGraphOrThrow(self._graph_id).toDataflowGraph()

    def _resolved(self) -> Any:
        """Resolves the graph, for which the client's session has to be the active one of the thread."""
        sessions = _class(self._jvm, CLASSIC_SESSION)
        before = sessions.getActiveSession()
        sessions.setActiveSession(self._holder().session())
        try:
            return self._resolve(self._registered())
        finally:
            if before.isDefined():
                sessions.setActiveSession(before.get())
            else:
                sessions.clearActiveSession()

    def _resolve(self, graph: Any) -> Any:
        from py4j.protocol import Py4JError, Py4JJavaError

        is_case_sensitive = self._spark.conf.get("spark.sql.caseSensitive") == "true"
        try:
            return graph.resolve(is_case_sensitive)
        except Py4JJavaError:
            raise
        except Py4JError:  # Spark 4.2 looks at the setting itself
            return graph.resolve()

    def _location(self, element: Any) -> Location:
        origin = element.origin()
        file = str(origin.filePath().get()) if origin.filePath().isDefined() else "?"
        line = int(origin.line().get()) if origin.line().isDefined() else None
        return Location(file.removeprefix(self._root), line)

    def _read(self, graph: Any) -> DataflowGraph:
        flows = []
        for flow in each_of(graph.resolvedFlows()):
            inputs = flow.inputs().toSeq()
            flows.append(
                FlowNode(
                    _name(flow.identifier()),
                    _name(flow.destinationIdentifier()),
                    tuple(sorted(_name(each) for each in each_of(inputs))),
                    self._location(flow),
                    _columns(flow.df().schema()),
                )
            )
        names = [
            tuple(_name(each.identifier()) for each in each_of(part))
            for part in (graph.tables(), graph.views(), graph.sinks(), graph.resolutionFailedFlows())
        ]
        return DataflowGraph(tuple(flows), *names)


def _class(jvm: Any, name: str) -> Any:
    found = jvm
    for part in name.split("."):
        found = getattr(found, part)
    return found


def each_of(sequence: Any) -> Any:
    """Iterates over a sequence of Scala's."""
    return (sequence.apply(at) for at in range(sequence.size()))


def _name(identifier: Any) -> str:
    return str(identifier.unquotedString())


def _columns(schema: Any) -> tuple[tuple[str, str], ...]:
    return tuple((str(each.name()), str(each.dataType().sql())) for each in schema.fields())
