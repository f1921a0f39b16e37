"""Are a cluster's workers able to read topics?  They are asked before the first job fails in the middle.

The format "dlog" is Python that runs in the workers' Python: there, `distributedlog` with the extra `spark`
has to be installed as it is here, under the Python that `PYSPARK_PYTHON` (or `spark.pyspark.python`)
names.  A small job with some tasks per core tells, for each machine that got one, what it has.  Machines
that join later are not asked.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from distributedlog._version import __version__
from distributedlog.model.errors import SparkNotReadyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_MIN: Final = 8
COMPLAINTS_SHOWN_MAX: Final = 3


def check_workers(spark: "SparkSession") -> list[tuple[str, str]]:
    """(machine, its version of ours) of those that answered; `SparkNotReadyError` if one of them cannot
    work.
    """
    context = spark.sparkContext
    tasks = max(TASKS_MIN, 2 * context.defaultParallelism)
    try:
        told = context.parallelize(range(tasks), tasks).mapPartitions(looker()).collect()
    except Exception as error:
        raise SparkNotReadyError(
            f"the workers of {context.master} could not run Python tasks: {first_line(error)}; they need the "
            f"Python {context.pythonExec} (or name theirs: PYSPARK_PYTHON), of the same minor version as here"
        ) from error
    judge(str(context.master), told)
    return sorted({(machine, version) for machine, version, _ in told})


def judge(master: str, told: list[tuple[str, str, str]]) -> None:
    """Complains if a machine lacks something, or has another version of ours."""
    lacking = sorted({f"{machine}: {problem}" for machine, _, problem in told if problem})
    if lacking:
        shown = "; ".join(lacking[:COMPLAINTS_SHOWN_MAX])
        raise SparkNotReadyError(
            f"workers of {master} cannot read topics ({shown}); install the same there: "
            f"pip install 'distributedlog[spark]=={__version__}' (docs/pipelines.md, \"On a cluster\")"
        )
    others = sorted({f"{machine} has {version}" for machine, version, _ in told if version != __version__})
    if others:
        raise SparkNotReadyError(
            f"workers of {master} have another version of distributedlog than {__version__} here "
            f"({'; '.join(others[:COMPLAINTS_SHOWN_MAX])}); install the same everywhere"
        )


def first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def looker() -> Callable[[Iterable[Any]], Iterator[tuple[str, str, str]]]:
    """What runs on a worker: (machine, version, what is missing).

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
