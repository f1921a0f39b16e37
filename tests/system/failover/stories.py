"""What happens to brokers while clients of four kinds work, and what has to hold of all of it.

    rolling-restart   each broker is stopped with SIGTERM and started again, the next when it serves
    split-leader      a leader that is not the controller is cut off from all brokers, and not from clients
    split-controller  the active controller is cut off in the same way, with all that it leads
    coordinator       the coordinator of a group is moved to another broker, and the next one is killed
    power-cut         the power of all brokers is cut at once: what was not synced is gone

Producers, consumers and members of groups are the programs of tests/reliability, brokers and network those of
tests/chaos.  During a split everyone has to get on, on partitions of the broker that is cut off, before it is
healed.  In the end a fresh client reads everything and the checker judges: nothing acknowledged is lost,
nothing is there twice or out of order, no committed offset goes back, nobody is stuck.  Beside that no error
may have reached a user: every send was acknowledged, and no client ended.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from types import TracebackType

from distributedlog.client.admin.blocking import BlockingAdmin
from distributedlog.groups.placement import partition_of
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition
from distributedlog.model.internal_topics import OFFSETS_TOPIC
from tests.chaos.cluster import ASKING, OFFSETS_PARTITIONS, PATIENCE_SECONDS, Cluster
from tests.chaos.judging import judge, settle
from tests.chaos.load import ChaosLoad
from tests.chaos.nemeses.disks import PowerCut
from tests.chaos.nemeses.networks import isolated
from tests.chaos.nemeses.stage import Stage
from tests.reliability.checker import Finding
from tests.reliability.history import History, Outcome
from tests.system.failover.figures import QUIET, RESTARTS, Span

TOPIC, PARTITIONS, GROUP = "orders", 3, "readers"
PAUSE_MS = 10
CLIENTS: Sequence[tuple[str, str]] = (
    ("producing", "p_confluent"),
    ("producing_asyncio", "p_aiokafka"),
    ("producing_python", "p_python"),
    ("producing_own", "p_own"),
    ("consuming", "c_confluent"),
    ("consuming_own", "c_own"),
    ("grouping", "readers.confluent.range"),
    ("grouping_python", "readers.python.range"),
)
QUIET_SECONDS = 5.0


class StoryLoad(ChaosLoad):
    """A load that knows when each client, or group, last got on with each partition."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        super().__init__(bootstrap, TOPIC, PARTITIONS, directory)
        self.environment = {**os.environ, "DLOG_LOAD_PAUSE_MS": str(PAUSE_MS)}
        self._got_on_ns: dict[tuple[str, int], int] = {}

    def _gather(self, line: str) -> None:
        told = self.gathered.add(line)
        if told.get("outcome") == Outcome.OK or told["did"] == "poll":
            self.last_success_ns[told["process"]] = told["at"]
        if told.get("outcome") == Outcome.OK:
            partition = int(told["value"].rsplit("-", 1)[1]) % PARTITIONS
            self._got_on_ns[told["process"], partition] = told["at"]
        elif told["did"] == "poll" and told["records"]:
            self._got_on_ns[told["process"].split(".")[0], told["place"][1]] = told["at"]

    def wait_until_all_get_on(self, partitions: Iterable[int] = range(PARTITIONS)) -> str:
        """Waits until from now on each client, or one member of a group, got on with each of these; who was
        last."""
        names = {name.split(".")[0] for _, name in CLIENTS}
        now_ns, wanted = time.monotonic_ns(), {(who, each) for who in names for each in partitions}
        deadline = time.monotonic() + PATIENCE_SECONDS
        last = ""
        while waiting := {each for each in wanted if self._got_on_ns.get(each, 0) < now_ns}:
            assert time.monotonic() < deadline, f"these get no further: {sorted(waiting)}"
            assert not self.failed, f"a client ended: {self.failed}"
            last = ", ".join(sorted({who for who, _ in waiting}))
            self.take(0.1)
        return last


class Stories:
    """A context manager: brokers serve and clients work when it is entered."""

    def __init__(self, directory: Path, seed: int, note: Callable[[str], None] = lambda text: None) -> None:
        self.cluster = Cluster(directory, 3, {})
        self.load = StoryLoad(self.cluster.bootstrap, directory)
        self.chance = Random(seed)
        self.spans: list[Span] = []
        self._note = note
        self._stack = ExitStack()

    def __enter__(self) -> "Stories":
        with ExitStack() as stack:
            stack.enter_context(self.cluster)
            self.cluster.create_topic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2"})
            stack.enter_context(self.load)
            for program, name in CLIENTS:
                self.load.start(program, name)
            self.load.wait_until_all_get_on()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def play(self, name: str) -> None:
        """Plays one story, and waits until everyone has got on."""
        begun_ns = time.monotonic_ns()
        what = STORIES[name](self)
        self.load.wait_until_all_get_on()
        self.spans.append((name, begun_ns, time.monotonic_ns()))
        seconds = (time.monotonic_ns() - begun_ns) / 1e9
        self._note(f"{name}: {what}; {seconds:.1f} s, load {os.getloadavg()[0]:.1f}")

    def finish(self) -> tuple[History, list[Finding]]:
        """Ends the load; the history, and what it shows that must not be."""
        self.cluster.heal()
        history, found = settle(self.load, self.cluster, TOPIC, PARTITIONS, (GROUP,))
        found += judge(history, self.load, self.cluster, ends_brokers=False)
        found += [
            Finding("error reached a user", f"{send.process}: {send.value} is {send.outcome}")
            for send in history.sends
            if send.outcome is not Outcome.OK
        ]
        return history, found

    # --- what they are made of -----------------------------------------------------------------

    def quiet(self) -> str:
        self.load.take(QUIET_SECONDS)
        return "nothing"

    def rolling_restart(self) -> str:
        order = self.chance.sample(self.cluster.ids, len(self.cluster.ids))
        for node in order:
            broker = self.cluster.brokers[node]
            code = broker.stop(signal.SIGTERM)
            assert code == 0, f"broker {node} ended with {code}"
            broker.start()
            self._take_until(broker.serves, f"broker {node} serves")
            self._take_until(self._all_in_sync, "all replicas are in sync")
        return f"{order} restarted"

    def split_leader(self) -> str:
        controller = self._ask(self.cluster.controller)
        return self._split(next(each for each in self._leaders().values() if each != controller))

    def split_controller(self) -> str:
        self._balance()
        return self._split(self._ask(self.cluster.controller))

    def _split(self, alone: int) -> str:
        led = [partition for partition, leader in self._leaders().items() if leader == alone]
        ways = isolated(self.cluster.ids, [alone])
        begun = time.monotonic()
        self.cluster.network.cut(ways)

        def others_lead() -> bool:
            return all(self.cluster.leader(TOPIC, each) not in (None, alone) for each in led)

        self._take_until(others_lead, "others lead")
        last = self.load.wait_until_all_get_on(led or range(PARTITIONS))
        seconds = time.monotonic() - begun
        self.cluster.network.join(ways)
        self._take_until(self._all_in_sync, "all replicas are in sync")
        return f"broker {alone} cut off from {led}, all went on after {seconds:.1f} s, {last} last"

    def coordinator(self) -> str:
        partition = TopicPartition(OFFSETS_TOPIC, partition_of(GROUP, OFFSETS_PARTITIONS))
        first = self._ask(lambda: self.cluster.coordinator(GROUP))
        others = [each for each in self.cluster.ids if each != first]
        with BlockingAdmin(self.cluster.bootstrap, ASKING) as admin:
            # The leader stays while it has a place: the order of replicas is changed, and the first elected.
            admin.alter_reassignments({partition: (*others, first)})
            self._take_until(lambda: not admin.list_reassignments(), "the replicas have their new order")
            admin.elect_leaders([partition])
        self._take_until(
            lambda: self.cluster.coordinator(GROUP) not in (None, first), "another broker coordinates"
        )
        self.load.wait_until_all_get_on()
        second = self._ask(lambda: self.cluster.coordinator(GROUP))
        self.cluster.brokers[second].kill()
        self._take_until(lambda: self.cluster.coordinator(GROUP) not in (None, second), "a third coordinates")
        self.load.wait_until_all_get_on()
        self.cluster.start_those_down([second])
        self._take_until(self.cluster.brokers[second].serves, f"broker {second} serves")
        self._take_until(self._all_in_sync, "all replicas are in sync")
        return f"coordinator {first} moved to {second}, which was killed"

    def power_cut(self) -> str:
        cut = PowerCut(
            Stage(self.cluster, self.chance, TOPIC, PARTITIONS, GROUP), lambda stage: list(stage.cluster.ids)
        )
        what = cut.begin()
        begun = time.monotonic()
        cut.heal()
        for broker in self.cluster.brokers.values():
            self._take_until(broker.serves, "all serve again")
        seconds = time.monotonic() - begun
        return f"{what}, all serve after {seconds:.1f} s"

    # --- asking --------------------------------------------------------------------------------

    def _take_until(self, holds: Callable[[], bool], what: str) -> None:
        """Takes in what clients tell until that holds."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < deadline, what
            self.load.take(0.1)

    def _ask(self, ask: Callable[[], int | None]) -> int:
        self._take_until(lambda: ask() is not None, "somebody answers")
        found = ask()
        assert found is not None
        return found

    def _leaders(self) -> dict[int, int]:
        return {
            each: self._ask(lambda each=each: self.cluster.leader(TOPIC, each))  # type: ignore[misc]
            for each in range(PARTITIONS)
        }

    def _all_in_sync(self) -> bool:
        return all(len(self.cluster.isr(TOPIC, each)) == 3 for each in range(PARTITIONS))

    def _balance(self) -> None:
        """Each partition is led by the replica that is to lead it."""
        self._take_until(self._all_in_sync, "all replicas are in sync")
        try:
            with BlockingAdmin(self.cluster.bootstrap, ASKING) as admin:
                admin.elect_leaders([TopicPartition(TOPIC, each) for each in range(PARTITIONS)])
        except DlogError:
            return  # it only makes the story better


STORIES: Mapping[str, Callable[[Stories], str]] = {
    QUIET: Stories.quiet,
    RESTARTS: Stories.rolling_restart,
    "split-leader": Stories.split_leader,
    "split-controller": Stories.split_controller,
    "coordinator": Stories.coordinator,
    "power-cut": Stories.power_cut,
}
