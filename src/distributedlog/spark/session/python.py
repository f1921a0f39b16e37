"""The Python of Spark's workers, started so that it loads compiled modules.

Spark puts its own `pyspark.zip` before everything on the path of the Python processes it starts.  A zip holds
no compiled modules, so each process compiles pyspark anew: 0.6 seconds of CPU, four times until the first row
of a topic is there (a process that finds sources, one that makes ours, one that plans it, one that reads).
The same pyspark lies beside it, compiled when it was installed.

So on this machine workers are started by a launcher, a small shell script that takes the zip, py4j's, and
the jar that stands there too from PYTHONPATH, and becomes the Python of this process.  What others put on
the path stays.

    CACHE/python/KEY      KEY: what the launcher says

Not where the environment names a Python or a Spark of its own, nor on a cluster, whose machines have other
places; nor where the cache cannot be written or run from.
"""

import contextlib
import hashlib
import os
import shlex
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from distributedlog.spark.session.java import cache_home

PYTHON_VARIABLES: Final = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
LAUNCHER: Final = """\
#!/bin/sh
# Starts the Python of Spark's workers without Spark's zip files on its path: the same modules, compiled.
set -f
kept=
IFS=:
for each in $PYTHONPATH; do
  case $each in
    {home}/python/lib/*.zip | {home}/jars/*.jar) ;;
    *) kept=$kept${{kept:+:}}$each ;;
  esac
done
unset IFS
PYTHONPATH=$kept
export PYTHONPATH
exec {python} "$@"
"""


def name_workers_python(environment: dict[str, str] | os._Environ[str], *, is_local: bool) -> None:
    """Says which Python workers are, unless somebody else has."""
    launcher = launcher_path(environment)
    ours = (None, sys.executable, launcher)
    python = make_launcher(environment) if is_local else None
    for variable in PYTHON_VARIABLES:
        if environment.get(variable) in ours:
            environment[variable] = python or sys.executable


def launcher_path(environment: Mapping[str, str]) -> str | None:
    """Returns the path; None where workers are started without one."""
    spark = find_spec("pyspark")
    if spark is None or spark.origin is None or environment.get("SPARK_HOME"):
        return None
    key = hashlib.sha256(_text(spark.origin).encode()).hexdigest()[:16]
    return os.path.join(cache_home(environment), "python", key)


def _text(origin: str) -> str:
    home = os.path.dirname(origin)
    return LAUNCHER.format(home=shlex.quote(home), python=shlex.quote(sys.executable))


def make_launcher(environment: Mapping[str, str]) -> str | None:
    """Its path, or None if it cannot be run."""
    path = launcher_path(environment)
    spark = find_spec("pyspark")
    if path is None or spark is None or spark.origin is None:
        return None
    if not os.path.exists(path):
        fresh = f"{path}.{os.getpid()}"
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            Path(fresh).write_text(_text(spark.origin), encoding="utf-8")
            os.chmod(fresh, 0o755)  # noqa: S103 (it is there to be run)
            os.replace(fresh, path)
    return path if os.access(path, os.X_OK) else None
