"""Durable commit: when an entry commits, a majority of the voters has it where a crash cannot take it."""

from distributedlog.raft import RaftNode
from tests.simulation.checkers import Checker, View


class DurableCommit(Checker):
    name = "durable commit"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._committed_index = 0

    def on_commit(self, node: RaftNode, before: int, after: int) -> None:
        if after <= self._committed_index:
            return
        self._committed_index = after
        core = node.core
        term = core.log.term_at(after)
        if term is None:
            return  # the node learned it from a snapshot
        holders = [
            node_id
            for node_id, incarnation in core.membership.voters.items()
            if self.view.durable_term(node_id, incarnation, after) == term
        ]
        if len(holders) < core.membership.majority:
            self.fail(
                f"node {core.node_id} committed {after} of term {term}, but of {core.membership} "
                f"only {holders} have it on disk"
            )
