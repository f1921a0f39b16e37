"""Leader completeness: whoever leads a later term has every entry that was committed before."""

from distributedlog.raft import RaftNode
from tests.simulation.checkers import Checker, View


class LeaderCompleteness(Checker):
    name = "leader completeness"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._committed_index = 0
        self._committed_term = 0

    def on_commit(self, node: RaftNode, before: int, after: int) -> None:
        term = node.core.log.term_at(after)
        if after > self._committed_index and term is not None:
            self._committed_index, self._committed_term = after, term

    def on_leader(self, node: RaftNode, term: int) -> None:
        """Checks the last committed entry: with log matching, having it is having all."""
        log = node.core.log
        if log.base_index < self._committed_index and not log.matches(
            self._committed_index, self._committed_term
        ):
            self.fail(
                f"node {node.core.node_id} leads term {term} without entry {self._committed_index} "
                f"of term {self._committed_term}, which was committed"
            )
