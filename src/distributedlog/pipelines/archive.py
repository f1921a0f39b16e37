"""Makes the archive with which Spark starts sooner (`spark/session/archive` says what that is).

    python -m distributedlog.pipelines.archive

A child process runs a small pipeline and a few queries, so that what people will need has been loaded, and
ends its JVM, which writes the archive.  It is given its name when it is whole.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from distributedlog.model.errors import SparkNotReadyError
from distributedlog.spark.session.archive import MADE_BY, archive_path
from distributedlog.spark.session.java import find_java

TIMEOUT_SECONDS: Final = 600.0
SPEC: Final = """\
name: archive
storage: file://{directory}/.dlog/storage
libraries:
  - glob:
      include: transformations/**
"""
DEFINITIONS: Final = """\
from pyspark import pipelines as dp
from pyspark.sql import functions as F

@dp.table
def raw():
    return spark.readStream.format("json").schema("value STRING, time TIMESTAMP").load("{directory}/in")

@dp.table
def parsed():
    told = F.from_json("value", "id INT, country STRING", {{"columnNameOfCorruptRecord": "_corrupt"}})
    rows = spark.readStream.table("raw").select("*", told.alias("parsed")).select("time", "parsed.*")
    return rows.where(F.is_valid_utf8("country") & F.get_json_object(F.lit("{{}}"), "$").isNotNull())
"""
WINDOW: Final = """\
CREATE STREAMING TABLE counted AS
SELECT country, window.start AS began, count(*) AS rows, sum(id) AS ids
FROM STREAM parsed WATERMARK time DELAY OF INTERVAL 10 SECONDS
GROUP BY country, window(time, '1 minute')
"""
QUERIES: Final = (
    "SELECT c.country, count(*) FROM parsed p JOIN counted c ON p.country = c.country GROUP BY 1 ORDER BY 1",
    "SELECT to_json(struct(*)), hex(encode(country, 'utf-8')), parse_json('{\"a\": 1}'):a::int FROM parsed",
    "SELECT k, count(*) FROM (SELECT id % 7 AS k FROM range(1000)) GROUP BY k",
)


def make_archive(*, anew: bool = False) -> tuple[str, bool]:
    """Returns the path of the archive, and whether it was made now."""
    path = archive_path(find_java(), os.environ)
    if os.path.exists(path) and not anew:
        return path, False
    os.makedirs(os.path.dirname(path), exist_ok=True)
    fresh = f"{path}.{os.getpid()}"
    try:
        done = subprocess.run(
            [sys.executable, "-m", "distributedlog.pipelines.archive", "--exercise"],
            env={**os.environ, MADE_BY: fresh},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        if done.returncode or not os.path.exists(fresh):
            reason = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
            raise SparkNotReadyError(f"the archive of Java's classes could not be made: {reason}")
        os.replace(fresh, path)
    finally:
        if os.path.exists(fresh):
            os.unlink(fresh)
    return path, True


def exercise() -> None:
    """Loads what pipelines and queries use."""
    from distributedlog.pipelines.project import find_project
    from distributedlog.pipelines.runner import Runner
    from distributedlog.spark.session.session import QUICK_START

    with tempfile.TemporaryDirectory(prefix="dlog-archive-") as directory:
        place = Path(directory)
        (place / "transformations").mkdir()
        (place / "in").mkdir()
        (place / "in" / "1.json").write_text(
            '{"value": "{\\"id\\": 1, \\"country\\": \\"NO\\"}", "time": "2026-01-31T12:00:00Z"}\n'
        )
        (place / "spark-pipeline.yml").write_text(SPEC.format(directory=directory))
        (place / "transformations" / "tables.py").write_text(DEFINITIONS.format(directory=directory))
        (place / "transformations" / "counted.sql").write_text(WINDOW)
        with Runner(find_project(directory), config=QUICK_START) as runner:
            outcome = runner.run_once()
            if outcome.error is not None:
                raise SparkNotReadyError(outcome.error)
            for query in QUERIES:
                runner.spark.sql(query).collect()
            list(runner.spark.sql(QUERIES[-1]).toLocalIterator())


def main() -> int:
    if "--exercise" in sys.argv:
        exercise()
        return 0
    path, is_new = make_archive()
    sys.stderr.write(f"{'made' if is_new else 'there already'}: {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
