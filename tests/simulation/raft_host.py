"""One simulated machine: the real driver on a simulated disk, clock, network, executor and thread.

A crash ends the process: timers, work under way and messages for it mean nothing any more (`_life`
tells them apart), and the disk keeps what its crash mode says.  A pause stops the process as SIGSTOP
does: what is due meanwhile happens when it goes on, in the order it came.
"""

import random
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, TypeVar

from distributedlog.broker.raft_driver import RaftDriver
from distributedlog.model.errors import LogDirectoryFailedError
from distributedlog.ports.executor import Done, Outcome
from distributedlog.ports.randomness import SeededRandomness
from distributedlog.ports.transport import Receive
from distributedlog.raft import Entry, Role
from tests.simulation.disk import PowerCut, SimDisk
from tests.simulation.inodes import CrashMode
from tests.simulation.loop import DriftingClock
from tests.simulation.raft_log_storage import ObservedLogStorage
from tests.simulation.raft_storage import DiskRaftStorage

if TYPE_CHECKING:
    from tests.simulation.raft_cluster import RaftCluster

T = TypeVar("T")
VALUE = Struct(">q")


class ListMachine:
    """A list to which values are appended."""

    def __init__(self, applied: Callable[[Entry], None], restored: Callable[[], None]) -> None:
        self.values: list[int] = []
        self._applied = applied
        self._restored = restored

    def apply(self, entry: Entry) -> object:
        self.values.append(VALUE.unpack(entry.payload)[0])
        self._applied(entry)
        return len(self.values)

    def snapshot(self) -> bytes:
        return b"".join(map(VALUE.pack, self.values))

    def restore(self, data: bytes) -> None:
        self.values = [value for (value,) in VALUE.iter_unpack(data)]
        self._restored()


class NarrowRandomness(SeededRandomness):
    """Draws near the lower end only: election timeouts that hardly differ."""

    def between(self, low: int, high: int) -> int:
        return super().between(low, low + (high - low) // 50)


class Host:
    def __init__(self, cluster: "RaftCluster", node_id: int, seed: int, drift_ppm: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.chance = random.Random(seed)
        self.disk = SimDisk(self.chance.getrandbits(64))
        self.clock = DriftingClock(cluster.loop, self.chance.randrange(1_000_000), 1_000_000 + drift_ppm)
        self.disk_slowness = 1
        self.on_log_engine = cluster.on_log_engine
        self.driver: RaftDriver | None = None
        self.machine = ListMachine(lambda entry: None, lambda: None)
        self.durable: dict[int, int] = {}
        self.durable_vote: tuple[int, int | None] = (0, None)
        self.incarnation: int | None = 0
        """None while the disk has lost something and no process has opened it since."""
        self._forgotten: dict[int, dict[int, int]] = {}
        self.seen: tuple[object, ...] = ()
        self.paused = False
        self._waiting: list[Callable[[], None]] = []
        self._life = 0
        self._storage(lambda what, value: None).format()

    # --- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """A new process on what the disk holds; one that cannot read it stays down."""
        assert self.driver is None
        self._life += 1
        self.machine = ListMachine(self._applied, self._restored)
        self.cluster.restored(self, 0)
        try:
            self.driver = self._make_driver()
        except (OSError, PowerCut, LogDirectoryFailedError) as error:
            self.cluster.trace.add(self.cluster.loop.now_us, "cannot start:", self.node_id, str(error))
            self.disk.crash("drop")
            return
        core = self.driver.node.core
        kept = {i: core.log.term_at(i) for i in range(core.log.base_index, core.log.last_index + 1)}
        self.durable_vote = (core.term, core.vote)
        self._check_kept(kept, core.incarnation, core.commit_index)
        self.cluster.trace.add(self.cluster.loop.now_us, "starts", self.node_id, self._spell())
        self.cluster.observe(self)

    def _make_driver(self) -> RaftDriver:
        return RaftDriver(
            self.node_id,
            self.cluster.config,
            self.cluster.bootstrap,
            self.machine,
            storage=self._storage(self._stored),
            transport=self,
            executor=self,
            clock=self.clock,
            scheduler=self,
            randomness=self._randomness(),
            snapshot_interval_entries=self.cluster.snapshot_interval_entries,
            failed=self._failed,
        )

    def _randomness(self) -> SeededRandomness:
        seed = self.chance.getrandbits(64)
        return NarrowRandomness(seed) if self.cluster.flavour == "duel" else SeededRandomness(seed)

    def _storage(self, observe: Callable[[str, Any], None]) -> DiskRaftStorage | ObservedLogStorage:
        if self.on_log_engine:
            return ObservedLogStorage(self.disk, self.clock, observe)
        return DiskRaftStorage(self.disk, observe)

    def forget(self) -> None:
        """The disk has lost something: what it had is noted, for that may have been answered for."""
        if self.incarnation is not None:
            self._forgotten[self.incarnation] = dict(self.durable)
            self.incarnation = None

    def durable_term(self, incarnation: int, index: int) -> int | None:
        """The term of an entry that this incarnation has stored, and may have lost since."""
        entries = self.durable if incarnation == self.incarnation else self._forgotten.get(incarnation, {})
        return entries.get(index)

    def wipe(self) -> None:
        """Another disk, new and empty."""
        assert self.driver is None
        self.disk = SimDisk(self.chance.getrandbits(64))

    def crash(self, mode: CrashMode) -> None:
        self.cluster.trace.add(self.cluster.loop.now_us, f"crashes, {mode}", self.node_id)
        self._life += 1
        self.paused = False
        self._waiting.clear()
        driver, self.driver = self.driver, None
        if driver is not None:
            driver.stop()
        self.disk.crash(mode)

    def pause(self) -> None:
        self.paused = True
        self.cluster.trace.add(self.cluster.loop.now_us, "pauses", self.node_id)

    def resume(self) -> None:
        self.paused = False
        self.cluster.trace.add(self.cluster.loop.now_us, "resumes", self.node_id)
        waiting, self._waiting = self._waiting, []
        life = self._life
        for callback in waiting:
            self._run(life, callback)

    def _failed(self, error: BaseException) -> None:
        """The driver gave up: so does its process, in the moment after."""
        if not isinstance(error, (OSError, LogDirectoryFailedError)):
            raise error
        self.cluster.trace.add(self.cluster.loop.now_us, "fails:", self.node_id, str(error))
        self.cluster.loop.call_after(0, self._crash_if, self._life, "random")

    def _crash_if(self, life: int, mode: CrashMode) -> None:
        if life == self._life:
            self.crash(mode)

    def call(self, callback: Callable[[], None]) -> None:
        """Runs a client's request in this process, if it lives."""
        self._run(self._life, callback)

    def _run(self, life: int, callback: Callable[[], None]) -> None:
        if life != self._life or self.driver is None:
            return
        if self.paused:
            self._waiting.append(callback)
            return
        callback()
        self.cluster.observe(self)

    # --- ports ---------------------------------------------------------------------------------

    def send(self, node_id: int, message: bytes) -> None:
        self.cluster.sent(self, node_id, message)

    def on_receive(self, receive: Receive) -> None:
        self._receive = receive

    def deliver(self, sender: int, message: bytes) -> None:
        if self.paused:
            self._waiting.append(lambda: self._receive(sender, message))
        elif self.driver is not None:
            self._receive(sender, message)
            self.cluster.observe(self)

    def call_at(self, monotonic_ms: int, callback: Callable[[], None]) -> None:
        self.cluster.loop.call_at(self.clock.time_us_at(monotonic_ms), self._run, self._life, callback)

    def post(self, callback: Callable[[], None]) -> None:
        callback()

    def run_blocking(self, work: Callable[[], T], done: Done[T]) -> None:
        """Takes a while; whether the disk has it early or late in that while is chance."""
        life, loop, chance = self._life, self.cluster.loop, self.chance
        latency_us = (100 + int(chance.random() * 2000)) * self.disk_slowness
        wait_us = latency_us // 2 if chance.random() < 0.25 else 0

        def tell(outcome: Outcome[T]) -> None:
            if wait_us:
                loop.call_after(wait_us, self._run, life, lambda: done(outcome))
            else:
                self._run(life, lambda: done(outcome))

        loop.call_after(latency_us - wait_us, self._work, life, work, tell)

    def _work(self, life: int, work: Callable[[], T], then: Callable[[Outcome[T]], None]) -> None:
        if life != self._life:
            return
        outcome = Outcome.of(work)
        if isinstance(outcome.error, PowerCut):
            self.crash("random")
        elif outcome.error is not None and not isinstance(outcome.error, (OSError, LogDirectoryFailedError)):
            raise outcome.error
        else:
            then(outcome)

    def run_cpu(self, function: Callable[..., T], arguments: tuple[Any, ...], done: Done[T]) -> None:
        self.run_blocking(lambda: function(*arguments), done)

    def close(self) -> None:
        return None

    # --- what the checkers see -----------------------------------------------------------------

    def _stored(self, what: str, value: Any) -> None:
        if what == "append":
            self.durable.update((entry.index, entry.term) for entry in value)
            self.cluster.stored(self, value)
        elif what == "vote":
            self.durable_vote = value
        elif what == "truncate":
            for index in [index for index in self.durable if index >= value]:
                del self.durable[index]
        else:
            self.durable.clear()

    def _applied(self, entry: Entry) -> None:
        self.cluster.applied(self, entry)

    def _restored(self) -> None:
        snapshot = self.driver.node.core.snapshot if self.driver is not None else None
        if snapshot is not None:
            self.cluster.restored(self, snapshot.index)

    def _check_kept(self, kept: dict[int, int | None], incarnation: int, snapshot_index: int) -> None:
        """What was durable is there, or the node knows that it is not the one it was."""
        if incarnation == self.incarnation:
            missing = [i for i, term in self.durable.items() if i > snapshot_index and kept.get(i) != term]
            assert not missing, f"node {self.node_id} lost {missing} and does not know it"
        self.durable = {index: term for index, term in kept.items() if term is not None and index > 0}
        self.incarnation = incarnation
        if snapshot_index:
            self.cluster.restored(self, snapshot_index)

    @property
    def leads(self) -> bool:
        return self.driver is not None and self.driver.node.core.role is Role.LEADER

    def _spell(self) -> str:
        assert self.driver is not None
        core = self.driver.node.core
        return f"in term {core.term}, voted {core.vote}, entries to {core.log.last_index}"
