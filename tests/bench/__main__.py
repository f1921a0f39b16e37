"""`python -m tests.bench [SECTION ...]`: runs the sections and prints their figures."""

import importlib
import math
import platform
import sys

from rich.console import Console
from rich.table import Table

from distributedlog.records import kernel
from tests.bench.figures import Figure

SECTIONS = {
    "log": ("tests.bench.log", "tests.bench.codec", "tests.bench.compaction"),
    "protocol": ("tests.bench.protocol",),
    "control": ("tests.bench.control",),
    "broker": ("tests.bench.broker",),
    "groups": ("tests.bench.groups",),
    "hostile": ("tests.bench.hostile",),
    "flat": ("tests.bench.flat",),
    "upkeep": ("tests.bench.upkeep",),
    "spark": ("tests.bench.spark", "tests.bench.spark_sink"),
}


def run(section: str, console: Console) -> None:
    table = Table("figure", "value", "aim", "", title=f"section {section}", title_justify="left")
    for module in SECTIONS[section]:
        with console.status(module):
            figures: list[Figure] = importlib.import_module(module).run()
        for figure in figures:
            mark = {None: "", True: "reached", False: "MISSED"}[figure.reached]
            value = "" if math.isnan(figure.value) else f"{figure.value:,.2f} {figure.unit}"
            table.add_row(figure.name, value, figure.aim, mark)
    console.print(table)


def main() -> int:
    console = Console(width=120)
    wanted = sys.argv[1:] or list(SECTIONS)
    unknown = [name for name in wanted if name not in SECTIONS]
    if unknown:
        console.print(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
        return 2
    console.print(f"Python {platform.python_version()}, record kernel {kernel.FORM}")
    for section in wanted:
        run(section, console)
    return 0


if __name__ == "__main__":
    sys.exit(main())
