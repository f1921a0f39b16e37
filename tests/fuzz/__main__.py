"""`python -m tests.fuzz [--executions N] [--seed S] [--only TEXT] [--keep]`: runs, and says what came of it.

`--keep` writes what came to something new into `corpus/inputs.jsonl`.
"""

import argparse
import sys
import time

from tests.fuzz.fuzzer import Fuzzer, resident_mb
from tests.fuzz.targets import all_targets


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--executions", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="targets whose name has this text")
    parser.add_argument("--keep", action="store_true", help="write the corpus")
    options = parser.parse_args()
    targets = [target for target in all_targets() if options.only in target.name]
    fuzzer = Fuzzer(targets, options.seed)
    known = fuzzer.load()
    outcomes_before = sum(len(pool.outcomes) for pool in fuzzer.pools)
    started, before_mb = time.perf_counter(), resident_mb()

    def tell(number: int) -> None:
        if number % 100_000 == 0 and sys.stderr.isatty():
            print(f"{number:,} executions", file=sys.stderr)

    fuzzer.run(options.executions, tell)
    seconds = time.perf_counter() - started
    outcomes = sum(len(pool.outcomes) for pool in fuzzer.pools)
    print(
        f"{options.executions:,} executions of {len(targets):,} targets in {seconds:,.0f} s "
        f"({options.executions / seconds:,.0f}/s), seed {options.seed}: no crash, "
        f"{resident_mb() - before_mb:+.0f} MB; {outcomes:,} outcomes, {outcomes - outcomes_before:,} of them "
        f"new beside a corpus of {known:,}"
    )
    if options.keep:
        print(f"{fuzzer.save():,} inputs kept")
    return 0


if __name__ == "__main__":
    sys.exit(main())
