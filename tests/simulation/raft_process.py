"""A simulated machine with a Raft node: the real driver and storage.  What the log drives, a subclass says.

It keeps book of what is durable, so that checkers can hold the node to it: what it stored is there after a
crash, or it knows that it is not the one it was.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from distributedlog.broker.cluster.raft_driver import RaftDriver, StateMachine
from distributedlog.model.errors import LogDirectoryFailedError
from distributedlog.ports.transport import Receive
from distributedlog.raft import Contents, Entry, Membership, RaftConfig, Role
from tests.simulation.clock import SeededRandomness
from tests.simulation.disk import PowerCut, SimDisk
from tests.simulation.loop import SimLoop
from tests.simulation.process import SimProcess
from tests.simulation.raft_log_storage import ObservedLogStorage
from tests.simulation.raft_storage import DiskRaftStorage
from tests.simulation.trace import Trace


class RaftSetup(NamedTuple):
    """What all nodes of a run have in common."""

    config: RaftConfig
    bootstrap: Membership
    snapshot_interval_entries: int
    on_log_engine: bool
    """Whether it runs on the real log engine, or on a simple storage that is quicker."""


class RaftProcess(SimProcess):
    def __init__(
        self, setup: RaftSetup, loop: SimLoop, trace: Trace, node_id: int, seed: int, drift_ppm: int
    ) -> None:
        super().__init__(loop, trace, node_id, seed, drift_ppm)
        self.setup = setup
        self.driver: RaftDriver | None = None
        self.durable: dict[int, int] = {}
        self.durable_vote: tuple[int, int | None] = (0, None)
        self.incarnation: int | None = 0
        """None while the disk has lost something and no process has opened it since."""
        self._forgotten: dict[int, dict[int, int]] = {}
        self._storage(lambda what, value: None).format()

    # --- what a subclass says --------------------------------------------------------------------

    def _send(self, node_id: int, message: bytes) -> None:
        raise NotImplementedError

    def _entries_stored(self, entries: Sequence[Entry]) -> None:
        """They are durable."""

    def _restored_to(self, index: int) -> None:
        """What the log drives was replaced by a snapshot that ends here."""

    def _progressed(self) -> None:
        """The driver's own signal."""

    def _randomness(self) -> SeededRandomness:
        return SeededRandomness(self.chance.getrandbits(64))

    # --- life ------------------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        return self.driver is not None

    def _start_raft(self, machine: StateMachine, contents: Contents | None = None) -> bool:
        """Whether the disk could be read."""
        assert self.driver is None
        self._restored_to(0)
        try:
            self.driver = self._make_driver(machine, contents)
        except (OSError, PowerCut, LogDirectoryFailedError) as error:
            self.say("cannot start:", str(error))
            self.disk.crash("drop")
            return False
        core = self.driver.node.core
        kept = {i: core.log.term_at(i) for i in range(core.log.base_index, core.log.last_index + 1)}
        self.durable_vote = (core.term, core.vote)
        self._check_kept(kept, core.incarnation, core.commit_index)
        self.say("starts", self._spell())
        return True

    def _make_driver(self, machine: StateMachine, contents: Contents | None) -> RaftDriver:
        return RaftDriver(
            self.node_id,
            self.setup.config,
            self.setup.bootstrap,
            machine,
            storage=self._storage(self._stored),
            transport=self,
            executor=self,
            clock=self.clock,
            scheduler=self,
            randomness=self._randomness(),
            snapshot_interval_entries=self.setup.snapshot_interval_entries,
            failed=self._failed,
            progressed=self._progressed,
            contents=contents,
            is_known_voter=lambda node_id: True,  # every host of a run is of the cluster, and has proved it
        )

    def _storage(self, observe: Callable[[str, Any], None]) -> DiskRaftStorage | ObservedLogStorage:
        if self.setup.on_log_engine:
            return ObservedLogStorage(self.disk, self.clock, observe)
        return DiskRaftStorage(self.disk, observe)

    def _end(self) -> None:
        driver, self.driver = self.driver, None
        if driver is not None:
            driver.stop()

    def forget(self) -> None:
        """The disk has lost something: what it had is noted, for that may have been answered for."""
        if self.incarnation is not None:
            self._forgotten[self.incarnation] = dict(self.durable)
            self.incarnation = None

    def wipe(self) -> None:
        """Another disk, new and empty."""
        assert self.driver is None
        self.disk = SimDisk(self.chance.getrandbits(64))

    # --- the transport ---------------------------------------------------------------------------

    def send(self, node_id: int, message: bytes) -> None:
        self._send(node_id, message)

    def on_receive(self, receive: Receive) -> None:
        self._receive = receive

    def deliver(self, sender: int, message: bytes) -> None:
        if self.paused:
            self._waiting.append(lambda: self._receive(sender, message))
        elif self.driver is not None:
            self._receive(sender, message)
            self._stepped()

    # --- what the checkers see -------------------------------------------------------------------

    def durable_term(self, incarnation: int, index: int) -> int | None:
        """The term of an entry that this incarnation has stored, and may have lost since."""
        entries = self.durable if incarnation == self.incarnation else self._forgotten.get(incarnation, {})
        return entries.get(index)

    def _stored(self, what: str, value: Any) -> None:
        if what == "append":
            self.durable.update((entry.index, entry.term) for entry in value)
            self._entries_stored(value)
        elif what == "vote":
            self.durable_vote = value
        elif what == "truncate":
            for index in [index for index in self.durable if index >= value]:
                del self.durable[index]
        else:
            self.durable.clear()

    def _snapshot_restored(self) -> None:
        """Notes a restored snapshot; called by the machine, but for the one that `start` tells of."""
        snapshot = self.driver.node.core.snapshot if self.driver is not None else None
        if snapshot is not None:
            self._restored_to(snapshot.index)

    def _check_kept(self, kept: dict[int, int | None], incarnation: int, snapshot_index: int) -> None:
        """What was durable is there, or the node knows that it is not the one it was."""
        if incarnation == self.incarnation:
            missing = [i for i, term in self.durable.items() if i > snapshot_index and kept.get(i) != term]
            assert not missing, f"node {self.node_id} lost {missing} and does not know it"
        self.durable = {index: term for index, term in kept.items() if term is not None and index > 0}
        self.incarnation = incarnation
        if snapshot_index:
            self._restored_to(snapshot_index)

    @property
    def leads(self) -> bool:
        return self.driver is not None and self.driver.node.core.role is Role.LEADER

    def _spell(self) -> str:
        assert self.driver is not None
        core = self.driver.node.core
        return f"in term {core.term}, voted {core.vote}, entries to {core.log.last_index}"
