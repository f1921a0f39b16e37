"""Are a cluster's workers able to read topics?  They are asked before the first job fails in the middle.

The format "dlog" is Python that runs in the workers' Python: there, `distributedlog` with the extra `spark`
has to be installed as it is here, under the Python that `PYSPARK_PYTHON` (or `spark.pyspark.python`)
names.  A small job with some tasks per core tells, for each machine that got one, what it has.  Machines
that join later are not asked.

Spark waits for ever for workers that do not come: a master without any, or whose workers have no cores or
memory left for this application.  A job that nobody has begun to work on after `seconds_max` is given up.
"""

import concurrent.futures
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from distributedlog._version import __version__
from distributedlog.model.errors import SparkNotReadyError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

SECONDS_MAX: Final = 60.0
"""How long a standalone cluster may take to give us a worker."""
LOOK_SECONDS: Final = 0.2
TASKS_MIN: Final = 8
COMPLAINTS_SHOWN_MAX: Final = 3


def check_workers(spark: "SparkSession", seconds_max: float | None = None) -> list[tuple[str, str]]:
    """Returns (machine, its version of ours) of those that answered; `SparkNotReadyError` if one of them
    cannot work, or if none has come after `seconds_max` (None: they are waited for).
    """
    context = spark.sparkContext
    try:
        reports = _ask(context, seconds_max)
    except SparkNotReadyError:
        raise
    except Exception as error:
        raise SparkNotReadyError(
            f"the workers of {context.master} could not run Python tasks: {first_line(error)}; they need the "
            f"Python {context.pythonExec} (or name theirs: PYSPARK_PYTHON), of the same minor version as here"
        ) from error
    judge(str(context.master), reports)
    return sorted({(machine, version) for machine, version, _ in reports})


def _ask(context: "SparkContext", seconds_max: float | None) -> list[tuple[str, str, str]]:
    answer: concurrent.futures.Future[list[tuple[str, str, str]]] = concurrent.futures.Future()

    def work() -> None:
        tasks = max(TASKS_MIN, 2 * context.defaultParallelism)
        try:
            answer.set_result(context.parallelize(range(tasks), tasks).mapPartitions(looker()).collect())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=work, name="dlog-check-workers", daemon=True).start()
    deadline = None if seconds_max is None else time.monotonic() + seconds_max
    while not answer.done():
        concurrent.futures.wait([answer], LOOK_SECONDS)
        if _has_worker(context):
            return answer.result()
        if deadline is not None and time.monotonic() > deadline and not answer.done():
            raise SparkNotReadyError(
                f"no worker of {context.master} has taken this application within {seconds_max:g} s: it has"
                " none (start-worker.sh starts one), or none with the cores and the memory that are asked for"
                " (spark.executor.cores, spark.executor.memory) left; its web page shows them"
            )
    return answer.result()


def _has_worker(context: "SparkContext") -> bool:
    """Is there an executor beside the driver?"""
    gateway: Any = context._jsc
    return int(gateway.sc().getExecutorMemoryStatus().size()) > 1


def judge(master: str, reports: list[tuple[str, str, str]]) -> None:
    """Complains if a machine lacks something, or has another version of ours."""
    lacking = sorted({f"{machine}: {problem}" for machine, _, problem in reports if problem})
    if lacking:
        shown = "; ".join(lacking[:COMPLAINTS_SHOWN_MAX])
        raise SparkNotReadyError(
            f"workers of {master} cannot read topics ({shown}); install the same there: "
            f"pip install 'distributedlog[spark]=={__version__}' (docs/pipelines.md, \"On a cluster\")"
        )
    others = sorted({f"{machine} has {version}" for machine, version, _ in reports if version != __version__})
    if others:
        raise SparkNotReadyError(
            f"workers of {master} have another version of distributedlog than {__version__} here "
            f"({'; '.join(others[:COMPLAINTS_SHOWN_MAX])}); install the same everywhere"
        )


def first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def looker() -> Callable[[Iterable[Any]], Iterator[tuple[str, str, str]]]:
    """Returns what runs on a worker: (machine, version, what is missing).

    It is made here and not a function of the module, because those are sent as names: a worker that has not
    got our package could not even begin.
    """

    def look_around(_: Iterable[Any]) -> Iterator[tuple[str, str, str]]:
        import importlib
        import socket

        version, problem = "", ""
        for name in ("distributedlog", "pyspark_dlog", "pyarrow"):
            try:
                module = importlib.import_module(name)
            except Exception as error:
                problem = f"no {name} ({error})"
                break
            if name == "distributedlog":
                version = module.__version__
        yield socket.gethostname(), version, problem

    return look_around
