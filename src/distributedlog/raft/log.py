"""The log in memory: every entry since the last trimming, and how much of it is on the disk.

    base          stable_index        stored_end            last_index
     |                 |                  |                     |
     v  on the disk    v  being written   v  not yet given out  v
     ---|==============|==================|=====================|

`base` is the last entry that was trimmed away (or the snapshot's): its term is still known, so the entry
behind it can be checked.  `take_unstored` hands entries to the storage and moves `stored_end`;
`stored` says they are durable and moves `stable_index`.  One hand-out is under way at a time.

A truncation lowers both marks, and is remembered until the storage has been told.  A reset (a snapshot was
installed) empties the log; nothing is stable again until a hand-out begun after it is durable.
"""

from collections.abc import Sequence

from distributedlog.raft.messages import Entry


class RaftLog:
    __slots__ = (
        "_entries",
        "_reset_pending",
        "_stored_end",
        "_truncate_from",
        "base_index",
        "base_term",
        "last_index",
        "last_term",
        "stable_index",
    )

    def __init__(self, base_index: int, base_term: int, entries: Sequence[Entry]) -> None:
        """`entries` continue `base` and are all on the disk."""
        self.base_index = base_index
        self.base_term = base_term
        self._entries = list(entries)
        self.last_index = self._entries[-1].index if self._entries else base_index
        self.last_term = self._entries[-1].term if self._entries else base_term
        self.stable_index = self._stored_end = self.last_index
        self._truncate_from: int | None = None
        self._reset_pending = False

    def term_at(self, index: int) -> int | None:
        """The term of an entry, or None if it was trimmed away or is not there yet."""
        position = index - self.base_index
        if position > 0:
            return self._entries[position - 1].term if index <= self.last_index else None
        return self.base_term if position == 0 else None

    def matches(self, index: int, term: int) -> bool:
        return self.term_at(index) == term

    def entry(self, index: int) -> Entry:
        return self._entries[index - self.base_index - 1]

    def slice(self, first: int, entries_max: int, bytes_max: int) -> tuple[Entry, ...]:
        """Entries from `first` on, at least one if there is one, else as many as fit."""
        start = first - self.base_index - 1
        chosen = self._entries[start : start + entries_max]
        size = 0
        for position, entry in enumerate(chosen):
            size += len(entry.payload)
            if size > bytes_max and position:
                return tuple(chosen[:position])
        return tuple(chosen)

    def range(self, first: int, last: int) -> list[Entry]:
        """Entries from `first` to `last`, both included."""
        return self._entries[first - self.base_index - 1 : last - self.base_index]

    def append(self, entry: Entry) -> None:
        self._entries.append(entry)
        self.last_index = entry.index
        self.last_term = entry.term

    def first_conflict(self, entries: Sequence[Entry]) -> int:
        """Returns how many of `entries`, which continue a matching entry, the log already has."""
        for position, entry in enumerate(entries):
            if entry.index > self.last_index or self.term_at(entry.index) != entry.term:
                return position
        return len(entries)

    def truncate_from(self, index: int) -> None:
        del self._entries[index - self.base_index - 1 :]
        self.last_index = index - 1
        self.last_term = self._entries[-1].term if self._entries else self.base_term
        self.stable_index = min(self.stable_index, index - 1)
        if index <= self._stored_end:
            self._truncate_from = index if self._truncate_from is None else min(index, self._truncate_from)
            self._stored_end = index - 1

    def last_agreeing(self, index: int, term: int) -> tuple[int, int]:
        """The largest entry at or before `index` whose term is at most `term`: where to look next.

        Nothing below it can conflict in a way that skipping the entries between would miss: those have a
        term that the other side's log cannot have at or before `index`.  If even the last entry that was
        trimmed has a larger one, where to look is no longer here: the place before it, of which nothing is
        known.
        """
        position = min(index, self.last_index)
        while position > self.base_index and self.entry(position).term > term:
            position -= 1
        if position == self.base_index and self.base_term > term:
            return position - 1, 0
        return position, self.term_at(position) or 0

    def trim_to(self, index: int) -> None:
        """Forgets entries up to `index`, which a snapshot holds and the disk has."""
        index = min(index, self.stable_index)
        if index > self.base_index:
            self.base_term = self.entry(index).term
            del self._entries[: index - self.base_index]
            self.base_index = index

    def reset(self, index: int, term: int) -> None:
        """A snapshot takes the log's place."""
        self._entries.clear()
        self.base_index = self.last_index = self._stored_end = index
        self.base_term = self.last_term = term
        self.stable_index = 0
        self._truncate_from = None
        self._reset_pending = True

    @property
    def has_unstored(self) -> bool:
        return self._stored_end < self.last_index or self._truncate_from is not None or self._reset_pending

    def take_unstored(self) -> tuple[int | None, tuple[Entry, ...]]:
        """Returns what the storage must truncate from, and what it must then append."""
        truncate_from, self._truncate_from = self._truncate_from, None
        entries = tuple(self._entries[self._stored_end - self.base_index :])
        self._stored_end = self.last_index
        self._reset_pending = False
        return truncate_from, entries

    def stored(self) -> None:
        """The last hand-out is durable, but for what was truncated or replaced meanwhile."""
        if not self._reset_pending:
            self.stable_index = self._stored_end
