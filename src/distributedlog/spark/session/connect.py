"""Clients of the Connect server that runs inside the session's own JVM, and what its streams tell on the way.

Declarative pipelines are defined and run through Connect.  The server listens on a free port, asked of the
JVM; a client connects as `localhost`, the one name for which pyspark sends the token without TLS.

While a client is used, pyspark's functions (`col`, `window`, …) must build Connect's columns and not
classic ones. They look at an environment variable for that, so it is set exactly as long as
`Clients.connected()` lasts.

**Progress.** Connect gives a client no progress of the streams that a pipeline runs.  The JVM has it,
though: all sessions of a context post their streams' events on the context's listener bus, and this process
holds the context. `watching()` puts a listener there which passes each stream's progress, as the JSON that
Spark makes of it, to a function, and with it how many rows the micro-batch wrote.  It is called on a thread
of py4j; what it raises is printed by py4j and otherwise lost, so it must not.

**Rows written.**  Of a sink of the newer kind (ours is) the JSON says it.  Of files it says -1: there the
stages of the micro-batch do, which are known by the query's and the batch's number among their
properties.  Rows that a failed attempt of a task had written are among them.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from distributedlog.model.errors import SparkNotReadyError

if TYPE_CHECKING:
    import subprocess

    from pyspark.sql import SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession

CONNECT_MODE_VARIABLE: Final = "SPARK_CONNECT_MODE_ENABLED"
SERVICE: Final = "org.apache.spark.sql.connect.service.SparkConnectService$"
QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"
STAGES_MAX: Final = 10_000
PROGRESS_EVENT: Final = "StreamingQueryListener$QueryProgressEvent"
TERMINATED_EVENT: Final = "StreamingQueryListener$QueryTerminatedEvent"


def server_port(spark: "SparkSession") -> int:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    try:
        service = jvm.java.lang.Class.forName(SERVICE).getField("MODULE$").get(None)
        return int(service.localPort())
    except Exception as error:
        raise SparkNotReadyError(
            "this Spark session has no Connect server; start it with session(with_connect=True)"
        ) from error


class Clients:
    """Clients, one after the other, which are closed from another thread when the server goes.

    One that stays open asks a server that is gone again and again for ten minutes, at the end of the process
    too.  So `close()` leaves none open: not the one in use, and not one that is being made."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._current: ConnectSession | None = None
        self._is_closed = False

    @contextlib.contextmanager
    def connected(self, port: int) -> Iterator["ConnectSession"]:
        """A client of its own, closed at the end; the server and its streams stay."""
        from pyspark.sql.connect.session import SparkSession as ConnectSession

        before = os.environ.get(CONNECT_MODE_VARIABLE)
        os.environ[CONNECT_MODE_VARIABLE] = "1"
        try:
            client = ConnectSession.builder.remote(f"sc://localhost:{port}").create()
            try:
                self._begin(client)
                yield client
            finally:
                client.stop()
                self._current = None
        finally:
            if before is None:
                os.environ.pop(CONNECT_MODE_VARIABLE, None)

    def close(self) -> None:
        """Whoever uses a client gets an error at its next call."""
        with self._mutex:
            self._is_closed = True
            client = self._current
        if client is not None:
            with contextlib.suppress(Exception):
                client.client.close()

    def _begin(self, client: "ConnectSession") -> None:
        with self._mutex:
            self._current = client
            is_late = self._is_closed
        if is_late:
            self.close()
            raise SparkNotReadyError("Spark is being stopped")


class StageRows:
    """How many rows the stages of each micro-batch have written, until the batch is over."""

    def __init__(self) -> None:
        self._batches: dict[int, tuple[str, str]] = {}
        """Stage → query and batch."""
        self._rows: dict[tuple[str, str], int] = {}

    def submitted(self, stage: int, query: str | None, batch: str | None) -> None:
        if query is not None and batch is not None:
            self._batches[stage] = (query, batch)
            while len(self._batches) > STAGES_MAX:  # of queries that were stopped
                self._batches.pop(next(iter(self._batches)))

    def completed(self, stage: int, rows: int, is_failed: bool) -> None:
        batch = self._batches.pop(stage, None)
        if batch is not None and not is_failed:
            self._rows[batch] = self._rows.get(batch, 0) + rows
            while len(self._rows) > STAGES_MAX:
                self._rows.pop(next(iter(self._rows)))

    def take(self, query: str, batch: str) -> int:
        return self._rows.pop((query, batch), 0)


class _Listener:
    """`SparkListenerInterface` for py4j: all of its methods, of which some do something."""

    def __init__(
        self, on_progress: Callable[[str, int], None], on_failure: Callable[[str, str], None]
    ) -> None:
        self._on_progress = on_progress
        self._on_failure = on_failure
        self._written = StageRows()

    def onOtherEvent(self, event: Any) -> None:  # noqa: N802 (Java's name)
        kind = str(event.getClass().getName())
        if kind.endswith(TERMINATED_EVENT) and event.exception().isDefined():
            self._on_failure(str(event.id()), str(event.exception().get()))
        elif kind.endswith(PROGRESS_EVENT):
            progress = event.progress()
            self._on_progress(
                str(progress.json()), self._written.take(str(progress.id()), str(progress.batchId()))
            )

    def onStageSubmitted(self, event: Any) -> None:  # noqa: N802
        properties = event.properties()
        if properties is not None:
            query, batch = properties.getProperty(QUERY_PROPERTY), properties.getProperty(BATCH_PROPERTY)
            self._written.submitted(event.stageInfo().stageId(), query, batch)

    def onStageCompleted(self, event: Any) -> None:  # noqa: N802
        stage = event.stageInfo()
        written = int(stage.taskMetrics().outputMetrics().recordsWritten())
        self._written.completed(stage.stageId(), written, stage.failureReason().isDefined())

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("on"):
            return lambda *_: None
        raise AttributeError(name)

    class Java:
        implements: Final = ["org.apache.spark.scheduler.SparkListenerInterface"]


def jvm_process(spark: "SparkSession") -> "subprocess.Popen[bytes] | None":
    """The JVM of the session, if this process started it."""
    return getattr(spark.sparkContext._gateway, "proc", None)


def deliver_events(spark: "SparkSession") -> None:
    """Waits until what was posted so far has been delivered."""
    with contextlib.suppress(Exception):  # Java may be gone
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(5_000)


@contextlib.contextmanager
def watching(
    spark: "SparkSession",
    on_progress: Callable[[str, int], None],
    on_failure: Callable[[str, str], None] = lambda _id, _trace: None,
) -> Iterator[None]:
    """Calls `on_progress` with the progress of every micro-batch of every stream of the context, and with the
    rows that its stages wrote; `on_failure` with the id of a stream that failed, and Java's trace of it."""
    from pyspark.java_gateway import ensure_callback_server_started

    context = spark.sparkContext
    ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
    listener = _Listener(on_progress, on_failure)
    bus = context._jsc.sc()
    bus.addSparkListener(listener)
    try:
        yield
    finally:
        deliver_events(spark)  # before it is taken away
        with contextlib.suppress(Exception):
            bus.removeSparkListener(listener)
