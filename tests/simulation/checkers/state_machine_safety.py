"""State machine safety: every node is given the same commands in the same order, none skipped or repeated.

What the first node applies next is what was decided next; `decided` is that history.
"""

from bisect import bisect_right

from distributedlog.raft import Entry
from tests.simulation.checkers import Checker, View


class StateMachineSafety(Checker):
    name = "state machine safety"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.decided: list[Entry] = []
        self._applied: dict[int, int] = {}
        """How many of them each node has applied."""

    def on_apply(self, node_id: int, entry: Entry) -> None:
        place = self._applied.get(node_id, 0)
        self._applied[node_id] = place + 1
        if place == len(self.decided):
            if self.decided and entry.index <= self.decided[-1].index:
                self.fail(f"node {node_id} applied {entry.index} after {self.decided[-1].index}")
            self.decided.append(entry)
            return
        decided = self.decided[place]
        if decided != entry:
            self.fail(
                f"node {node_id} applied {entry.payload.hex()} of term {entry.term} at {entry.index}, "
                f"but {decided.payload.hex()} of term {decided.term} at {decided.index} was decided"
            )

    def on_restore(self, node_id: int, index: int) -> None:
        """The machine is built anew from a snapshot that ends at `index`, or from nothing."""
        self._applied[node_id] = bisect_right(self.decided, index, key=lambda entry: entry.index)
