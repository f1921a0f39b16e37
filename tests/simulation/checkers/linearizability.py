"""Linearizable proposals and reads, checked on a list to which clients append unique values.

The decided order of values is known, so the search that makes linearizability hard is not needed.  An
append stands at its position p; a read of n values stands after position n.  What is left to check is
that each read saw a prefix, and that operations that followed each other in real time stand in that order:
whatever completed before an operation was invoked stands before it.

An append whose outcome is unknown may stand anywhere after its invocation, or nowhere.
"""

import heapq
from collections.abc import Sequence

from tests.simulation.checkers import Checker, Operation, View


class Linearizability(Checker):
    name = "linearizability"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.order: list[int] = []
        """The decided values; given by the cluster at the end."""

    def finish(self, operations: Sequence[Operation]) -> None:
        positions = {value: position for position, value in enumerate(self.order, 1)}
        if len(positions) != len(self.order):
            self.fail("a value was appended twice")
        for operation in operations:
            self._check_result(operation, positions)
        self._check_real_time(operations, positions)

    def _check_result(self, operation: Operation, positions: dict[int, int]) -> None:
        position = positions.get(operation.value)
        if operation.kind == "append":
            if operation.outcome == "ok" and position != operation.result[0]:
                self.fail(f"{operation} was acknowledged at {operation.result[0]} and stands at {position}")
            if operation.outcome == "failed" and position is not None:
                self.fail(f"{operation} was refused and yet stands at {position}")
        elif operation.outcome == "ok":
            length, last = operation.result
            if length > len(self.order) or (length and self.order[length - 1] != last):
                self.fail(
                    f"a read saw {length} values ending in {last}: that is no prefix of what was decided"
                )

    def _check_real_time(self, operations: Sequence[Operation], positions: dict[int, int]) -> None:
        completed: list[tuple[int, int]] = []
        reached = 0
        for operation in sorted(operations, key=lambda operation: operation.invoked_us):
            while completed and completed[0][0] < operation.invoked_us:
                reached = max(reached, heapq.heappop(completed)[1])
            place = self._place(operation, positions)
            if place is None:
                continue
            if operation.kind == "append" and place <= reached:
                self.fail(f"{operation} stands at {place}, but {reached} had been seen before it was invoked")
            if operation.kind == "read" and place < reached:
                self.fail(
                    f"a stale read: it saw {place} values, but {reached} had been seen before it was invoked"
                )
            if operation.outcome == "ok" and operation.completed_us is not None:
                heapq.heappush(completed, (operation.completed_us, place))

    @staticmethod
    def _place(operation: Operation, positions: dict[int, int]) -> int | None:
        if operation.kind == "append":
            return positions.get(operation.value)
        return operation.result[0] if operation.outcome == "ok" else None
