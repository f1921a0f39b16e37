"""What a pipeline consists of: tables, views, sinks, and the flows between them.  Nothing here has effects.

Names are whole ones (`spark_catalog.default.orders`) for tables, and single words for views and sinks; people
name a table by any end of its name that is its alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from distributedlog.model.errors import ConfigError
from distributedlog.model.suggestions import did_you_mean
from distributedlog.pipelines.failures import Location

NAMES_SHOWN_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class FlowNode:
    name: str
    target: str
    inputs: tuple[str, ...] = ()
    location: Location | None = None
    columns: tuple[tuple[str, str], ...] = ()
    """The (name, type) of each column that it writes."""


@dataclass(frozen=True, slots=True)
class DataflowGraph:
    flows: tuple[FlowNode, ...]
    """Each behind those that it reads."""
    tables: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
    unresolved: tuple[str, ...] = ()
    """Flows that could not be resolved."""

    def table(self, name: str) -> str:
        """The whole name of a table; `ConfigError` if there is none, or not just one."""
        found = [each for each in self.tables if each == name or each.endswith(f".{name}")]
        if len(found) == 1:
            return found[0]
        if found:
            raise ConfigError(f"{name} may be any of {', '.join(found)}: write more of its name")
        if name in self.views:
            raise ConfigError(f"{name} is a view, of which nothing is kept: name the tables that read it")
        if name in self.sinks:
            raise ConfigError(f"{name} is a sink: what it has sent cannot be taken back")
        names = [short(each) for each in self.tables]
        listed = ", ".join(names[:NAMES_SHOWN_MAX]) or "none"
        otherwise = f"its tables are: {listed}"
        raise ConfigError(f"this pipeline has no table {name}: {did_you_mean(name, names, otherwise)}")

    def downstream(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those, and all tables and sinks that read them, also through views and other tables."""
        reached = set(names)
        while True:
            more = {flow.target for flow in self.flows if reached.intersection(flow.inputs)} - reached
            if not more:
                return tuple(each for each in (*self.tables, *self.sinks) if each in reached)
            reached |= more


def short(name: str) -> str:
    return name.rsplit(".", 1)[-1]


@dataclass(frozen=True, slots=True)
class TypeChange:
    table: str
    column: str
    before: str
    after: str
    location: Location | None = field(default=None)

    def __str__(self) -> str:
        where = "" if self.location is None else f" ({self.location})"
        return (
            f"table {short(self.table)}: column {self.column} is {self.before} in the table, and {self.after}"
            f" in its definition{where}; a table keeps the types of its columns: cast it, give it another"
            f" name, or make the table anew with --full-refresh {short(self.table)}"
        )


def type_changes(graph: DataflowGraph, present: Mapping[str, Mapping[str, str]]) -> tuple[TypeChange, ...]:
    """Columns that a flow writes with another type than in the table.  `present`: table → column → type."""
    return tuple(
        TypeChange(flow.target, column, present[flow.target][column], kind, flow.location)
        for flow in graph.flows
        if flow.target in present
        for column, kind in flow.columns
        if present[flow.target].get(column, kind) != kind
    )
