"""`python -m tests.bench [--case TEXT] [SECTION ...]`: runs the sections' cases and prints their figures.

Beside each case stands how busy the machine was.  A case that fails is printed with its cause, the others go
on, and the exit code is 1.
"""

import argparse
import importlib
import math
import platform
import sys

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from distributedlog.records import kernel
from tests.bench.harness import DISTURBED, Bench, CaseReport

SECTIONS = {
    "log": ("tests.bench.log", "tests.bench.codec", "tests.bench.compaction"),
    "protocol": ("tests.bench.protocol",),
    "control": ("tests.bench.control",),
    "broker": ("tests.bench.broker",),
    "cluster": ("tests.bench.cluster",),
    "groups": ("tests.bench.groups",),
    "transactions": ("tests.bench.transactions",),
    "hostile": ("tests.bench.hostile",),
    "flat": ("tests.bench.flat",),
    "maintenance": ("tests.bench.maintenance",),
    "client": ("tests.bench.client",),
    "spark": ("tests.bench.spark", "tests.bench.spark_sink", "tests.bench.spark_pipeline"),
}


def add_report(table: Table, report: CaseReport) -> None:
    for figure in report.figures:
        mark = {None: "", True: "reached", False: "MISSED"}[figure.reached]
        value = "" if math.isnan(figure.value) else f"{figure.value:,.2f} {figure.unit}"
        table.add_row(figure.name, value, figure.aim, mark)
    if report.cause:
        table.add_row(escape(f"{report.name}: {report.cause}"), "", "", "FAILED", style="bold red")
    if report.machine:
        mark, style = ("disturbed", "yellow") if report.is_disturbed(DISTURBED) else ("", "dim")
        table.add_row(f"  {report.name}: {report.machine}", "", "", mark, style=style)
    table.add_section()


def run(section: str, only: str, console: Console) -> list[CaseReport]:
    """Those that failed.  What is known is printed even if somebody interrupts it."""
    with console.status(section) as status:
        bench = Bench(only=only, on_begin=lambda name: status.update(f"{section}: {name}"))
        try:
            for module in SECTIONS[section]:
                status.update(module)
                bench.section(module, importlib.import_module(module).run)
        finally:
            table = Table("figure", "value", "aim", "", title=f"section {section}", title_justify="left")
            for report in bench.reports:
                add_report(table, report)
            console.print(table)
    return bench.failures


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; all if none"
    )
    parser.add_argument("--case", default="", metavar="TEXT", help="only cases with this in their name")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    return arguments


def main() -> int:
    arguments = parse_arguments()
    console = Console(width=120)
    console.print(f"Python {platform.python_version()}, record kernel {kernel.FORM}")
    failures = [
        report
        for section in arguments.sections or SECTIONS
        for report in run(section, arguments.case, console)
    ]
    for report in failures:
        console.rule(escape(f"{report.name} failed"), align="left")
        console.print(report.trace, markup=False, highlight=False)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
