"""`make chaos`: one run; exit code 1 if it found what it must not find, or not what it must."""

import argparse
import shutil
import sys
import time
from pathlib import Path

from tests.chaos.modes import MODES
from tests.chaos.nemeses import MAKERS
from tests.chaos.run import Plan, run
from tests.reliability.programs.java.compiled import are_in_place

ROOT = Path(__file__).parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=None, help="drawn by the clock if it is not given")
    parser.add_argument("--brokers", type=int, choices=(3, 5), default=3)
    parser.add_argument("--nemeses", default="", help=f"a list with commas, of {', '.join(MAKERS)}")
    parser.add_argument("--mode", choices=tuple(MODES), default="safe")
    parser.add_argument(
        "--java",
        choices=("auto", "yes", "no"),
        default="auto",
        help="Kafka's own Java clients: where their jars are there already, brought by Maven, or not at all",
    )
    given = parser.parse_args()
    nemeses = tuple(filter(None, given.nemeses.split(",")))
    if unknown := set(nemeses) - set(MAKERS):
        parser.error(f"there are no such nemeses: {', '.join(sorted(unknown))}")
    seed = int(time.time()) if given.seed is None else given.seed
    directory = ROOT / ".chaos" / f"seed-{seed}"
    shutil.rmtree(directory, ignore_errors=True)
    print(f"seed {seed}: {directory}", flush=True)
    mode, has_java = MODES[given.mode], given.java == "yes" or (given.java == "auto" and are_in_place())
    report = run(Plan(seed, given.minutes * 60, given.brokers, mode, nemeses, has_java), directory)
    print(report)
    if report.plan.mode.must_find:
        print("the checker sees what it must" if report.is_as_expected else "THE CHECKER MISSED IT")
    return 0 if report.is_as_expected else 1


if __name__ == "__main__":
    sys.exit(main())
