"""Spark's own Kafka connector: its jars, brought by Maven and kept in .bench/.

Spark's build names a mirror of Maven Central that not every machine reaches: Central is asked in its name.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pyspark

from tests.bench.broker_kafka import FETCH_SECONDS_MAX, LeftOutError

VERSION: Final = pyspark.__version__
HOME: Final = Path(__file__).parents[2] / ".bench" / f"spark-kafka-{VERSION}"
_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>bench</groupId><artifactId>spark-kafka</artifactId><version>1</version><packaging>pom</packaging>
<repositories><repository><id>gcs-maven-central-mirror</id><url>https://repo.maven.apache.org/maven2</url>
</repository></repositories>
<dependencies><dependency><groupId>org.apache.spark</groupId>
<artifactId>spark-sql-kafka-0-10_2.13</artifactId><version>{}</version></dependency></dependencies></project>
"""


def fetch_connector() -> str:
    """The jars, as `spark.jars` wants them.  Raises LeftOutError if they cannot be had."""
    libraries = HOME / "libs"
    if not (HOME / "complete").is_file():
        if not shutil.which("mvn"):
            raise LeftOutError("there is no mvn to bring its jars")
        HOME.mkdir(parents=True, exist_ok=True)
        (HOME / "pom.xml").write_text(_POM.format(VERSION))
        command = ["mvn", "-q", "-B", "-f", str(HOME / "pom.xml"), "dependency:copy-dependencies"]
        try:
            subprocess.run(
                [*command, f"-DoutputDirectory={libraries}", "-DincludeScope=runtime"],
                check=True, capture_output=True, timeout=FETCH_SECONDS_MAX,
            )  # fmt: skip
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise LeftOutError("Maven could not bring its jars") from error
        (HOME / "complete").touch()
    own = Path(pyspark.__file__).parent / "jars"
    return ",".join(str(each) for each in sorted(libraries.glob("*.jar")) if not (own / each.name).exists())
