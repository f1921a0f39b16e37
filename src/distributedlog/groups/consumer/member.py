"""A member of a consumer group.  Immutable: every record about it makes another.

    said by itself          ids, rack, subscription, preferred assignor, how long it takes to give up
    made by reconciliation  epoch, state, what is assigned, what it has to give up

| state                 | the member                                                                   |
|-----------------------|------------------------------------------------------------------------------|
| STABLE                | has all that the target of its epoch gives it                                |
| UNREVOKED_PARTITIONS  | stays in its epoch until it has said that it gave up what is another's to be |
| UNRELEASED_PARTITIONS | is in the newest epoch, and gets more as soon as others have given it up     |

Epochs: 0 has just come; positive ones are those of targets; -2 is a static member that is away for a while.
The epoch before is accepted too, from a member that holds no more than is assigned: the answer with the newer
one may have been lost.

A member with `classic` speaks the classic protocol: its epoch is what it takes for a generation.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from distributedlog.groups.consumer.topics import NO_SLOTS, Slots
from distributedlog.groups.requests import Offer

JOINS: Final = 0
LEAVES: Final = -1
IS_AWAY: Final = -2
"""Of a static member: it leaves, and means to come back."""


class MemberState(IntEnum):
    """As they stand in the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127
    """Of a newer coordinator: such a member has to come anew."""


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """What a client of the classic protocol said when it joined."""

    session_timeout_ms: int
    offers: tuple[Offer, ...]


@dataclass(frozen=True, slots=True)
class Member:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] = ()
    """Sorted, each once."""
    pattern: str | None = None
    assignor: str | None = None
    classic: ClassicSide | None = None

    epoch: int = JOINS
    previous_epoch: int = JOINS
    state: MemberState = MemberState.STABLE
    assigned: Slots = NO_SLOTS
    revoking: Slots = NO_SLOTS
    """Assigned no longer, and not known to be given up: nobody else may have them yet."""

    @property
    def holds(self) -> Slots:
        """What no other member may have."""
        return self.assigned | self.revoking if self.revoking else self.assigned

    @property
    def is_away(self) -> bool:
        return self.epoch == IS_AWAY

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch
