"""A history: every operation of every client, and at the end what a fresh client read.

Values are unique in a history, so that a value says which send it came from.  Times are of the monotonic
clock of one machine, so that those of several processes can be compared.

    outcome   what it means
    ok        it happened
    fail      it did not happen and never will
    unknown   a timeout, a broken connection, NOT_ENOUGH_REPLICAS_AFTER_APPEND, or a client that was killed:
              it happened, or not, or happens later
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Outcome(StrEnum):
    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Place(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Seen(NamedTuple):
    """A value at an offset."""

    offset: int
    value: str


class Send(NamedTuple):
    process: str
    place: Place
    value: str
    invoked_ns: int
    completed_ns: int | None = None
    outcome: Outcome = Outcome.UNKNOWN
    offset: int | None = None
    """None also where it was acknowledged without being told where it stands."""
    transaction: str | None = None


class Poll(NamedTuple):
    process: str
    place: Place
    seat: int
    """Counts up whenever the consumer's assignment or position is changed: within one, polls follow on."""
    records: tuple[Seen, ...]
    invoked_ns: int
    completed_ns: int
    transaction: str | None = None
    """The one during which it was polled."""


class Position(NamedTuple):
    """Somebody was told an offset that only goes forward."""

    process: str
    place: Place
    what: str
    """`latest`, `high watermark`, or the group whose committed offset it is."""
    offset: int
    invoked_ns: int
    completed_ns: int


class Owned(NamedTuple):
    """A member of a group was given a partition."""

    group: str
    generation: int
    member: str
    place: Place


class Ended(NamedTuple):
    """A transaction was to be committed; `fail` if it was aborted."""

    transaction: str
    outcome: Outcome


LATEST = "latest"


@dataclass(slots=True)
class History:
    sends: list[Send] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    positions: list[Position] = field(default_factory=list)
    owned: list[Owned] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    final: dict[Place, list[Seen]] = field(default_factory=dict)
    """The read after all has healed, by a fresh client, from the start past the highest offset that is
    known."""

    def read(self) -> Iterator[tuple[Place, Seen]]:
        """All that anybody read."""
        for poll in self.polls:
            for seen in poll.records:
                yield poll.place, seen
        for place, records in self.final.items():
            for seen in records:
                yield place, seen

    def acknowledged(self) -> Iterator[Send]:
        return (send for send in self.sends if send.outcome is Outcome.OK)

    def transactions(self, *outcomes: Outcome) -> set[str]:
        """Those that ended so."""
        return {ended.transaction for ended in self.ended if ended.outcome in outcomes}

    def stands_at(self) -> dict[str, tuple[Place, int]]:
        """Where each value was found, or was said to stand; found counts for more."""
        standing = {
            send.value: (send.place, send.offset) for send in self.acknowledged() if send.offset is not None
        }
        standing.update({seen.value: (place, seen.offset) for place, seen in self.read()})
        return standing
