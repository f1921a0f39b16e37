"""The long form by hand: `python -m tests.system.growing --count N --seed S`; what happened is printed.

Each round is a cluster of its own, with the next seed, which says who goes.  It ends with 1 at the first
round in which the checker, or a client, found anything.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.reliability.checker import describe, figures
from tests.system.growing.growth import LARGE, SMALL, Growth


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.system.growing", description=__doc__)
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--small", action="store_true", help="as little data and load as in `make test`")
    parser.add_argument("--directory", type=Path, default=None, help="where nodes and clients are kept")
    given = parser.parse_args()
    directory = given.directory or Path(tempfile.mkdtemp(prefix="growing-"))
    for seed in range(given.seed, given.seed + given.count):
        place = directory / f"seed-{seed}"
        place.mkdir(parents=True)
        print_now(f"seed {seed}, load {os.getloadavg()[0]:.1f}: {place}")
        begun = time.monotonic()
        with Growth(
            place, seed, SMALL if given.small else LARGE, lambda text: print_now(f"  {text}")
        ) as each:
            each.play()
            history, found = each.finish()
        print_now(f"  {figures(history)}; {time.monotonic() - begun:.0f} s")
        print_now(f"  anomalies: {len(found)}\n{describe(found)}")
        if found:
            return 1
    return 0


def print_now(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
