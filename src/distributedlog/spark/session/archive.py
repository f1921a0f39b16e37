"""Java's classes, loaded once and kept: an archive (AppCDS) with which Spark starts in a fraction of the CPU.

Most of Spark's start is Java reading, checking and linking thousands of classes out of jars.  A
JVM that is told so writes those it has loaded into an archive when it ends; later ones map that file.
Making it takes half a minute of CPU and 250 MB, so it is made when somebody asks for it (`dlog pipeline
prepare`, `make test`), never by the way; once it is there every session uses it.

    CACHE/java/VERSION-KEY.jsa      KEY: this Java's home and release, Spark's place, the archive's recipe

An archive that does not fit (another Java at the same place, jars that changed) is noticed by the JVM,
which then starts as without one.  A crash while it is made leaves a file with another name, which the next
attempt replaces.
"""

import hashlib
import os
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from distributedlog.spark.session.java import Java, cache_home

RECIPE: Final = "1"
"""Changed when what is archived changes."""
MADE_BY: Final = "DLOG_SPARK_ARCHIVE"
"""The variable with the file to write, in the environment of the process that makes one.  `off` means that
none is used."""
SILENCE: Final = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def archive_path(java: Java, environment: Mapping[str, str]) -> str:
    spark = find_spec("pyspark")
    about = "\n".join(
        [java.home, str(java.version), str(spark.origin if spark else ""), _release(java), RECIPE]
    )
    key = hashlib.sha256(about.encode()).hexdigest()[:16]
    return os.path.join(cache_home(environment), "java", f"{java.version}-{key}.jsa")


def _release(java: Java) -> str:
    try:
        with open(os.path.join(java.home, "release"), encoding="utf-8", errors="replace") as release:
            return release.read(65_536)
    except OSError:
        return ""


def archive_options(java: Java, environment: Mapping[str, str]) -> str:
    """Options for the JVM: to write an archive, to use one, or none if there is none."""
    path = environment.get(MADE_BY)
    if path == "off":
        return ""
    if path:
        return f"-XX:ArchiveClassesAtExit={_quoted(path)} {SILENCE}"
    path = archive_path(java, environment)
    return f"-XX:SharedArchiveFile={_quoted(path)} {SILENCE}" if os.path.exists(path) else ""


def _quoted(path: str) -> str:
    return f'"{path}"' if " " in path else path
