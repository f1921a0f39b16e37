"""Clients of the Connect server that runs inside the session's own JVM, and what its streams tell on the way.

Declarative pipelines are defined and run through Connect.  The server listens on a free port, asked of the
JVM; a client connects as `localhost`, the one name for which pyspark sends the token without TLS.

While a client is used, pyspark's functions (`col`, `window`, …) must build Connect's columns and not
classic ones. They look at an environment variable for that, so it is set exactly as long as `connected()`
lasts.

**Progress.** Connect gives a client no progress of the streams that a pipeline runs.  The JVM has it,
though: all sessions of a context post their streams' events on the context's listener bus, and this process
holds the context. `watching()` puts a listener there which passes each stream's progress, as the JSON that
Spark makes of it, to a function.  It is called on a thread of py4j; what it raises is printed by py4j and
otherwise lost, so it must not.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from distributedlog.model.errors import SparkNotReadyError

if TYPE_CHECKING:
    import subprocess

    from pyspark.sql import SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession

CONNECT_MODE_VARIABLE: Final = "SPARK_CONNECT_MODE_ENABLED"
SERVICE: Final = "org.apache.spark.sql.connect.service.SparkConnectService$"
PROGRESS_EVENT: Final = "StreamingQueryListener$QueryProgressEvent"


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


@contextlib.contextmanager
def connected(spark: "SparkSession") -> Iterator["ConnectSession"]:
    """A client of its own, closed at the end; the server and its streams stay."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    before = os.environ.get(CONNECT_MODE_VARIABLE)
    os.environ[CONNECT_MODE_VARIABLE] = "1"
    try:
        client = ConnectSession.builder.remote(f"sc://localhost:{server_port(spark)}").create()
        try:
            yield client
        finally:
            client.stop()
    finally:
        if before is None:
            os.environ.pop(CONNECT_MODE_VARIABLE, None)


class _Listener:
    """`SparkListenerInterface` for py4j: all of its methods, of which one does something."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def onOtherEvent(self, event: Any) -> None:  # noqa: N802 (Java's name)
        if event.getClass().getName().endswith(PROGRESS_EVENT):
            self._tell(str(event.progress().json()))

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("on"):
            return lambda *_: None
        raise AttributeError(name)

    class Java:
        implements: Final = ["org.apache.spark.scheduler.SparkListenerInterface"]


def jvm_process(spark: "SparkSession") -> "subprocess.Popen[bytes] | None":
    """The JVM of the session, if this process started it."""
    return getattr(spark.sparkContext._gateway, "proc", None)


@contextlib.contextmanager
def watching(spark: "SparkSession", tell: Callable[[str], None]) -> Iterator[None]:
    """Calls `tell` with the progress of every micro-batch of every stream of the context."""
    from pyspark.java_gateway import ensure_callback_server_started

    context = spark.sparkContext
    ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
    listener = _Listener(tell)
    bus = context._jsc.sc()
    bus.addSparkListener(listener)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # what was posted is delivered before it is taken away
            bus.listenerBus().waitUntilEmpty(5_000)
        with contextlib.suppress(Exception):
            bus.removeSparkListener(listener)
