"""The long forms by hand: `python -m tests.system.failover KIND --count N`; the figures are printed.

leader, controller, stop, twice             faults of brokers that lead (`kills`)
rolling-restart, split-leader, …            stories under clients of four kinds (`stories`)
all                                         all brokers killed at once, with N partitions (`kill_all`)
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tests.reliability.checker import describe as describe_findings
from tests.system.dev_cluster import DevCluster
from tests.system.failover.figures import QUIET, RESTARTS, describe, judge_restarts, measure
from tests.system.failover.kill_all import kill_all
from tests.system.failover.kills import KINDS, Kills
from tests.system.failover.stories import STORIES, Stories
from tests.system.replication.stage import Replicated


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.system.failover", description=__doc__)
    parser.add_argument("kind", choices=(*KINDS, *STORIES, "all"))
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1, help="of stories: which broker, in which order")
    parser.add_argument("--directory", type=Path, default=None, help="where the nodes' logs are kept")
    given = parser.parse_args()
    directory = given.directory or Path(tempfile.mkdtemp(prefix="failover-"))
    directory.mkdir(parents=True, exist_ok=True)
    print_now(f"{given.kind}, {given.count}, seed {given.seed}, load {os.getloadavg()[0]:.1f}: {directory}")
    if given.kind in STORIES:
        return play(given.kind, given.count, given.seed, directory)
    arguments = ("--brokers", 3, "--data-dir", directory / "data", "--port", 0, "--no-gateway")
    with DevCluster(directory / "ready.json", *arguments) as cluster:
        replicated = Replicated(cluster, directory)
        if given.kind == "all":
            print_now(str(kill_all(replicated, given.count)))
        else:
            found = Kills(replicated, given.kind).run(given.count, print_now)
            print_now(f"{given.kind}: {found}; {found.acknowledged} acknowledged, none lost, none twice")
    print_now(f"load {os.getloadavg()[0]:.1f}")
    return 0


def play(kind: str, count: int, seed: int, directory: Path) -> int:
    with Stories(directory, seed, print_now) as stories:
        for _ in range(count):
            stories.play(QUIET)  # by which the others are measured
            stories.play(kind)
        history, found = stories.finish()
    figures = measure(history, stories.spans)
    print_now(describe(figures))
    if kind == RESTARTS:
        found += judge_restarts(figures)
    print_now(f"anomalies: {len(found)}\n{describe_findings(found)}")
    return 1 if found else 0


def print_now(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
