"""Copies while moving: a replica from before a move goes only when all that stay are in sync.

So there are never fewer copies on the way than there were.  What a move was adding may be dropped at any
time: when the move is cancelled or gets another target.
"""

from distributedlog.controller.deltas import PartitionDelta
from distributedlog.controller.reassignments import find_original
from tests.simulation.checkers.control import ControlChecker, Step


class CopiesWhileMoving(ControlChecker):
    name = "copies while moving"

    def on_commit(self, step: Step) -> None:
        for delta in step.delta.partitions:
            self._check(step.offset, delta)

    def _check(self, offset: int, delta: PartitionDelta) -> None:
        old, new = delta.old, delta.new
        if old is None or new is None:
            return
        gone = set(find_original(old)) - set(new.replicas)
        if gone and not set(new.replicas) <= set(new.isr):
            self.fail(
                f"{delta.topic.name}-{delta.partition_id} at the offset {offset}: {sorted(gone)} went, and "
                f"not all that stay are in sync: {old} became {new}"
            )
