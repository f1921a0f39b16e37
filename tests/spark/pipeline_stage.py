"""A project that is edited between runs of one session: what each run says goes to stdout, as JSON.

python -m tests.spark.pipeline_stage PROJECT

The project is what `dlog pipeline init` writes.  One session for all of it, because starting Spark is what
costs; a process of its own, because a process has just one session.
"""

import json
import sys
from pathlib import Path

from distributedlog.model.errors import ConfigError
from distributedlog.pipelines.project import find_project
from distributedlog.pipelines.runner import Runner
from distributedlog.spark.session.session import QUICK_START

CONFIG = {**QUICK_START, "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}


class Stage:
    def __init__(self, directory: str, runner: Runner) -> None:
        self._runner = runner
        self._files = {
            path.name: path
            for path in sorted((Path(directory) / "transformations").iterdir())
            if path.is_file()
        }
        self._texts = {name: path.read_text() for name, path in self._files.items()}

    def edit(self, name: str, before: str, after: str) -> None:
        assert before in self._texts[name], before
        self._files[name].write_text(self._texts[name].replace(before, after, 1))

    def restore(self) -> None:
        for name, path in self._files.items():
            path.write_text(self._texts[name])

    def run(self, step: str, *full_refresh: str) -> None:
        try:
            outcome = self._runner.run_once(full_refresh)
            told = {"state": outcome.state, "error": outcome.error, "milliseconds": outcome.milliseconds}
        except ConfigError as error:
            told = {"state": "refused", "error": str(error)}
        self._runner.spark.catalog.refreshTable("orders_per_minute")  # another session may have made it anew
        windows = self._runner.spark.sql("SELECT country, sum(orders) FROM orders_per_minute GROUP BY 1")
        print(json.dumps({"step": step, **told, "windows": dict(map(tuple, windows.collect()))}), flush=True)

    def broken(self, step: str, name: str, before: str, after: str) -> None:
        self.edit(name, before, after)
        self.run(step)
        self.restore()

    def validate(self, step: str) -> None:
        found = self._runner.validate()
        flows = {flow.name: flow.inputs for flow in found.graph.flows} if found.graph is not None else {}
        print(json.dumps({"step": step, "problems": found.problems, "flows": flows}), flush=True)


def main(directory: str) -> None:
    def warn(message: str) -> None:
        print(json.dumps({"step": "warning", "message": message}), flush=True)

    with Runner(find_project(directory), master="local[2]", config=CONFIG, warn=warn) as runner:
        stage = Stage(directory, runner)
        stage.run("first")
        stage.validate("valid")
        stage.broken("column", "orders.py", '"customer", "country", "cents"', '"custmer", "country", "cents"')
        stage.broken("sql column", "orders_per_minute.sql", "  country,", "  contry,")
        stage.broken("syntax", "orders_per_minute.sql", "SELECT", "SELEC")
        stage.broken("python", "orders.py", 'F.col("value").cast("string")', "undefined_name")
        stage.edit(
            "orders.py", '"customer", "country", "cents"', '"customer", "country", F.lit("").alias("cents")'
        )
        stage.validate("invalid")
        stage.run("type")
        stage.restore()
        stage.broken("no topic", "orders.py", 'spark.conf.get("dlog.topic"))', '"nowhere")')
        stage.run("no table", "oders")
        stage.run("refresh", "orders")
        stage.run("next")
        stage.edit(
            "orders.py",
            '"customer", "country", "cents"',
            '"customer", "country", F.raise_error("order").cast("long").alias("cents")',
        )
        stage.run("while it runs", "orders")


if __name__ == "__main__":
    main(*sys.argv[1:])
