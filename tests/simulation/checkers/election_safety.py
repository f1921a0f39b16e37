"""Election safety: a term has at most one leader."""

from distributedlog.raft import RaftNode
from tests.simulation.checkers import Checker, View


class ElectionSafety(Checker):
    name = "election safety"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._leaders: dict[int, int] = {}

    def on_leader(self, node: RaftNode, term: int) -> None:
        leader = self._leaders.setdefault(term, node.core.node_id)
        if leader != node.core.node_id:
            self.fail(f"nodes {leader} and {node.core.node_id} both led term {term}")
