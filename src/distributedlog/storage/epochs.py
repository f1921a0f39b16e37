"""Which leader wrote which offsets: the history that replicas compare to find where they diverged.

Each entry says that a leader epoch begins at an offset; it lasts up to the next entry's start, the last one
up to the log's end.  It is kept in `leader-epoch-checkpoint` (see `checkpoints`) and can be rebuilt from the
log, because each batch carries its epoch.

Invariant: epochs and start offsets both rise strictly from entry to entry.  An entry that would break it
makes those it contradicts go: it describes what is appended now, and they what was cut away before.

The file is not written for every change: what is otherwise since is in the batches, and the recovery point
must not pass `changed_from` before the file is durable (`log_files`).  So a crash may leave a file that is
older or newer than the log.  Whoever opens the log therefore calls `note` for each batch that was recovered,
and `truncate_from_start` and `truncate_from_end` with its bounds: all three change nothing where the file was
right.

Pure: `changed` tells the owner that there is something to write; the owner calls `mark_written`.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

NO_EPOCH = -1
NO_OFFSET = -1
NOWHERE = 2**63 - 1
"""The offset from which on a file is old that is not."""


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """The answer to "where does this epoch end in your log?"; (-1, -1) where nothing is known."""

    epoch: int
    end_offset: int


UNKNOWN_END = EpochEnd(NO_EPOCH, NO_OFFSET)


class EpochHistory:
    """The entries, as two lists side by side for the binary searches."""

    __slots__ = ("_epochs", "_starts", "changed", "changed_from")

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.mark_written()
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)
        self.mark_written()

    def mark_written(self) -> None:
        """Notes that somebody has what there is, to write it."""
        self.changed = False
        self.changed_from = NOWHERE
        """The lowest offset from which on the epochs are others since."""

    @property
    def entries(self) -> list[EpochEntry]:
        return [EpochEntry(*entry) for entry in zip(self._epochs, self._starts, strict=True)]

    @property
    def latest_epoch(self) -> int:
        """The latest epoch; -1 if there is none."""
        return self._epochs[-1] if self._epochs else NO_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Says that `epoch` writes from `start_offset` on.  Called for each batch: mostly nothing changes."""
        epochs, starts = self._epochs, self._starts
        if epochs and epochs[-1] == epoch and starts[-1] <= start_offset:
            return
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} from offset {start_offset} on: neither can be negative")
        while epochs and (epochs[-1] >= epoch or starts[-1] >= start_offset):
            epochs.pop()
            starts.pop()
        epochs.append(epoch)
        starts.append(start_offset)
        self.changed = True
        self.changed_from = min(self.changed_from, start_offset)

    def note(self, epoch: int, offset: int) -> None:
        """Takes in that a batch of `epoch` stands at `offset`.  Called for batches in their order; what a
        file said otherwise of this offset, and behind it, was of batches that are gone."""
        if self.epoch_for_offset(offset) != epoch:
            self.truncate_from_end(offset)
            while self.latest_epoch > epoch:  # epochs rise: nothing of a later one stands before this batch
                self.truncate_from_end(self._starts[-1])
            if epoch > self.latest_epoch:
                self.assign(epoch, offset)

    def end_offset_for(self, requested_epoch: int, log_end_offset: int) -> EpochEnd:
        """The largest epoch not above `requested_epoch`, and the offset after its last one.

        | requested                     | answer                                        |
        |-------------------------------|-----------------------------------------------|
        | the latest epoch              | it, the log's end                             |
        | between the first and latest  | the largest not above it, the next one's start |
        | before the first              | itself, the first one's start: its records are gone |
        | after the latest, or none     | (-1, -1)                                      |
        """
        if requested_epoch == NO_EPOCH or not self._epochs or requested_epoch > self._epochs[-1]:
            return UNKNOWN_END
        if requested_epoch == self._epochs[-1]:
            return EpochEnd(requested_epoch, log_end_offset)
        following = bisect_right(self._epochs, requested_epoch)
        epoch = self._epochs[following - 1] if following else requested_epoch
        return EpochEnd(epoch, self._starts[following])

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch that wrote `offset`; None before the first entry."""
        following = bisect_right(self._starts, offset)
        return self._epochs[following - 1] if following else None

    def truncate_from_end(self, end_offset: int) -> None:
        """Forgets the epochs that begin at `end_offset` or after it: the log now ends there."""
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._starts.pop()
            self.changed = True
            self.changed_from = min(self.changed_from, end_offset)

    def truncate_from_start(self, start_offset: int) -> None:
        """Forgets the epochs that end before `start_offset`; the one that covers it begins there now."""
        following = bisect_right(self._starts, start_offset)
        if following and (following > 1 or self._starts[0] != start_offset):
            del self._epochs[: following - 1]
            del self._starts[: following - 1]
            self._starts[0] = start_offset
            self.changed = True

    def clear(self) -> None:
        if self._epochs:
            self._epochs.clear()
            self._starts.clear()
            self.changed = True
