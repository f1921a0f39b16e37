"""Runs seeded simulations: `python -m tests.simulation --kind raft --seed 1 --runs 20 --seconds 30`.

Prints each seed with what happened in it, and at the end logical hours per wall hour.  A failure prints
its seed, the invariant that broke and the last part of the trace, and ends with exit code 1; the same seed
gives the same trace.
"""

import argparse
import sys
import time
from collections.abc import Callable

from tests.simulation import control_faults, faults, groups_faults
from tests.simulation.brokers import replication_faults as brokers_faults
from tests.simulation.brokers.cluster import BrokersCluster
from tests.simulation.brokers.sinks.cluster import SinksCluster
from tests.simulation.brokers.transactions import faults as transactions_faults
from tests.simulation.brokers.transactions.cluster import TransactionsCluster
from tests.simulation.checkers import InvariantError
from tests.simulation.control_cluster import ControlCluster
from tests.simulation.groups_cluster import GroupsCluster
from tests.simulation.raft_cluster import RaftCluster

CLUSTERS: dict[str, Callable[[int, int | None, str | None], RaftCluster | ControlCluster | GroupsCluster]] = {
    "raft": RaftCluster,
    "control": ControlCluster,
    "groups": GroupsCluster,
    "brokers": BrokersCluster,
    "transactions": TransactionsCluster,
    "sinks": SinksCluster,
}
FLAVOURS = {
    "raft": faults.FLAVOURS,
    "control": control_faults.FLAVOURS,
    "groups": groups_faults.FLAVOURS,
    "brokers": brokers_faults.FLAVOURS,
    "transactions": transactions_faults.FLAVOURS,
    "sinks": transactions_faults.FLAVOURS,
}


def main() -> int:
    arguments = _parse()
    started, started_cpu = time.monotonic(), time.process_time()
    runs, failed = 0, []
    for seed in range(arguments.seed, arguments.seed + arguments.runs):
        runs += 1
        error = _run(seed, arguments)
        if error is not None and _is_looked_for(error, arguments.until):
            failed.append(seed)
            if not arguments.keep_going:
                break
    wall_s, cpu_s = time.monotonic() - started, time.process_time() - started_cpu
    per_wall, per_cpu = runs * arguments.seconds / wall_s, runs * arguments.seconds / cpu_s
    print(f"{runs} runs of {arguments.seconds} s in {wall_s:.1f} s")
    print(f"{per_wall:.0f} logical hours per wall hour, {per_cpu:.0f} per hour of processor time")
    if failed:
        print(f"failed seeds: {' '.join(map(str, failed))}")
    return 1 if failed else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--kind", choices=list(FLAVOURS), default="raft", help="what is simulated")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--runs", type=int, default=20, help="how many seeds, one after the other")
    parser.add_argument("--seconds", type=int, default=30, help="virtual seconds of each run")
    parser.add_argument("--nodes", type=int, choices=(3, 5), help="voters at the start; by default drawn")
    parser.add_argument("--flavour", help="the kind of faults; by default drawn")
    parser.add_argument("--trace", type=int, default=120, help="lines of trace to print after a failure")
    parser.add_argument("--until", help="count only failures of these invariants, with ' / ' between them")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure")
    arguments = parser.parse_args()
    flavours = FLAVOURS[arguments.kind]
    if arguments.flavour not in (None, *flavours):
        parser.error(f"the flavours of {arguments.kind} are {', '.join(flavours)}")
    return arguments


def _is_looked_for(error: Exception, invariants: str | None) -> bool:
    if invariants is None:
        return True
    return isinstance(error, InvariantError) and error.invariant in invariants.split(" / ")


def _run(seed: int, arguments: argparse.Namespace) -> Exception | None:
    cluster = CLUSTERS[arguments.kind](seed, arguments.nodes, arguments.flavour)
    try:
        report = cluster.run(arguments.seconds)
    except Exception as error:
        print(f"seed {seed} FAILED ({cluster.flavour}) {type(error).__name__}: {error}")
        for line in cluster.trace.lines(arguments.trace):
            print(line)
        return error
    print(
        f"seed {seed} ok: {report.flavour}, {report.nodes} nodes, {report.terms} terms, "
        f"{report.decided} decided, {report.operations} operations, "
        f"{report.messages} messages, {report.events} events"
    )
    return None


if __name__ == "__main__":
    sys.exit(main())
