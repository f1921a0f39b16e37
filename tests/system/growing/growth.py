"""One broker becomes three, five and three again, while clients of several kinds work.

    begin      one node; topics with one replica
    grow       two nodes join, their voters are added, topics are given three replicas, all is balanced
    disk       one that is not the active controller is killed and has lost its disk; another takes its place
    grow       two more join and vote, all is balanced
    shrink     two are drained, removed from the voters, stopped and unregistered; all is balanced

Of the two that go one is the active controller, and one the first node, unless that is the same.  The clients
are the programs of tests/reliability; they begin when there is one broker, and are told of no other.  What
they do is recorded, and judged by the checker; beside that no error may have reached a user: every send was
acknowledged, no transaction that had something to write was aborted, no client ended.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from types import TracebackType
from typing import NamedTuple, Self

from confluent_kafka import Producer

from distributedlog.client.admin.blocking import BlockingAdmin
from distributedlog.client.view import PartitionView
from tests.chaos.judging import judge, settle
from tests.chaos.load import ChaosLoad
from tests.chaos.transactions import PARTITIONS, TOPICS, TransactionalClients
from tests.reliability.checker import Finding
from tests.reliability.history import History, Outcome
from tests.system.growing.fleet import FIRST, Fleet
from tests.system.replication.stage import PATIENCE_SECONDS, PRODUCER_SETTINGS, wait_until

TOPIC = "orders"
GROUPS = ("readers", "others")
HELD, HELD_PARTITIONS = "held", 15
"""A topic that is as good as all of the disk, and that nobody writes to any more."""
CLIENTS: Sequence[tuple[str, str]] = (
    ("producing", "p-confluent"),
    ("producing_asyncio", "p-aiokafka"),
    ("producing_own", "p-own"),
    ("consuming_own", "c-own"),
    ("grouping", "readers.confluent.range"),
    ("grouping", "others.confluent.consumer"),
)
TRANSACTIONAL: Sequence[tuple[str, str]] = (
    ("transactions.mixing", "mixer.own"),
    ("transactions.transforming", "transformer.confluent.0"),
)
REPLICAS = 3
TOLERANCE = 0.1
WRITTEN_MEANWHILE = 0.1
"""How much further from the mean a broker may be than was planned: clients go on writing."""


class Size(NamedTuple):
    """How large a run is."""

    held_bytes: int
    """The size of each partition of the topic that is held."""
    pause_ms: int
    """How long producers rest after each record."""


SMALL = Size(held_bytes=300_000, pause_ms=20)
LARGE = Size(held_bytes=10_000_000, pause_ms=5)


class CalmLoad(ChaosLoad):
    """Clients of which none may end: nobody takes the place of one that does."""

    def _start_in_its_place(self, name: str) -> None:
        raise AssertionError(f"a client ended: {self.failed}")


class Growth:
    """A context manager: the first node serves and clients work when it is entered."""

    def __init__(
        self, directory: Path, seed: int, size: Size = SMALL, note: Callable[[str], None] = lambda text: None
    ) -> None:
        self.fleet = Fleet(directory)
        self._directory = directory
        self._size = size
        self._chance = Random(seed)
        self._note = note
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.fleet)
            self.fleet.create_topic(TOPIC, PARTITIONS, 1, {})
            self.fleet.create_topic(HELD, HELD_PARTITIONS, 1, {})
            self._fill()
            self._load = CalmLoad(self.fleet.bootstrap, TOPIC, PARTITIONS, self._directory)
            self._load.environment = {
                **os.environ,
                "DLOG_LOAD_CALM": "1",
                "DLOG_LOAD_PAUSE_MS": str(self._size.pause_ms),
            }
            stack.enter_context(self._load)
            self._transactions = TransactionalClients(
                self._load, self.fleet, is_careless=False, clients=TRANSACTIONAL
            )
            for program, name in CLIENTS:
                self._load.start(program, name)
            self._transactions.start(replicas=1, config={})
            self._get_on()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def play(self) -> None:
        """From one to three to five and back to three."""
        self._grow(2, 3)
        self._replicate()
        self._balance()
        self._lose_disk()
        self._grow(4, 5)
        self._balance()
        self._shrink(self._leavers())
        self._balance()

    def finish(self) -> tuple[History, list[Finding]]:
        """Ends the load; the history, and what it shows that must not be."""
        history, found = settle(
            self._load, self.fleet, TOPIC, PARTITIONS, GROUPS, settle_others=self._transactions.settle
        )
        history = replace(history, final={**history.final, **self._transactions.final})
        found += judge(history, self._load, self.fleet, ends_brokers=False, transactional=TOPICS)
        found += self._transactions.judge(history)
        found += [
            Finding("error reached a user", f"{send.process}: {send.value} is {send.outcome}")
            for send in history.sends
            if send.outcome is not Outcome.OK
        ]
        return history, found

    # --- what it consists of -------------------------------------------------------------------

    def _grow(self, *node_ids: int) -> None:
        with self._noted(f"nodes {node_ids} join and vote"):
            self.fleet.start(*node_ids)
            for each in node_ids:
                self.fleet.add_voter(each)

    def _replicate(self) -> None:
        with self._noted("topics get replicas"):
            changes = (f"default.replication.factor={REPLICAS}", "min.insync.replicas=2")
            self.fleet.dlog("cluster", "config", "set", *changes)
            for topic in (TOPIC, HELD, *TOPICS):
                self.fleet.dlog("topic", "alter", topic, "--replication-factor", REPLICAS)
            self.fleet.dlog("topic", "alter", "__transaction_state", "--set", "min.insync.replicas=2")

    def _balance(self) -> None:
        """Waits until all replicas are there, balances, and looks whether it is so."""
        with self._noted("balanced"), BlockingAdmin(self.fleet.bootstrap) as admin:
            wait_until(lambda: self._is_whole(admin), "every partition has its replicas, in sync")
            # Bytes in are left out: a few partitions have all of them, which cannot be shared evenly.
            self.fleet.dlog("cluster", "balance", "--yes", "--measure", 0)
            self._check_balanced(admin)
            assert self.fleet.roles().keys() == self.fleet.voters == self.fleet.nodes.keys()

    def _lose_disk(self) -> None:
        before = self.fleet.directory_ids()
        active = self.fleet.active_controller()
        lost = self._chance.choice([each for each in self.fleet.nodes if each != active])
        with self._noted(f"node {lost} has lost its disk, and another takes its place"):
            self.fleet.replace_disk(lost)
            now = self.fleet.directory_ids()
            assert {each for each, directory in now.items() if before[each] != directory} == {lost}

    def _leavers(self) -> list[int]:
        """The active controller, the first node, and by chance another if these are one."""
        active = self.fleet.active_controller()
        rest = [each for each in self.fleet.nodes if each != active]
        return [active, self._chance.choice(rest) if active == FIRST else FIRST]

    def _shrink(self, node_ids: Sequence[int]) -> None:
        for each in node_ids:
            with self._noted(f"node {each} goes"):
                self.fleet.dlog("cluster", "drain", each, "--yes")
                self.fleet.remove_voter(each)
                self.fleet.stop(each)
                self.fleet.unregister(each)

    # --- beside it -----------------------------------------------------------------------------

    def _fill(self) -> None:
        producer = Producer({"bootstrap.servers": self.fleet.bootstrap, **PRODUCER_SETTINGS, "linger.ms": 20})
        value_bytes = 100_000
        for partition in range(HELD_PARTITIONS):
            for _ in range(self._size.held_bytes // value_bytes):
                producer.produce(HELD, os.urandom(value_bytes), partition=partition)
                producer.poll(0)
            assert producer.flush(PATIENCE_SECONDS) == 0

    def _noted(self, what: str) -> "_Noted":
        return _Noted(what, self._get_on, self._note)

    def _get_on(self) -> None:
        """Every client has done something from now on, and none has ended."""
        late = self._load.all_get_on(PATIENCE_SECONDS)
        assert not self._load.failed, self._load.failed
        assert not late, f"these get no further: {late}"

    def _is_whole(self, admin: BlockingAdmin) -> bool:
        return not admin.list_reassignments() and all(
            len(each.replicas) == REPLICAS and set(each.isr) == set(each.replicas)
            for each in _partitions(admin)
        )

    def _check_balanced(self, admin: BlockingAdmin) -> None:
        """Asks brokers what they lead and hold, not the planner what it meant."""
        assert self._is_whole(admin)
        brokers = list(self.fleet.nodes)
        leaders = [each.leader_id for each in _partitions(admin)]
        led = {broker: leaders.count(broker) for broker in brokers}
        mean = len(leaders) / len(brokers)
        assert all(abs(each - mean) <= max(1.0, TOLERANCE * mean) for each in led.values()), led
        held = _held(admin)
        mean = sum(held.values()) / len(brokers)
        assert held.keys() == set(brokers)
        slack = TOLERANCE + WRITTEN_MEANWHILE
        assert all(abs(each / mean - 1) <= slack for each in held.values()), held


def _partitions(admin: BlockingAdmin) -> list[PartitionView]:
    return [each for topic in admin.list_topics(with_internal=True) for each in topic.partitions]


def _held(admin: BlockingAdmin) -> Mapping[int, int]:
    """The bytes of all replicas of each broker."""
    return {
        broker: sum(directory.size_bytes for directory in answer)
        for broker, answer in admin.describe_log_dirs().items()
        if not isinstance(answer, Exception)
    }


class _Noted:
    """Notes what was done and how long it took, when all clients have got on after it."""

    def __init__(self, what: str, get_on: Callable[[], None], note: Callable[[str], None]) -> None:
        self._what, self._get_on, self._note = what, get_on, note
        self._begun = 0.0

    def __enter__(self) -> None:
        self._begun = time.monotonic()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._get_on()
            self._note(f"{self._what}: {time.monotonic() - self._begun:.1f} s, load {os.getloadavg()[0]:.1f}")
