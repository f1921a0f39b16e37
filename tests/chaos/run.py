"""One run: brokers start, clients work, faults come and are healed, the history is judged and reported.

Two threads: this one takes in what the clients tell; the other makes the planned faults and heals them.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from tests.chaos.clients import GROUPS, clients_of, describe_clients
from tests.chaos.cluster import Cluster
from tests.chaos.errors import describe_errors
from tests.chaos.gaps import describe_gaps
from tests.chaos.judging import PATIENCE_SECONDS, judge, settle
from tests.chaos.load import ChaosLoad
from tests.chaos.modes import SAFE, Mode
from tests.chaos.nemeses import ENDING, MAKERS
from tests.chaos.nemeses.stage import Nemesis, Stage
from tests.chaos.schedule import Planned, draw
from tests.chaos.timeline import Happened, draw_timeline
from tests.chaos.transactions import TOPICS, TransactionalClients
from tests.reliability.checker import Finding, describe, figures
from tests.reliability.history import History
from tests.reliability.programs.java.compiled import compile_programs

TOPIC, PARTITIONS = "orders", 3
PAUSE_MS = 10
"""How long a producer rests after each record: more would only make the machine slow."""
START_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    seconds: float
    brokers: int
    mode: Mode = SAFE
    nemeses: Sequence[str] = ()
    """Those that are drawn from; none: those of the mode, or all."""
    has_java: bool = False
    """Whether Apache Kafka's own Java clients take part, of which the jars must be there."""


@dataclass(slots=True)
class Report:
    plan: Plan
    history: History
    faults: list[Happened]
    findings: list[Finding]
    picture: Path
    notes: list[str] = field(default_factory=list)

    @property
    def is_as_expected(self) -> bool:
        return self.plan.mode.is_as_expected(self.findings)

    def __str__(self) -> str:
        plan = self.plan
        counts = Counter(fault.nemesis for fault in self.faults)
        faults = ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"
        return "\n".join(
            [
                f"seed {plan.seed}, {plan.mode.name}, {plan.brokers} brokers, {plan.seconds:.0f} s",
                f"operations: {figures(self.history)}",
                f"faults: {len(self.faults)} ({faults})",
                *self.notes,
                describe_gaps(self.history),
                f"anomalies: {len(self.findings)}",
                *([describe(self.findings)] if self.findings else []),
                f"picture: {self.picture}",
            ]
        )


class Faults(threading.Thread):
    """Makes the faults that are planned, and heals each when its time is over."""

    def __init__(self, cluster: Cluster, planned: Sequence[Planned], begun_ns: int) -> None:
        super().__init__(name="nemeses", daemon=True)
        self.happened: list[Happened] = []
        self.error: BaseException | None = None
        self._cluster = cluster
        self._begun_ns = begun_ns
        self._planned = planned

    def now_s(self) -> float:
        return (time.monotonic_ns() - self._begun_ns) / 1e9

    def run(self) -> None:
        under_way: list[tuple[float, Planned, Nemesis, float, str]] = []
        try:
            for planned in self._planned:
                self._heal_until(planned.begins_s, under_way)
                self._sleep_until(planned.begins_s)
                stage = Stage(self._cluster, Random(planned.seed), TOPIC, PARTITIONS, GROUPS[0])
                nemesis = MAKERS[planned.nemesis](stage)
                begun_s = self.now_s()
                what = nemesis.begin()
                print(f"{begun_s:7.1f} s  {planned.nemesis}: {what}, {planned.lasts_s:.1f} s", flush=True)
                under_way.append((planned.ends_s, planned, nemesis, begun_s, what))
            self._heal_until(float("inf"), under_way)
        except BaseException as error:
            self.error = error

    def _heal_until(self, time_s: float, under_way: list[tuple[float, Planned, Nemesis, float, str]]) -> None:
        """Heals, in the order of their ends, what ends before that time."""
        under_way.sort(key=lambda each: each[0])
        while under_way and under_way[0][0] <= time_s:
            ends_s, planned, nemesis, begun_s, what = under_way.pop(0)
            self._sleep_until(ends_s)
            nemesis.heal()
            self._cluster.start_those_ended()
            self.happened.append(Happened(planned.nemesis, what, begun_s, self.now_s()))

    def _sleep_until(self, time_s: float) -> None:
        time.sleep(max(0.0, time_s - self.now_s()))


def run(plan: Plan, directory: Path) -> Report:
    planned = draw(plan.seed, plan.seconds, plan.nemeses or plan.mode.nemeses or tuple(MAKERS))
    taking = clients_of(plan.seed, has_java=plan.has_java)
    if plan.has_java:
        compile_programs()
    with Cluster(directory, plan.brokers, {}) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS, plan.mode.replicas, plan.mode.topic_config)
        with ChaosLoad(cluster.bootstrap, TOPIC, PARTITIONS, directory) as load:
            load.environment = {
                **os.environ,
                "DLOG_LOAD_ACKS": plan.mode.acks,
                "DLOG_LOAD_PAUSE_MS": str(PAUSE_MS),
                "DLOG_LOAD_CARELESS": "1" if plan.mode.is_careless else "0",
            }
            transactions = TransactionalClients(
                load, cluster, is_careless=plan.mode.is_careless, clients=taking.transactional
            )
            if plan.mode.has_transactions:
                transactions.start()  # first: its topics are made before all that starts takes the machine
            for program, name in taking.plain:
                load.start(program, name)
            late = load.all_get_on(START_SECONDS)
            assert not late, f"these never began: {late}"
            begun_ns = time.monotonic_ns()
            faults = Faults(cluster, planned, begun_ns)
            faults.start()
            load.take(plan.seconds)
            while faults.is_alive():
                load.take(0.2)
            if faults.error is not None:
                raise faults.error
            cluster.heal()

            def settle_others() -> list[Finding]:
                found = cluster.moves.judge(PATIENCE_SECONDS)
                if plan.mode.has_transactions:
                    transactions.settle()
                return found

            history, found = settle(
                load, cluster, TOPIC, PARTITIONS, taking.groups, settle_others=settle_others
            )
        history = replace(history, final={**history.final, **transactions.final})
        ends_brokers = any(each.nemesis in ENDING for each in planned)
        findings = found + judge(history, load, cluster, ends_brokers=ends_brokers, transactional=TOPICS)
        if plan.mode.has_transactions:
            findings += transactions.judge(history)
    picture = directory / "timeline.svg"
    title = f"seed {plan.seed}: {len(faults.happened)} faults, {len(findings)} anomalies"
    picture.write_text(draw_timeline(faults.happened, history, begun_ns, title), encoding="utf-8")
    notes = [describe_clients(history), describe_errors(load.gathered.met)]
    report = Report(plan, history, faults.happened, findings, picture, notes)
    (directory / "report.txt").write_text(f"{report}\n", encoding="utf-8")
    return report
