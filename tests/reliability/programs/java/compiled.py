"""How a Java program is run: its classes are compiled once for what the sources and the jars are, and kept.

Classes are below .bench/ in a folder that the sources' hash names, which appears whole: whoever comes at the
same time compiles them, too, and comes too late.  The JVM is a small one, so that many fit on a machine.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from tests.bench.broker_kafka import HOME, KAFKA_VERSION, LeftOutError, fetch_kafka

SOURCES: Final = Path(__file__).parent
CLASSES: Final = HOME.parent / "java-programs"
COMPILE_SECONDS_MAX: Final = 300
JARS: Final = ("kafka-clients", "slf4j-api", "log4j-", "lz4-java", "snappy-java", "zstd-jni")
JVM: Final = (
    "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
    # That brokers are gone now and then is why these programs are run.
    "-Dlog4j2.level=OFF",
)  # fmt: skip


def are_in_place() -> bool:
    """Whether the jars are there already, and a JDK."""
    return bool(shutil.which("java") and shutil.which("javac")) and (HOME / "complete").is_file()


def name_of_classes(sources: Sequence[tuple[str, bytes]], version: str) -> str:
    """Another one for other sources, or another version of Kafka."""
    digest = hashlib.sha256(version.encode())
    for name, content in sorted(sources):
        digest.update(f"\0{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def compile_programs() -> str:
    """The class path to run one with.  Raises LeftOutError if the jars or a compiler cannot be had."""
    libraries = fetch_kafka()
    jars = [str(jar) for jar in sorted(libraries.glob("*.jar")) if jar.name.startswith(JARS)]
    sources = sorted(SOURCES.glob("*.java"))
    classes = CLASSES / name_of_classes([(each.name, each.read_bytes()) for each in sources], KAFKA_VERSION)
    if not classes.is_dir():
        if not shutil.which("javac"):
            raise LeftOutError("there is no javac")
        _compile(sources, os.pathsep.join(jars), classes)
    return os.pathsep.join([str(classes), *jars])


def _compile(sources: Sequence[Path], class_path: str, classes: Path) -> None:
    CLASSES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CLASSES) as scratch:
        made = Path(scratch) / "classes"
        subprocess.run(
            ["javac", "-Xlint:all", "-Werror", "-cp", class_path, "-d", str(made), *map(str, sources)],
            check=True, timeout=COMPILE_SECONDS_MAX,
        )  # fmt: skip
        try:
            made.rename(classes)
        except OSError:  # somebody else was first
            if not classes.is_dir():
                raise


def command(program: str, *arguments: str) -> list[str]:
    return ["java", *JVM, "-cp", compile_programs(), program, *arguments]


def hand_over(program: str) -> NoReturn:
    """This process goes on as that program, with its own arguments."""
    asked = command(program, *sys.argv[1:])
    os.execvp(asked[0], asked)
