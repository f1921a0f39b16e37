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
| any other error, or no end          | failed; the error is the first flow's that failed                  |

`run_loop` goes on after a failed run (a broker that restarts is worth waiting for) until too many failed in
a row.
"""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from distributedlog.client.blocking import BlockingAdmin
from distributedlog.client.options import ClientOptions
from distributedlog.client.topic_admin import NewTopic
from distributedlog.model.errors import DlogError, PipelineError, SparkNotReadyError, TopicExistsError
from distributedlog.pipelines.history import History, read_history
from distributedlog.pipelines.lag import LagSampler
from distributedlog.pipelines.progress import Batch, parse_progress, short_name
from distributedlog.pipelines.project import BOOTSTRAP_KEY, Project
from distributedlog.pipelines.status import PipelineStatus, fold
from distributedlog.spark.session import close, session
from distributedlog.spark.session_connect import connected, jvm_process, watching

if TYPE_CHECKING:
    import subprocess

    from pyspark.sql import SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession

FAILURES_MAX_DEFAULT: Final = 5
EXHAUSTED: Final = "__python_accumulator__"
CONNECT_TIMEOUT_MS: Final = 10_000
ERROR_CHARACTERS_MAX: Final = 2_000
_JAVA_BEGINS: Final = ("at org.apache", "JVM stacktrace", "at java.", "at scala.", "=== Streaming Query")
_THROUGH_PY4J: Final = "An error occurred while calling"
_CLASSED_ERROR: Final = re.compile(r"\[[A-Z][A-Z0-9_.]+\] [^\n]+")
_OUR_ERROR: Final = re.compile(r"^\s*distributedlog\.[\w.]+Error: (.+)$", re.MULTILINE)
_FLOW_EVENT: Final = re.compile(r"^Flow (\S+) (?:is|has) ([A-Z_]+)\.?(.*)", re.DOTALL)
_RUN_EVENT: Final = re.compile(r"^Run (?:is|has) ([A-Z_]+)\.?(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class RunOutcome:
    run: int
    state: str
    rows: int
    """From topics."""
    batches: int
    milliseconds: int
    started_ms: int
    error: str | None = None

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
    flow_states: dict[str, str] = field(default_factory=dict)


class Runner:
    """Holds the session; to be used with `with`."""

    def __init__(
        self,
        project: Project,
        *,
        master: str | None = None,
        bootstrap: str | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        self.project = project
        self.configuration = dict(project.configuration)
        if bootstrap is not None:
            self.configuration[BOOTSTRAP_KEY] = bootstrap
        self._master = master
        self._config = dict(config or {})
        self._history = History(project.history_path)
        self._known = fold(read_history(project.history_path))
        self._mutex = threading.Lock()
        self._current = _Current(self._known.runs)
        self._ends = contextlib.ExitStack()
        self._spark: SparkSession | None = None
        self._client: ConnectSession | None = None
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

    def __enter__(self) -> "Runner":
        self._make_topics()
        static = {key: value for key, value in self.configuration.items() if key.startswith("spark.")}
        with contextlib.ExitStack() as ends:
            self._spark = session(
                self.project.name,
                master=self._master,
                directory=self.project.state_directory,
                config={**static, **self._config},
                with_connect=True,
            )
            ends.callback(close)
            threading.Thread(target=self._watch_jvm, args=(jvm_process(self._spark),), daemon=True).start()
            ends.enter_context(watching(self._spark, self._on_progress))
            bootstrap = self.configuration.get(BOOTSTRAP_KEY)
            if bootstrap is not None:
                ends.enter_context(LagSampler(bootstrap, self._positions, self._on_lag))
            self._ends = ends.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ending = True
        self._let_go()
        self._ends.close()

    def _let_go(self) -> None:
        """Ends what a run in another thread waits for: it would go on asking a server that is gone."""
        client = self._client
        if client is not None:
            with contextlib.suppress(Exception):
                client.client.close()

    def _watch_jvm(self, process: "subprocess.Popen[bytes] | None") -> None:
        """A client of Connect would wait many minutes for a server that is gone: it is told at once."""
        if process is None:
            return
        code = process.wait()
        if self._is_ending:
            return
        self._jvm_ended = f"Spark's JVM ended ({'exit code' if code >= 0 else 'signal'} {abs(code)})"
        self._let_go()

    def _make_topics(self) -> None:
        """Before Spark is started: a cluster that is not there is noticed at once."""
        wanted = self.project.topics()
        bootstrap = self.configuration.get(BOOTSTRAP_KEY)
        if not wanted or bootstrap is None:
            return
        with BlockingAdmin(bootstrap, ClientOptions(connect_timeout_ms=CONNECT_TIMEOUT_MS)) as admin:
            present = {topic.name for topic in admin.list_topics()}
            for name in wanted.keys() - present:
                with contextlib.suppress(TopicExistsError):
                    admin.create_topic(NewTopic(name, partitions=wanted[name]))

    # --- one run -------------------------------------------------------------------------------

    def run_once(self, full_refresh: Sequence[str] = ()) -> RunOutcome:
        """One run to its end; what goes wrong in it is in the outcome, not raised."""
        assert self._spark is not None, "use it with `with`"
        started = time.monotonic()
        with self._mutex:
            self._current = current = _Current(self._known.runs + 1)
        begun = self._note("run", run=current.run, state="started")
        try:
            self._execute(self._spark, current, full_refresh)
            error = (
                None if current.is_completed else current.error or "Spark did not say that it was completed"
            )
        except DlogError:
            raise
        except Exception as failure:
            error = self._jvm_ended or current.error or describe(failure)
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
        return RunOutcome(
            current.run, state, current.rows, current.batches, milliseconds, begun["time_ms"], error
        )

    def _execute(self, spark: "SparkSession", current: _Current, full_refresh: Sequence[str]) -> None:
        from pyspark.pipelines import cli
        from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
        from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, start_run

        vars(cli)["log_with_curr_timestamp"] = _unsaid  # what it would print belongs to Spark's own command
        path = Path(self.project.spec_path)
        runtime = self._runtime_configuration(spark)
        with connected(spark) as client:
            self._client = client
            for key, value in runtime.items():
                client.conf.set(key, value)
            spec = cli.load_pipeline_spec(path)
            graph = create_dataflow_graph(client, spec.catalog, spec.database, runtime)  # type: ignore[arg-type]
            registry = SparkConnectGraphElementRegistry(client, graph)  # type: ignore[arg-type]
            cli.register_definitions(path, registry, spec, client, graph)  # type: ignore[arg-type]
            events = start_run(
                client,  # type: ignore[arg-type]
                graph,
                full_refresh=list(full_refresh),
                full_refresh_all=False,
                refresh=[],
                dry=False,
                storage=spec.storage,
            )
            for message in messages_of(events):
                self._on_message(current, message)
            self._client = None

    def _runtime_configuration(self, spark: "SparkSession") -> dict[str, str]:
        """What may be set on a running session: ours, and those of Spark's that it lets one change."""
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
            if state not in ("completed", "failed", "skipped"):
                return
            error = {"error": describe(found[3].strip().removeprefix("Error: "))} if state == "failed" else {}
            if state == "failed" and current.error is None:
                current.error = f"flow {flow}: {error['error']}"
            self._note("flow", run=current.run, flow=flow, state=state, **error)
        elif "Error: " in message and current.error is None:
            what, _, why = message.partition("Error: ")
            current.error = f"{' '.join(what.split())} {describe(why)}"

    # --- what other threads tell ---------------------------------------------------------------

    def _on_progress(self, text: str) -> None:
        batch = parse_progress(text)
        if batch is None:
            return
        with self._mutex:
            current = self._current
            current.batches += 1
            if batch.positions:
                current.rows += batch.rows
            known = self._known.flows.get(batch.flow)
            total = batch.rows + (known.rows if known is not None else 0)
        self._note_batch(current.run, batch, total)

    def _note_batch(self, run: int, batch: Batch, rows_total: int) -> None:
        self._note(
            "batch",
            run=run,
            flow=batch.flow,
            batch=batch.batch,
            rows=batch.rows,
            rows_total=rows_total,
            milliseconds=batch.milliseconds,
            positions={topic: dict(partitions) for topic, partitions in batch.positions.items()},
            rows_too_late=batch.rows_too_late,
        )

    def _on_lag(self, records: int | None) -> None:
        self._note("lag", run=self._current.run, records=records)

    def _positions(self) -> dict[str, dict[int, int]]:
        """Of topics that nothing was read of yet, all is still to be read."""
        with self._mutex:
            known = self._known.positions()
        return {**{topic: {} for topic in self.project.topics_read()}, **known}

    def _note(self, kind: str, **fields: object) -> dict[str, Any]:
        """Into the file, and into what is known."""
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


def describe(error: BaseException | str) -> str:
    """Spark's errors are long: ours in them if there is one, else their first lines, up to where Java
    begins.
    """
    text = str(error)
    if ours := _OUR_ERROR.findall(text):
        return str(ours[-1]).strip()[:ERROR_CHARACTERS_MAX]
    if text.startswith(_THROUGH_PY4J) and (causes := _CLASSED_ERROR.findall(text)):
        return str(causes[-1]).strip()[:ERROR_CHARACTERS_MAX]
    lines = []
    for line in map(str.strip, text.splitlines()):
        if line.startswith(_JAVA_BEGINS):
            break
        lines.append(line)
    return " ".join(filter(None, lines))[:ERROR_CHARACTERS_MAX] or type(error).__name__


def run_loop(
    runner: Runner,
    every_seconds: float,
    stopping: threading.Event,
    tell: Callable[[RunOutcome], None],
    failures_max: int = FAILURES_MAX_DEFAULT,
    full_refresh: Sequence[str] = (),
) -> RunOutcome:
    """Run after run, at least so far apart from start to start; the last outcome.  The first that completes
    makes the tables of `full_refresh` anew."""
    failures = 0
    while True:
        started = time.monotonic()
        outcome = runner.run_once(full_refresh)
        full_refresh = () if outcome.is_completed else full_refresh
        tell(outcome)
        failures = 0 if outcome.is_completed else failures + 1
        if failures >= failures_max:
            raise PipelineError(f"{failures} runs failed, one after the other; the last: {outcome.error}")
        rest = every_seconds - (time.monotonic() - started)
        if stopping.wait(max(0.0, rest)):
            return outcome
