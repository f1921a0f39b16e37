"""Runs a pipeline: one Spark session, run after run.

A run of a declarative pipeline ends when every flow has read what was there when it began ("available
now"); for freshness one runs it again.  The session, its JVM and its warmed-up code stay; the definitions
are read again each time, so an edited file takes effect with the next run.  Where a flow goes on is in
Spark's checkpoints: a second run, also in another process, continues.

| a run ends with                     | it counts as                                                       |
|-------------------------------------|--------------------------------------------------------------------|
| "Run is COMPLETED"                  | completed                                                          |
| the same, and then UNKNOWN_RESPONSE | completed: Spark 4.2 and 4.3 send an accumulator of Python sources |
| with `__python_accumulator__`       | after the last event, which their own client takes for an error    |
| any other error, or no end          | failed; `failures` says what is told of it                         |

Before each run its definitions are looked at for topics that are not there and clusters that nobody answers
for (`checks`).  **A full refresh** makes tables anew, and with them every table that reads them: those
would otherwise read all rows a second time.  Spark leaves sinks out of such a run; they go on with the next
one.
"""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from distributedlog.model.errors import ConfigError, DlogError, PipelineError, SparkNotReadyError
from distributedlog.pipelines.checks import check_sources, make_topics
from distributedlog.pipelines.compaction.compactor import TableCompaction
from distributedlog.pipelines.failures import (
    FlowFailure,
    Location,
    describe,
    describe_failures,
    describe_raised,
    in_sql,
    parse_unresolved,
    split_flow_error,
    with_cause,
)
from distributedlog.pipelines.graph import DataflowGraph, short, type_changes
from distributedlog.pipelines.graph_reader import GraphReader
from distributedlog.pipelines.history import History, read_history
from distributedlog.pipelines.lag import LagSampler
from distributedlog.pipelines.progress import Batch, parse_progress, short_name
from distributedlog.pipelines.project import BOOTSTRAP_KEY, Project, is_running
from distributedlog.pipelines.status import PipelineStatus, fold
from distributedlog.pipelines.table_maintenance import TableMaintenance
from distributedlog.spark.session.connect import Clients, deliver_events, jvm_process, server_port, watching
from distributedlog.spark.session.session import close, session

if TYPE_CHECKING:
    import subprocess

    from pyspark.sql import SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    from distributedlog.pipelines.definitions import Definitions, TopicSink, TopicSource

TRACE_CHARACTERS_MAX: Final = 1_000_000
NOTHING_NEW: Final = "nothing new"
EXHAUSTED: Final = "__python_accumulator__"
INCOMPATIBLE_TYPES: Final = "CANNOT_MERGE_INCOMPATIBLE_DATA_TYPE"
_FLOW_EVENT: Final = re.compile(r"^Flow (\S+) (?:is|has) ([A-Z_]+)\.?(.*)", re.DOTALL)
_RUN_EVENT: Final = re.compile(r"^Run (?:is|has) ([A-Z_]+)\.?(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class RunOutcome:
    run: int
    state: str
    rows: int
    """The rows from topics."""
    batches: int
    milliseconds: int
    started_ms: int
    error: str | None = None
    cause: DlogError | None = None
    """The error, if it was ours and known before Spark ran anything."""

    @property
    def is_completed(self) -> bool:
        return self.state == "completed"


@dataclass(slots=True)
class _Current:
    """The run that is going on, as its events tell of it."""

    run: int
    rows: int = 0
    batches: int = 0
    is_completed: bool = False
    error: str | None = None
    failed_stream: str | None = None
    """The id of the one that the error is of."""
    traces: dict[str, str] = field(default_factory=dict)
    """What Java said of streams that failed, by their ids."""
    flow_states: dict[str, str] = field(default_factory=dict)
    unresolved: list[FlowFailure] = field(default_factory=list)
    places: Mapping[str, Location] = field(default_factory=dict)
    sql: Mapping[str, str] = field(default_factory=dict)

    def place_of(self, flow: str) -> str:
        found = next((at for name, at in self.places.items() if short(name) == flow), None)
        return "" if found is None else f" ({found})"

    @property
    def error_text(self) -> str | None:
        """What its events said of failures."""
        if unresolved := describe_failures(self.unresolved, self.places, self.sql):
            return unresolved
        return self.error and with_cause(self.error, self.traces.get(self.failed_stream or ""))


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far the last run has come."""

    is_started: bool
    """Whether Spark is there."""
    is_running: bool
    """Whether the run goes on; else it is over."""
    run: int
    rows: int
    batches: int
    flow_states: Mapping[str, str]
    lag: int | None
    """The lag as it was last measured."""
    is_idle: bool = False
    """Whether nothing is new since that run."""


@dataclass(frozen=True, slots=True)
class Validation:
    problems: tuple[str, ...] = ()
    graph: DataflowGraph | None = None
    """None if the definitions could not be read."""
    sources: "tuple[TopicSource, ...]" = ()
    sinks: "tuple[TopicSink, ...]" = ()
    places: Mapping[str, Location] = field(default_factory=dict)


class Runner:
    """Holds the session; to be used with `with`."""

    def __init__(
        self,
        project: Project,
        *,
        master: str | None = None,
        bootstrap: str | None = None,
        config: Mapping[str, str] | None = None,
        warn: Callable[[str], None] = lambda _: None,
        is_dry: bool = False,
        compact_files: int | None = None,
    ) -> None:
        """A runner that `is_dry` only looks, with `validate`: no topic is made, and the tables of a pipeline
        that is running are left to it.  `compact_files`: instead of what the project says of it."""
        self.project = project
        self._warn = warn
        self._is_dry = is_dry
        self._directory = None if is_dry and is_running(project) else project.state_directory
        self.configuration = dict(project.configuration)
        if bootstrap is not None:
            self.configuration[BOOTSTRAP_KEY] = bootstrap
        self._master = master
        self._compact_files = project.compact_files() if compact_files is None else compact_files
        self._config = dict(config or {})
        self._history = History(project.history_path)
        self._known = fold(read_history(project.history_path))
        self._mutex = threading.Lock()
        self._current = _Current(self._known.runs)
        self._ends = contextlib.ExitStack()
        self._spark: SparkSession | None = None
        self._maintenance: TableMaintenance | None = None
        self._clients = Clients()
        self._is_ending = False
        self._jvm_ended: str | None = None

    @property
    def spark(self) -> "SparkSession":
        """The session itself, for whoever wants to ask the tables between two runs."""
        assert self._spark is not None, "use it with `with`"
        return self._spark

    @property
    def status(self) -> PipelineStatus:
        return self._known

    @property
    def progress(self) -> RunProgress:
        with self._mutex:
            current = self._current
            lag = self._known.lag_samples[-1][1] if self._known.lag_samples else None
            return RunProgress(
                is_started=self._spark is not None,
                is_running=self._known.state == "running",
                run=current.run,
                rows=current.rows,
                batches=current.batches,
                flow_states=dict(current.flow_states),
                lag=lag,
                is_idle=self._known.is_idle,
            )

    @property
    def is_spark_there(self) -> bool:
        return self._spark is not None and self._jvm_ended is None

    def __enter__(self) -> "Runner":
        bootstrap = self.configuration.get(BOOTSTRAP_KEY)
        if bootstrap is not None:  # before Spark is started: a cluster that is not there is noticed at once
            make_topics(
                bootstrap,
                self.project.topics(),
                self.project.topics_read(),
                warn=self._warn,
                is_dry=self._is_dry,
            )
        static = {key: value for key, value in self.configuration.items() if key.startswith("spark.")}
        with contextlib.ExitStack() as ends:
            self._spark = session(
                self.project.name,
                master=self._master,
                directory=self._directory,
                config={**static, **self._config},
                with_connect=True,
            )
            ends.callback(close)
            self._maintenance = TableMaintenance(
                self.project,
                self._spark,
                compact_files=self._compact_files,
                on_compaction=self._on_compaction,
            )
            threading.Thread(target=self._watch_jvm, args=(jvm_process(self._spark),), daemon=True).start()
            ends.enter_context(watching(self._spark, self._on_progress, self._on_stream_failure))
            if bootstrap is not None and not self._is_dry:
                ends.enter_context(LagSampler(bootstrap, self._positions, self._on_lag))
            self._ends = ends.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ending = True
        self._clients.close()
        self._ends.close()

    def _watch_jvm(self, process: "subprocess.Popen[bytes] | None") -> None:
        """A client of Connect would wait many minutes for a server that is gone: it is told at once."""
        if process is None:
            return
        code = process.wait()
        if self._is_ending:
            return
        self._jvm_ended = f"Spark's JVM ended ({'exit code' if code >= 0 else 'signal'} {abs(code)})"
        self._clients.close()

    # --- one run -------------------------------------------------------------------------------

    def run_once(
        self, full_refresh: Sequence[str] = (), on_graph: Callable[[GraphReader], None] = lambda _: None
    ) -> RunOutcome:
        """One run to its end.  What goes wrong in it is in the outcome; raised is what no other run can mend:
        settings that are wrong, a Spark that is gone.  `on_graph` is told of the graph before it is run."""
        assert self._spark is not None, "use it with `with`"
        started = time.monotonic()
        with self._mutex:
            self._current = current = _Current(self._known.runs + 1)
        begun = self._note("run", run=current.run, state="started")
        error, cause = self._attempt(self._spark, current, full_refresh, on_graph)
        if self._maintenance is not None and self._jvm_ended is None:
            self._maintenance.on_run(is_completed=error is None)
        milliseconds = int((time.monotonic() - started) * 1000)
        state = "completed" if error is None else "failed"
        ending: dict[str, object] = {"run": current.run, "state": state, "milliseconds": milliseconds}
        ending["rows"] = current.rows
        if error is not None:
            ending["error"] = error
        self._note("run", **ending)
        if self._jvm_ended is not None:
            raise SparkNotReadyError(
                f"{self._jvm_ended}; {self.project.state_directory}/spark.log may say why"
            )
        if isinstance(cause, ConfigError | SparkNotReadyError):
            raise cause
        return RunOutcome(
            current.run, state, current.rows, current.batches, milliseconds, begun["time_ms"], error, cause
        )

    def note_nothing_new(self) -> RunOutcome:
        """Instead of a run that would have nothing to do."""
        noted = self._note("idle", run=self._current.run)
        return RunOutcome(self._current.run, NOTHING_NEW, 0, 0, 0, noted["time_ms"])

    def _attempt(
        self,
        spark: "SparkSession",
        current: _Current,
        full_refresh: Sequence[str],
        on_graph: Callable[[GraphReader], None],
    ) -> tuple[str | None, DlogError | None]:
        """Returns what went wrong, and the error itself if it is ours."""
        try:
            with self._clients.connected(server_port(spark)) as client:
                self._execute(spark, client, current, full_refresh, on_graph)
        except DlogError as failure:
            return str(failure), failure
        except Exception as failure:
            reason = self._jvm_ended or self._error_text(spark, current)
            return reason or describe_raised(failure, self.project.directory), None
        if current.is_completed:
            return None, None
        return self._error_text(spark, current) or "Spark did not say that it was completed", None

    def _error_text(self, spark: "SparkSession", current: _Current) -> str | None:
        """Returns what its events said of failures; what Java says of a stream may come later."""
        if current.failed_stream is not None and self._jvm_ended is None:
            deliver_events(spark)
        return current.error_text

    def _execute(
        self,
        spark: "SparkSession",
        client: "ConnectSession",
        current: _Current,
        full_refresh: Sequence[str],
        on_graph: Callable[[GraphReader], None],
    ) -> None:
        graph_id, found = self._register(spark, client, current)
        reader = self._reader(spark, client, graph_id)
        anew, others = self._refreshed(reader.resolved(), full_refresh) if full_refresh else ([], [])
        check_sources(
            ((each.flow, each.options) for each in found.sources), current.places, waits=current.run > 1
        )
        self._note_sources(current, found)
        on_graph(reader)
        try:
            events = self._start(client, graph_id, full_refresh=anew, refresh=others)
            for message in messages_of(events):
                self._on_message(current, message)
        except Exception as failure:
            changes = self._type_changes(reader) if INCOMPATIBLE_TYPES in str(failure) else ""
            if not changes:
                raise
            raise PipelineError(changes) from failure

    # --- a look --------------------------------------------------------------------------------

    def validate(self) -> "Validation":
        """Returns what would run, and what is wrong with it; nothing is run, read or written."""
        assert self._spark is not None, "use it with `with`"
        current = _Current(0)
        with self._clients.connected(server_port(self._spark)) as client:
            try:
                return self._validate(self._spark, client, current)
            except DlogError as failure:
                return Validation((current.error_text or str(failure),))
            except Exception as failure:
                return Validation((current.error_text or describe_raised(failure, self.project.directory),))

    def _validate(self, spark: "SparkSession", client: "ConnectSession", current: _Current) -> "Validation":
        graph_id, found = self._register(spark, client, current)
        reader = self._reader(spark, client, graph_id)
        for message in messages_of(self._start(client, graph_id, dry=True)):
            self._on_message(current, message)
        graph = reader.resolved()
        problems = (
            [] if current.is_completed else [current.error_text or "Spark did not say that it is valid"]
        )
        present = reader.columns_present(graph.tables) if self._directory is not None else {}
        problems += map(str, type_changes(graph, present))
        wanted = self.project.topics()
        for source in found.sources:
            if not wanted.keys() >= set(source.options.subscription.names or ()):  # others a run would make
                problems += self._source_problems(source, current)
        return Validation(tuple(problems), graph, tuple(found.sources), tuple(found.sinks), current.places)

    def _source_problems(self, source: "TopicSource", current: _Current) -> list[str]:
        try:
            check_sources([(source.flow, source.options)], current.places, waits=False)
        except DlogError as error:
            return [str(error)]
        return []

    def _start(
        self,
        client: "ConnectSession",
        graph_id: str,
        *,
        full_refresh: Sequence[str] = (),
        refresh: Sequence[str] = (),
        dry: bool = False,
    ) -> Iterator[dict[str, Any]]:
        from pyspark.pipelines.spark_connect_pipeline import start_run

        return start_run(
            client,  # type: ignore[arg-type]
            graph_id,
            full_refresh=full_refresh,
            full_refresh_all=False,
            refresh=refresh,
            dry=dry,
            storage=self.project.storage,
        )

    # --- definitions ---------------------------------------------------------------------------

    def _register(
        self, spark: "SparkSession", client: "ConnectSession", current: _Current
    ) -> "tuple[str, Definitions]":
        """Has the definitions read; the graph's id, and what they name."""
        from pyspark.pipelines import cli
        from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph

        from distributedlog.pipelines.definitions import Definitions, register

        vars(cli)["log_with_curr_timestamp"] = _unsaid  # what it would print belongs to Spark's own command
        path = Path(self.project.spec_path)
        runtime = self._runtime_configuration(spark)
        for key, value in runtime.items():
            client.conf.set(key, value)
        spec = cli.load_pipeline_spec(path)
        catalog, database = spec.catalog, spec.database
        graph_id = create_dataflow_graph(client, catalog, database, runtime)  # type: ignore[arg-type]
        found = Definitions()
        try:
            register(client, graph_id, path, spec, found)
        except Exception as failure:
            if found.sql_at is None:
                raise
            place, reason = in_sql(Location(found.sql_at), describe(failure), found.sql[found.sql_at])
            raise PipelineError(f"{place}: {reason}") from failure
        current.sql = found.sql
        current.places = self._reader(spark, client, graph_id).locations()
        return graph_id, found

    def _reader(self, spark: "SparkSession", client: "ConnectSession", graph_id: str) -> GraphReader:
        return GraphReader(spark, client, graph_id, self.project.directory)

    def _refreshed(self, graph: DataflowGraph, names: Sequence[str]) -> tuple[list[str], list[str]]:
        """Returns the tables that are made anew, and the others."""
        if graph.unresolved:
            return list(names), []  # the run itself says what is wrong with them
        named = [graph.table(name) for name in names]
        reached = graph.downstream(named)
        anew = [each for each in reached if each in graph.tables]
        if more := [short(each) for each in anew if each not in named]:
            self._warn(f"made anew as well, because they read it: {', '.join(more)}")
        if sinks := [each for each in reached if each in graph.sinks]:
            self._warn(f"these send what is made anew once more, with the next run: {', '.join(sinks)}")
        return anew, [each for each in graph.tables if each not in anew]

    def _type_changes(self, reader: GraphReader) -> str:
        graph = reader.resolved()
        changes = type_changes(graph, reader.columns_present(graph.tables))
        return "\n".join(map(str, changes))

    def _note_sources(self, current: _Current, found: "Definitions") -> None:
        """Notes to whom a flow reports how far it is, if that is news."""
        for source in found.sources:
            known = self._known.flows.get(source.flow)
            target = (source.options.kafka.bootstrap, source.options.group_id)
            if source.options.group_id and (known is None or (known.bootstrap, known.group) != target):
                self._note("source", run=current.run, flow=source.flow, bootstrap=target[0], group=target[1])

    def _runtime_configuration(self, spark: "SparkSession") -> dict[str, str]:
        """Returns what may be set on a running session: ours, and those of Spark's that it lets one
        change."""
        return {
            key: value
            for key, value in self.configuration.items()
            if not key.startswith("spark.") or spark.conf.isModifiable(key)
        }

    def _on_message(self, current: _Current, message: str) -> None:
        if found := _RUN_EVENT.match(message):
            current.is_completed = found[1] == "COMPLETED"
            if found[1] in ("FAILED", "TERMINATED", "CANCELED"):
                current.error = current.error or " ".join(message.split())
        elif found := _FLOW_EVENT.match(message):
            flow, state = short_name(found[1]), found[2].lower()
            if current.flow_states.get(flow) == state:
                return
            current.flow_states[flow] = state
            if state == "running" and self._maintenance is not None:
                self._maintenance.on_flow(flow)
            if state not in ("completed", "failed", "skipped"):
                return
            why, stream = split_flow_error(found[3])
            error = {"error": describe(why)} if state == "failed" else {}
            if state == "failed" and current.error is None:
                current.error = f"flow {flow}{current.place_of(flow)}: {error['error']}"
                current.failed_stream = stream
            self._note("flow", run=current.run, flow=flow, state=state, **error)
        elif unresolved := parse_unresolved(message):
            current.unresolved.append(unresolved)
        elif "Error: " in message and current.error is None:
            what, _, why = message.partition("Error: ")
            current.error = f"{' '.join(what.split())} {describe(why)}"

    # --- what other threads tell ---------------------------------------------------------------

    def _on_progress(self, text: str, rows_written: int) -> None:
        batch = parse_progress(text, rows_written)
        if batch is None:
            return
        with self._mutex:
            current = self._current
            current.batches += 1
            if batch.positions:
                current.rows += batch.rows
            known = self._known.flows.get(batch.flow)
            total = batch.rows + (known.rows if known is not None else 0)
            total_out = batch.rows_out + (known.rows_out if known is not None else 0)
        self._note_batch(current.run, batch, total, total_out)

    def _note_batch(self, run: int, batch: Batch, rows_total: int, rows_out_total: int) -> None:
        self._note(
            "batch",
            run=run,
            flow=batch.flow,
            batch=batch.batch,
            rows=batch.rows,
            rows_total=rows_total,
            rows_out=batch.rows_out,
            rows_out_total=rows_out_total,
            milliseconds=batch.milliseconds,
            positions={topic: dict(partitions) for topic, partitions in batch.positions.items()},
            rows_too_late=batch.rows_too_late,
        )

    def _on_stream_failure(self, stream: str, trace: str) -> None:
        self._current.traces[stream] = trace[-TRACE_CHARACTERS_MAX:]

    def _on_lag(self, records: int | None) -> None:
        self._note("lag", run=self._current.run, records=records)

    def _on_compaction(self, done: TableCompaction) -> None:
        counts = {"files_before": done.files_before, "files_after": done.files_after}
        self._note("compaction", run=self._current.run, table=done.table, **counts)

    def _positions(self) -> dict[str, dict[int, int]]:
        """Returns positions; of topics that nothing was read of yet, all is still to be read."""
        with self._mutex:
            known = self._known.positions()
        return {**{topic: {} for topic in self.project.topics_read()}, **known}

    def _note(self, kind: str, **fields: object) -> dict[str, Any]:
        """Writes an event into the file, and into what is known."""
        event = self._history.note(kind, **fields)
        with self._mutex:
            self._known = fold([event], onto=self._known, is_running=True)
        return event


def _unsaid(_: str) -> None:
    pass


def messages_of(events: Iterator[dict[str, Any]]) -> Iterator[str]:
    """The messages of a run's events; the one error that is none ends them."""
    from pyspark.errors import PySparkValueError

    try:
        for event in events:
            if "pipeline_event_result" in event:
                yield event["pipeline_event_result"].event.message
    except PySparkValueError as error:
        if EXHAUSTED not in str(error):
            raise
