"""What `spark-defaults.conf` says, where it matters before Spark is started.

Spark reads the file itself, and a setting of ours replaces one that is there.  For options of the JVM that
would be wrong: who set `spark.driver.extraJavaOptions` for all programs (a proxy, a trust store) means this
one too.  So ours are put before those, and what `session(config=…)` says behind them: of two that contradict
each other Java takes the last.  Only of garbage collectors it allows no two: an earlier one is left out.

The file is that of SPARK_CONF_DIR, or `conf` under Spark's home, in the format of Java's properties: a name,
a separator (blanks, `=` or `:`) and the value; a backslash at the end goes on in the next line, but for
comments, and one elsewhere takes the meaning from what follows it.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
DEFAULTS_FILE: Final = "spark-defaults.conf"
FILE_BYTES_MAX: Final = 1024 * 1024
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w*GC\b")
_LINE: Final = re.compile(r"([^\s=:]+)\s*[\s=:]\s*(.*)", re.DOTALL)
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_GOES_ON: Final = re.compile(r"(?<!\\)(\\\\)*\\\Z")
_ESCAPED: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def default_java_options(environment: Mapping[str, str]) -> str:
    """Returns the options; empty if there are none, or no such file."""
    try:
        with (_conf_directory(environment) / DEFAULTS_FILE).open("rb") as file:
            text = file.read(FILE_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return ""
    return read_properties(text).get(JAVA_OPTIONS, "")


def _conf_directory(environment: Mapping[str, str]) -> Path:
    if directory := environment.get("SPARK_CONF_DIR"):
        return Path(directory)
    if home := environment.get("SPARK_HOME"):
        return Path(home) / "conf"
    from pyspark.find_spark_home import _find_spark_home

    return Path(str(_find_spark_home())) / "conf"


def read_properties(text: str) -> dict[str, str]:
    found = {}
    lines = iter(_LINE_END.split(text))
    for begun in map(str.lstrip, lines):
        if begun.startswith(("#", "!")):
            continue
        line = begun
        while _GOES_ON.search(line):
            line = line[:-1] + next(lines, "").lstrip()
        match = _LINE.fullmatch(line)
        if match is not None:
            found[match[1]] = _ESCAPED.sub(_meant, match[2]).strip()
    return found


def _meant(escaped: re.Match[str]) -> str:
    what = escaped[1]
    return chr(int(what[1:], 16)) if len(what) > 1 else _LETTERS.get(what, what)


def joined_java_options(*options: str) -> str:
    """Joins the options in their order; of garbage collectors only the last."""
    named = [bool(_COLLECTOR.search(each)) for each in options]
    last = max((at for at, is_named in enumerate(named) if is_named), default=0)
    kept = [_COLLECTOR.sub("", each) if at < last else each for at, each in enumerate(options)]
    return " ".join(filter(None, map(str.strip, kept)))
