"""Stability: while nothing disturbs a majority, the term stays.

A node that was cut off and returns is not a reason for an election: that is what pre-vote is for.  The
cluster says when it is undisturbed; terms are compared across that time.
"""

from distributedlog.raft import RaftNode
from tests.simulation.checkers import Checker, View


class Stability(Checker):
    name = "stability"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._calm_term: int | None = None

    def begin_calm(self, term: int) -> None:
        """From now on a leader and a majority are well, and only others are in trouble."""
        self._calm_term = term

    def end_calm(self) -> None:
        self._calm_term = None

    def on_log(self, node: RaftNode) -> None:
        if self._calm_term is not None and node.core.term > self._calm_term:
            self.fail(
                f"node {node.core.node_id} went from term {self._calm_term} to {node.core.term} "
                "although a leader and a majority were well"
            )
