"""Progress: within ten seconds of the last fault's end, something new is decided and everyone has it."""

from collections.abc import Sequence

from distributedlog.raft import Entry, Membership
from tests.simulation.checkers import Checker, Operation, View

PROGRESS_US_MAX = 10_000_000


class Progress(Checker):
    name = "progress"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._healed_us: int | None = None
        self._index: int | None = None
        self._reached: dict[int, int] = {}
        self.members: Membership | None = None
        """Who should have it; given by the cluster at the end."""

    def healed(self) -> None:
        self._healed_us = self.view.now_us

    def decided(self, index: int) -> None:
        """A proposal made after the healing was acknowledged at `index`."""
        if self._index is None and self._healed_us is not None:
            self._index = index

    def on_apply(self, node_id: int, entry: Entry) -> None:
        self._reached[node_id] = entry.index

    def on_restore(self, node_id: int, index: int) -> None:
        self._reached[node_id] = index

    def finish(self, operations: Sequence[Operation]) -> None:
        if self._healed_us is None or self.view.now_us < self._healed_us + PROGRESS_US_MAX:
            return
        if self._index is None:
            self.fail("nothing was decided within ten seconds after the last fault")
        assert self._index is not None
        assert self.members is not None
        behind = [n for n in self.members.members if self._reached.get(n, 0) < self._index]
        if behind:
            self.fail(
                f"nodes {behind} did not reach entry {self._index} within ten seconds after the last fault"
            )
