"""Leader append-only: while a node leads, its log only grows."""

from distributedlog.raft import RaftNode, Role
from tests.simulation.checkers import Checker, View


class LeaderAppendOnly(Checker):
    name = "leader append-only"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._ends: dict[tuple[int, int], tuple[int, int]] = {}

    def on_log(self, node: RaftNode) -> None:
        core = node.core
        if core.role is not Role.LEADER:
            return
        reign = (core.node_id, core.term)
        index, term = self._ends.get(reign, (0, 0))
        if index > core.log.base_index and core.log.term_at(index) != term:
            self.fail(f"node {core.node_id}, leading term {core.term}, lost its entry {index} of term {term}")
        self._ends[reign] = (core.log.last_index, core.log.last_term)
