"""One change at a time: a leader never has two changes of membership under way."""

from distributedlog.raft import EntryKind, RaftNode, Role
from tests.simulation.checkers import Checker, View


class OneChange(Checker):
    name = "one change at a time"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._checked: dict[int, tuple[int, int]] = {}
        self._committed_index = 0

    def on_commit(self, node: RaftNode, before: int, after: int) -> None:
        self._committed_index = max(self._committed_index, after)

    def on_log(self, node: RaftNode) -> None:
        core = node.core
        if core.role is not Role.LEADER or self._checked.get(core.node_id) == (
            core.memberships.index,
            core.term,
        ):
            return
        self._checked[core.node_id] = (core.memberships.index, core.term)
        first = max(self._committed_index, core.log.base_index) + 1
        under_way = [
            entry.index
            for entry in core.log.range(first, core.log.last_index)
            if entry.kind is EntryKind.MEMBERSHIP
        ]
        if len(under_way) > 1:
            self.fail(f"node {core.node_id} leads term {core.term} with changes {under_way} under way")
