"""`session()`: a Spark session in which topics are DataFrames, set up so that nothing else has to be.

| what Spark needs  | what it gets                                                                      |
|-------------------|-----------------------------------------------------------------------------------|
| pyspark, pyarrow  | the extra `spark`; a message that says so if they are missing                     |
| Java              | found, or brought by pip (`java`); its classes archived (`archive`)               |
| workers' Python   | this one (`python`), unless PYSPARK_PYTHON or `config` names another              |
| a catalog         | Hive's with Derby, under `directory`: tables are there again in the next process. |
|                   | Without a directory it is in memory, which starts sooner                          |
| where to run      | `local[*]`, or any `master`; whether one answers is asked first (`master`)         |
| the format "dlog" | found by Spark itself (`pyspark_dlog`); on a cluster the workers are asked        |
| its logs          | `directory`/spark.log from warnings on; without one, errors on stderr             |
|                   | (`stderr`).  What an exception of Spark's says anyhow is not printed as a         |
|                   | log line besides                                                                  |
| options for Java  | ours, those of spark-defaults.conf, those of `config` (`defaults`)                |

`config` wins over everything here.  Spark has one context per process: a second call returns the session
there is, and is refused if it wants another master, catalog or server.

The directory belongs to one process at a time (Derby allows no more): a lock says so in time, instead of
Derby saying it in forty lines.  `close()` ends the session *and* its JVM; without it the JVM ends when this
process does, however it does: it watches its stdin.

**With Connect.** Declarative pipelines speak to Spark through its Connect server.  `with_connect=True` runs
that server inside the same JVM, on a free port of the loopback interface behind a token that only this
process knows; `connect` opens clients of it.  They are not isolated from each other: what one adds
with `addArtifacts` all of them have, under one name one file, for as long as the session lives.  In return
they share Python's workers, which would otherwise be started anew for each client and outlive it.
"""

import atexit
import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from distributedlog.model.errors import ConfigError, DirectoryLockedError, SparkNotReadyError
from distributedlog.spark.session.archive import MADE_BY, archive_options
from distributedlog.spark.session.defaults import JAVA_OPTIONS, default_java_options, joined_java_options
from distributedlog.spark.session.java import Java, find_java
from distributedlog.spark.session.master import STANDALONE, check_master
from distributedlog.spark.session.python import name_workers_python
from distributedlog.spark.session.stderr import LOG_FILE, pass_on_last_words, stderr_lent
from distributedlog.spark.source.replanning import FILTER_PUSHDOWN

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

MASTER_DEFAULT: Final = "local[*]"
LOCK_FILE: Final = "lock"
WORKERS_CHECK: Final = "dlog.session.check-workers"
WORKERS_SECONDS: Final = "dlog.session.workers-seconds"
"""How long a worker is waited for."""
TOKEN_VARIABLE: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 (the name of a variable)
JVM_TIMEOUT_SECONDS: Final = 30.0
QUICK_START: Final = {JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""The options for what is over in a minute: Java compiles once and simply, at half the CPU until the first
answer, and is slower in the long run."""

LOGGERS_OF_EXCEPTIONS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")

_lock: int | None = None
"""The descriptor of the locked directory, as long as the session lives."""
_passing: str | None = None
"""Where tables go that nobody keeps."""


def session(
    app_name: str = "dlog",
    *,
    master: str | None = None,
    directory: str | None = None,
    config: Mapping[str, str] | None = None,
    with_connect: bool = False,
) -> "SparkSession":
    """Starts Spark, or returns the session there is."""
    require_packages(with_connect=with_connect)
    _hush_exceptions()
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    wanted = master or os.environ.get("MASTER") or MASTER_DEFAULT
    present = SparkContext._active_spark_context
    if present is not None:
        return _present(present, master, directory, with_connect)
    check_master(wanted)
    settings = {**settings_for(app_name, wanted, directory, with_connect=with_connect), **(config or {})}
    java = find_java()
    _prepare_environment(java, wanted, with_connect=with_connect)
    settings[JAVA_OPTIONS] = joined_java_options(
        settings_for_logs(directory),
        archive_options(java, os.environ),
        default_java_options(os.environ),
        (config or {}).get(JAVA_OPTIONS, ""),
    )
    if directory is None:
        # Tables of a catalog in memory end with the process, and so do their files.
        settings.setdefault("spark.sql.warehouse.dir", place_of(_passing_warehouse()))
    _take(directory)
    try:
        conf = SparkConf(loadDefaults=True).setAll(list(settings.items()))
        with stderr_lent(directory):
            context = _started(conf, directory)
        spark = SparkSession(context)
        if not is_local(wanted) and settings.get(WORKERS_CHECK, "true") == "true":
            from distributedlog.spark.session.workers import check_workers

            check_workers(spark, workers_seconds(wanted, settings))
    except BaseException:
        close()
        raise
    return spark


def _started(conf: "SparkConf", directory: str | None) -> "SparkContext":
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError

    try:
        return SparkContext.getOrCreate(conf)
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        where = "before this" if directory is None else f"in {os.path.join(directory, LOG_FILE)}"
        raise SparkNotReadyError(
            f"Java ended before Spark was there: what it said stands {where}; see the options it is given"
            f" ({JAVA_OPTIONS} in spark-defaults.conf or in what was asked for, JAVA_TOOL_OPTIONS)"
        ) from error
    except Py4JError as error:
        raise SparkNotReadyError(
            f"Spark did not start at {conf.get('spark.master')}: {_why(error)}"
        ) from error


def _why(error: Exception) -> str:
    """Returns what Java said, without where it was when it said it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = next((line for line in lines if line.startswith(": ")), lines[0] if lines else "nothing was said")
    return said.removeprefix(": ")


def _present(
    context: "SparkContext", master: str | None, directory: str | None, with_connect: bool
) -> "SparkSession":
    from pyspark.sql import SparkSession

    differing = []
    if master is not None and context.master != master:
        differing.append(f"its master is {context.master}")
    warehouse = context.getConf().get("spark.sql.warehouse.dir", "")
    if directory is not None and warehouse != place_of(os.path.join(directory, "warehouse")):
        differing.append(f"its tables are at {warehouse or 'nowhere'}")
    if with_connect and "Connect" not in (context.getConf().get("spark.plugins") or ""):
        differing.append("it has no Connect server")
    if differing:
        raise SparkNotReadyError(
            f"this process has a Spark session already, and {' and '.join(differing)}; "
            "stop that one first (from distributedlog.spark.session.session import close; close())"
        )
    return SparkSession(context)


def require_packages(*, with_connect: bool = False) -> None:
    needed = {"pyspark": "spark", "pyarrow": "spark", "pandas": "spark"}
    if with_connect:
        needed |= {"grpc": "spark", "yaml": "spark"}
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise SparkNotReadyError(
            f"Spark needs Python packages that are not installed ({', '.join(missing)}); "
            "pip install 'distributedlog[spark]' brings them"
        )


def is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def workers_seconds(master: str, settings: Mapping[str, str]) -> float | None:
    """Returns how long the first worker is waited for; None: without an end, as where others are before us in
    a queue (YARN, Kubernetes)."""
    from distributedlog.spark.session.workers import SECONDS_MAX

    text = settings.get(WORKERS_SECONDS)
    if text is None:
        return SECONDS_MAX if master.startswith(STANDALONE) else None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise ConfigError(f"{WORKERS_SECONDS}: {text!r} is no number of seconds")
    return seconds


def settings_for(
    app_name: str, master: str, directory: str | None, *, with_connect: bool = False
) -> dict[str, str]:
    """Returns what Spark is told, before what the caller says himself."""
    settings = {
        "spark.app.name": app_name,
        "spark.master": master,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        FILTER_PUSHDOWN: "true",  # for what it does beside (`replanning`)
    }
    if is_local(master):
        cores = str(min(8, os.cpu_count() or 2))
        settings |= {
            "spark.sql.shuffle.partitions": cores,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            # One rename instead of a directory listing per file: Hadoop's FileContext costs 100 ms a batch.
            # On files of this machine both are safe; elsewhere Spark decides by the file system.
            "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming."
            "checkpointing.FileSystemBasedCheckpointFileManager",
        }
    if directory is not None:
        settings |= {
            "spark.sql.catalogImplementation": "hive",
            "spark.sql.warehouse.dir": place_of(os.path.join(directory, "warehouse")),
            "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:;databaseName="
            + os.path.join(os.path.abspath(directory), "metastore")
            + ";create=true",
        }
    if with_connect:
        settings |= {
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
            # Isolated, every client has Python workers of its own, which stay when it has gone: with a client
            # for each run of a pipeline that is eight processes and 320 MB more each time.
            "spark.sql.artifact.isolation.enabled": "false",
            # A flow that failed has waited for its brokers by then (the client's timeouts); to try it twice
            # more at once only says the same three times later.
            "spark.sql.pipelines.maxFlowRetryAttempts": "0",
        }
    return settings


def settings_for_logs(directory: str | None) -> str:
    """Options for the JVM: our logging, and Derby's own log beside its database."""
    options = [
        "-Dlog4j2.configurationFile=" + Path(__file__).absolute().with_name("log4j2.properties").as_uri()
    ]
    if directory is not None:
        options += ["-Ddlog.spark.level=warn", f"-Dderby.system.home={_quoted(os.path.abspath(directory))}"]
    return " ".join(options)


def _quoted(path: str) -> str:
    return f'"{path}"' if " " in path else path


def place_of(path: str) -> str:
    """A file's place as Hadoop wants it: a blank is a blank, not %20."""
    return "file://" + os.path.abspath(path)


def _prepare_environment(java: Java, master: str, *, with_connect: bool) -> None:
    os.environ["JAVA_HOME"] = java.home
    name_workers_python(os.environ, is_local=is_local(master))
    if is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # a laptop's name may lead nowhere
    if with_connect:
        os.environ.setdefault(TOKEN_VARIABLE, uuid.uuid4().hex)


def _hush_exceptions() -> None:
    """Keeps Pyspark from logging each refused query to stderr, with Java's stack in one line, before it
    raises the same."""
    from pyspark.logger import PySparkLogger

    for name in LOGGERS_OF_EXCEPTIONS:
        PySparkLogger.getLogger(name).disabled = True


def _take(directory: str | None) -> None:
    """Locks the directory for this process."""
    global _lock
    if directory is None:
        return
    os.makedirs(directory, exist_ok=True)
    descriptor = os.open(os.path.join(directory, LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise DirectoryLockedError(
            f"another process has a Spark session on {directory}; wait for it or stop it"
        ) from None
    _lock = descriptor


def _passing_warehouse() -> str:
    """Returns where a session without a directory would put tables; Spark makes it if there are any."""
    global _passing
    if _passing is None:
        _passing = os.path.join(tempfile.gettempdir(), f"dlog-spark-{uuid.uuid4().hex}")
        atexit.register(shutil.rmtree, _passing, ignore_errors=True)
    return _passing


def close() -> None:
    """Ends the session and its JVM; nothing is left of it.  A process may start another one afterwards."""
    global _lock
    if "pyspark" in sys.modules:
        from pyspark import SparkContext

        context, gateway = SparkContext._active_spark_context, SparkContext._gateway
        if context is not None:
            _call_for_a_while(context.stop)  # executors that do not answer are waited for without end
        if gateway is not None:
            _end_jvm(gateway)
            SparkContext._active_spark_context = None
            SparkContext._gateway = None
            SparkContext._jvm = None
    pass_on_last_words()
    if _passing is not None:
        shutil.rmtree(_passing, ignore_errors=True)
    if _lock is not None:
        os.close(_lock)
        _lock = None


def _call_for_a_while(stop: Callable[[], object]) -> None:
    """Calls it, and goes on without it if it does not come back: what it was to end, ends with the JVM."""

    def call() -> None:
        with contextlib.suppress(Exception):  # the JVM may be gone already
            stop()

    calling = threading.Thread(target=call, daemon=True)
    calling.start()
    calling.join(JVM_TIMEOUT_SECONDS)


def _end_jvm(gateway: object) -> None:
    import subprocess

    process = getattr(gateway, "proc", None)
    _call_for_a_while(gateway.shutdown)  # type: ignore[attr-defined]
    if process is None:
        return
    if process.stdin is not None:
        process.stdin.close()
    try:
        # A JVM that writes an archive of its classes takes its time to end.
        process.wait(JVM_TIMEOUT_SECONDS if MADE_BY not in os.environ else None)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
