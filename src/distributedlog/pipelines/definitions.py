"""A pipeline's definitions, read and registered with Spark; and which topics they name.

Spark's own registry is told everything as always.  What goes by is looked at: a flow's plan says which topics
it reads and with which options, a sink's options where it writes.  So a topic that is not there, or a cluster
that nobody answers for, is told before a run begins, instead of after Spark's and the client's timeout.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.pipelines import cli
from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
from pyspark.sql.connect.session import SparkSession as ConnectSession

from distributedlog.model.errors import ConfigError
from distributedlog.spark.source.options import ReadOptions, parse_batch_options, parse_stream_options

FORMAT: Final = "dlog"
READ: Final = "spark.connect.Read"


@dataclass(frozen=True, slots=True)
class TopicSource:
    """What one flow reads of a cluster."""

    flow: str
    options: ReadOptions


@dataclass(frozen=True, slots=True)
class TopicSink:
    name: str
    options: Mapping[str, str]

    @property
    def topic(self) -> str | None:
        """The topic; None if the rows say it."""
        return self.options.get("topic")


@dataclass(slots=True)
class Definitions:
    sources: list[TopicSource] = field(default_factory=list)
    sinks: list[TopicSink] = field(default_factory=list)
    sql: dict[str, str] = field(default_factory=dict)
    """Path in the project → text."""
    sql_at: str | None = None
    """The file of SQL that is being registered."""


def register(
    client: ConnectSession, graph_id: str, spec_path: Path, spec: cli.PipelineSpec, found: Definitions
) -> None:
    """Reads the definitions; what they hold is put into `found` as it is met."""
    registry = _Registry(client, graph_id, found)
    cli.register_definitions(spec_path, registry, spec, client, graph_id)  # type: ignore[arg-type]


class _Registry(SparkConnectGraphElementRegistry):
    def __init__(self, client: ConnectSession, graph_id: str, found: Definitions) -> None:
        super().__init__(client, graph_id)  # type: ignore[arg-type]
        self._found = found
        self._client = _Overheard(self._client, found)

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        self._found.sql_at = str(file_path)
        self._found.sql[str(file_path)] = sql_text
        super().register_sql(sql_text, file_path)
        self._found.sql_at = None


class _Overheard:
    """Connect's client, whose commands are looked at on their way."""

    def __init__(self, client: Any, found: Definitions) -> None:
        self._client = client
        self._found = found

    def execute_command(self, command: Any) -> Any:
        defined = command.pipeline_command
        if defined.HasField("define_flow"):
            flow = defined.define_flow
            self._found.sources += sources_of(flow.flow_name, flow.relation_flow_details.relation)
        elif defined.HasField("define_output") and defined.define_output.sink_details.format == FORMAT:
            output = defined.define_output
            self._found.sinks.append(TopicSink(output.output_name, dict(output.sink_details.options)))
        return self._client.execute_command(command)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def sources_of(flow: str, relation: Any) -> list[TopicSource]:
    """Returns what a plan reads of topics.  Options that are wrong are Spark's to tell, with the flow's
    name."""
    found = []
    for read in _reads(relation):
        if read.data_source.format != FORMAT or "segments" in read.data_source.options:
            continue
        options = dict(read.data_source.options)
        try:
            parsed = parse_stream_options(options) if read.is_streaming else parse_batch_options(options)
        except ConfigError:
            continue
        found.append(TopicSource(flow, parsed))
    return found


def _reads(relation: Any) -> Iterator[Any]:
    """All messages `Read` in a plan, however deep."""
    waiting = [relation]
    while waiting:
        message = waiting.pop()
        if message.DESCRIPTOR.full_name == READ:
            yield message
            continue
        for descriptor, value in message.ListFields():
            if descriptor.message_type is None or descriptor.message_type.GetOptions().map_entry:
                continue
            waiting += [value] if hasattr(value, "ListFields") else list(value)
