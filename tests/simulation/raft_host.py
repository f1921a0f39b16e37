"""A machine of the Raft simulation: what its log drives is a list to which values are appended."""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import TYPE_CHECKING

from distributedlog.raft import Entry
from tests.simulation.clock import SeededRandomness
from tests.simulation.raft_process import RaftProcess, RaftSetup

if TYPE_CHECKING:
    from tests.simulation.raft_cluster import RaftCluster

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


class Host(RaftProcess):
    def __init__(self, cluster: "RaftCluster", node_id: int, seed: int, drift_ppm: int) -> None:
        setup = RaftSetup(
            cluster.config, cluster.bootstrap, cluster.snapshot_interval_entries, cluster.on_log_engine
        )
        super().__init__(setup, cluster.loop, cluster.trace, node_id, seed, drift_ppm)
        self.cluster = cluster
        self.machine = ListMachine(lambda entry: None, lambda: None)
        self.seen: tuple[object, ...] = ()

    def start(self) -> None:
        self.life += 1
        self.machine = ListMachine(self._applied, self._snapshot_restored)
        if self._start_raft(self.machine):
            self.cluster.observe(self)

    def _randomness(self) -> SeededRandomness:
        seed = self.chance.getrandbits(64)
        return NarrowRandomness(seed) if self.cluster.flavour == "duel" else SeededRandomness(seed)

    def _send(self, node_id: int, message: bytes) -> None:
        self.cluster.sent(self, node_id, message)

    def _stepped(self) -> None:
        self.cluster.observe(self)

    def _applied(self, entry: Entry) -> None:
        self.cluster.applied(self, entry)

    def _entries_stored(self, entries: Sequence[Entry]) -> None:
        self.cluster.stored(self, entries)

    def _restored_to(self, index: int) -> None:
        self.cluster.restored(self, index)
