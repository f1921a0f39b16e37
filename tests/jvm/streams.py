"""Kafka Streams: its jars, by Maven, kept in .bench/, and a word count that is compiled with them."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.bench.broker_kafka import FETCH_SECONDS_MAX, KAFKA_VERSION, LeftOutError

HOME: Final = Path(__file__).parents[2] / ".bench" / f"kafka-streams-{KAFKA_VERSION}"
SOURCE: Final = Path(__file__).parent / "WordCount.java"
COMPILE_SECONDS_MAX: Final = 120
_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>bench</groupId><artifactId>kafka-streams</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId><version>{0}</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
"""


def fetch_streams() -> Path:
    """The directory of the jars.  Raises LeftOutError if they cannot be had."""
    libraries = HOME / "libs"
    if not shutil.which("javac"):
        raise LeftOutError("there is no javac")
    if not (HOME / "complete").is_file():
        if not shutil.which("mvn"):
            raise LeftOutError("there is no mvn to bring its jars")
        HOME.mkdir(parents=True, exist_ok=True)
        (HOME / "pom.xml").write_text(_POM.format(KAFKA_VERSION))
        command = ["mvn", "-q", "-B", "-f", str(HOME / "pom.xml"), "dependency:copy-dependencies"]
        try:
            subprocess.run(
                [*command, f"-DoutputDirectory={libraries}", "-DincludeScope=runtime"],
                check=True, capture_output=True, timeout=FETCH_SECONDS_MAX,
            )  # fmt: skip
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise LeftOutError("Maven could not bring its jars") from error
        (HOME / "complete").touch()
    return libraries


def compile_word_count(directory: Path) -> str:
    """Compiles the program; the class path to run `WordCount` with."""
    classpath = f"{directory}:{fetch_streams()}/*"
    subprocess.run(
        ["javac", "-cp", classpath, "-d", str(directory), str(SOURCE)],
        check=True, timeout=COMPILE_SECONDS_MAX,
    )  # fmt: skip
    return classpath
