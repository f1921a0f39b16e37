"""The leader epochs of what was read, and what they say of a position (KIP-320).  Pure.

Every batch names the epoch of the leader that wrote it.  When another leader comes, a reader asks it where
the epoch of the last record that was read has ended in its log:

| the answer                          | then                                                               |
|-------------------------------------|--------------------------------------------------------------------|
| at the position, or behind it       | the position is valid: what was read is in the log                 |
| before the position                 | the log was truncated: from there on it may be another             |
| the leader does not know the epoch  | the same, and nobody knows from where on                           |

A position without an epoch (sought by the program) is valid as it is.  A position whose last record the
present leader has written itself is valid, too: a leader truncates nothing of its own.
"""

from typing import Final, NamedTuple

NO_EPOCH: Final = -1
NO_OFFSET: Final = -1
RUNS_MAX: Final = 16
"""How many epochs of a partition are remembered: positions lie close behind what was read last."""


class LeaderEpochs:
    """Which epochs the records of one partition are of, as far as they were read."""

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[tuple[int, int]] = []
        """The first offset of each run of records of one epoch, and the epoch; both rise."""

    def add(self, first_offset: int, epoch: int) -> None:
        """Takes the epoch of records from `first_offset` on."""
        while self._runs and self._runs[-1][0] >= first_offset:
            self._runs.pop()
        if not self._runs or self._runs[-1][1] != epoch:
            self._runs.append((first_offset, epoch))
            del self._runs[:-RUNS_MAX]

    def before(self, offset: int) -> int:
        """The epoch of the last record before the offset; NO_EPOCH if that is not known."""
        return next((epoch for first, epoch in reversed(self._runs) if first < offset), NO_EPOCH)


class Truncation(NamedTuple):
    diverging_offset: int | None
    """The first offset at which the logs may differ; None: nobody knows."""
    leader_epoch: int = NO_EPOCH
    """The epoch of the last record before it."""


def truncation_of(offset: int, answered_epoch: int, end_offset: int) -> Truncation | None:
    """What the answer says of a position; None: it is valid."""
    if answered_epoch == NO_EPOCH or end_offset == NO_OFFSET:
        return Truncation(None)
    return Truncation(end_offset, answered_epoch) if end_offset < offset else None


class EpochBook:
    """The epochs of all partitions that are read, and the leader in whose log each position is valid."""

    def __init__(self) -> None:
        self._epochs: dict[object, LeaderEpochs] = {}
        self._validated: dict[object, int] = {}
        """The epoch of the leader in whose log the position is valid."""

    def moved(self, partition: object, offset: int, epoch: int = NO_EPOCH) -> None:
        """The position is another one now: what is before it is of this epoch, if that is known."""
        self.forget(partition)
        if epoch != NO_EPOCH:
            self._epochs[partition] = found = LeaderEpochs()
            found.add(offset - 1, epoch)

    def read(self, partition: object, first_offset: int, epoch: int) -> None:
        self._epochs.setdefault(partition, LeaderEpochs()).add(first_offset, epoch)

    def forget(self, partition: object) -> None:
        self._epochs.pop(partition, None)
        self._validated.pop(partition, None)

    def epoch_before(self, partition: object, offset: int) -> int:
        found = self._epochs.get(partition)
        return NO_EPOCH if found is None else found.before(offset)

    def must_validate(self, partition: object, offset: int, leader_epoch: int) -> bool:
        """Whether the leader of that epoch has to be asked before anything is fetched from it."""
        if leader_epoch == NO_EPOCH or self._validated.get(partition, NO_EPOCH) >= leader_epoch:
            return False
        if self.epoch_before(partition, offset) in (NO_EPOCH, leader_epoch):
            self._validated[partition] = leader_epoch
            return False
        return True

    def validated(self, partition: object, leader_epoch: int) -> None:
        self._validated[partition] = leader_epoch
