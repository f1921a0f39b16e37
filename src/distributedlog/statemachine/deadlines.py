"""Deadlines by key: set, moved, cancelled in a few steps, however many there are.

A deadline that is moved later, as a member's is with each heartbeat, stays where it is in the heap and is put
where it belongs when it comes up.  So the heap has at most one entry for each time a deadline was set anew or
moved earlier; entries that are behind what the table says are passed over.
"""

from collections.abc import Hashable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)

SPARE_ENTRIES: Final = 64


class Deadlines(Generic[KeyT]):
    def __init__(self) -> None:
        self._due_ms: dict[KeyT, int] = {}
        self._heap: list[tuple[int, int, KeyT]] = []
        """The time, a number that makes entries comparable, and the key."""
        self._number = 0

    def __len__(self) -> int:
        return len(self._due_ms)

    def __contains__(self, key: KeyT) -> bool:
        return key in self._due_ms

    def set(self, key: KeyT, due_ms: int) -> None:
        before = self._due_ms.get(key)
        self._due_ms[key] = due_ms
        if before is None or due_ms < before:
            self._number += 1
            heappush(self._heap, (due_ms, self._number, key))
            if len(self._heap) > 2 * len(self._due_ms) + SPARE_ENTRIES:
                self._sweep()

    def cancel(self, key: KeyT) -> None:
        self._due_ms.pop(key, None)

    def next_ms(self) -> int | None:
        self._settle()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> tuple[KeyT, int] | None:
        """One that is due, and since when; it is taken away."""
        self._settle()
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        due_ms, _, key = heappop(self._heap)
        del self._due_ms[key]
        return key, due_ms

    def _settle(self) -> None:
        """Brings an entry to the top that is right."""
        heap = self._heap
        while heap:
            at_ms, number, key = heap[0]
            due_ms = self._due_ms.get(key)
            if due_ms == at_ms:
                return
            if due_ms is None or due_ms < at_ms:
                heappop(heap)  # cancelled, or moved earlier, for which there is another entry
            else:
                heapreplace(heap, (due_ms, number, key))

    def _sweep(self) -> None:
        self._heap = [(due_ms, at, key) for at, (key, due_ms) in enumerate(self._due_ms.items())]
        self._number = len(self._heap)
        heapify(self._heap)
